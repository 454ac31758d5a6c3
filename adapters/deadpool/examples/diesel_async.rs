//! diesel-async's manager on cenote-pool: a lease is used wherever diesel wants `&mut conn`.
//!
//! ```text
//! cargo run -p cenote-deadpool --example diesel_async -- postgres://user:password@localhost/database
//! ```

// The macro `table!` writes items without documentation.
#![allow(missing_docs)]

use std::error::Error;

use cenote_deadpool::FromDeadpool;
use cenote_pool::Pool;
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

diesel::table! {
    cenote_book (id) {
        id -> Integer,
        title -> Text,
    }
}

#[derive(Queryable, Selectable, Insertable, Debug, PartialEq)]
#[diesel(table_name = cenote_book)]
struct Book {
    id: i32,
    title: String,
}

type Manager = AsyncDieselConnectionManager<AsyncPgConnection>;
type BoxError = Box<dyn Error + Send + Sync>;

/// Takes any connection of diesel-async, as before.
async fn rename(
    connection: &mut AsyncPgConnection,
    id: i32,
    title: &str,
) -> Result<usize, diesel::result::Error> {
    diesel::update(cenote_book::table.find(id))
        .set(cenote_book::title.eq(title))
        .execute(connection)
        .await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args()
        .nth(1)
        .ok_or("the argument is the address of a PostgreSQL")?;

    // Before: deadpool::Pool::builder(manager).max_size(4).build()?
    let manager = Manager::new(url);
    let pool = Pool::builder(FromDeadpool::new(manager))
        .max(4)
        .open()
        .await?;

    let mut connection = pool.acquire().await?; // before: pool.get()
    connection
        .batch_execute("DROP TABLE IF EXISTS cenote_book; CREATE TABLE cenote_book (id int PRIMARY KEY, title text NOT NULL)")
        .await?;
    let book = Book {
        id: 1,
        title: "Dune".to_owned(),
    };
    diesel::insert_into(cenote_book::table)
        .values(&book)
        .execute(&mut connection)
        .await?;
    rename(&mut connection, 1, "Dune Messiah").await?;

    // Transactions are diesel's own.
    let rolled_back = connection
        .transaction(async |connection| {
            rename(connection, 1, "lost").await?;
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        })
        .await;
    assert!(rolled_back.is_err());

    let books: Vec<Book> = cenote_book::table
        .select(Book::as_select())
        .load(&mut connection)
        .await?;
    println!("{books:?}");
    assert_eq!(books[0].title, "Dune Messiah");
    connection.batch_execute("DROP TABLE cenote_book").await?;

    // A connection that is released inside a transaction is not handed out again: diesel's `recycle` refuses it.
    connection.batch_execute("BEGIN").await?;
    diesel::sql_query("SELECT nothing")
        .execute(&mut connection)
        .await
        .expect_err("no such column");
    drop(connection);
    let mut connection = pool.acquire().await?;
    diesel::sql_query("SELECT 1")
        .execute(&mut connection)
        .await?;
    Ok(())
}
