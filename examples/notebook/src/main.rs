//! Starts a notebook, and uses it through `Db` as if it were any database.

use cenote::{Db, Error, Result};
use cenote_notebook::{Notebook, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let server = Server::start().await.map_err(Error::other)?;
    let db = Db::builder_with(Notebook, &server.dsn()).open().await?;

    db.exec("ADD ? ?", (1, "buy milk")).await?;
    let given_up: Result<()> = db
        .transaction(async || {
            db.exec("ADD ? ?", (2, "buy a cow")).await?;
            Err(Error::other("on second thoughts"))
        })
        .await;
    println!("{}", given_up.expect_err("it was given up"));

    for note in db.query("LIST", ()).await? {
        println!("{}: {}", note.get::<i64>("id")?, note.get::<&str>("name")?);
    }
    Ok(())
}
