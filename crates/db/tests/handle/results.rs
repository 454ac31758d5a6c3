//! `run` and `run_all`: columns, rows, changed rows and ids of one statement or of several, on SQLite.

use cenote::{Db, Kind, Outcome, Result};
use cenote_testkit::Fake;

async fn notes(name: &str) -> Db {
    let dsn = format!("sqlite:file:results-{name}?mode=memory&cache=shared");
    let db = Db::open(&dsn).await.unwrap();
    let create = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
    db.exec(create, ()).await.unwrap();
    db
}

fn names(outcome: &Outcome) -> Vec<&str> {
    let columns = outcome.columns().iter();
    columns.map(|column| &*column.name).collect()
}

#[tokio::test]
async fn run_returns_columns_rows_changes_and_the_last_id() -> Result<()> {
    let db = notes("run").await;
    let added = db
        .run(
            "INSERT INTO note (text) VALUES (?) RETURNING id, text",
            ("a",),
        )
        .await?;
    assert_eq!(names(&added), ["id", "text"]);
    assert_eq!((added.rows_affected, added.last_insert_id), (1, Some(1)));
    assert_eq!(added.into_rows()[0].get::<&str>("text")?, "a");

    let none = db.run("SELECT id FROM note WHERE id = 7", ()).await?;
    assert_eq!(names(&none), ["id"], "also of an empty result");
    assert!(none.into_rows().is_empty());

    let updated = db.run("UPDATE note SET text = 'b'", ()).await?;
    assert_eq!(updated.rows_affected, 1);
    assert!(updated.columns().is_empty() && updated.into_rows().is_empty());
    Ok(())
}

#[tokio::test]
async fn exec_discards_rows() -> Result<()> {
    let db = notes("exec").await;
    let done = db.exec("SELECT 1", ()).await?;
    assert!(done.rows.is_none() && done.columns().is_empty());
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_outcome_of_a_script() -> Result<()> {
    let db = notes("run_all").await;
    let script = "INSERT INTO note (text) VALUES ('a'), ('b');
                  SELECT id, text FROM note ORDER BY id;
                  SELECT id FROM note WHERE id = 7;
                  DELETE FROM note WHERE id = 1";
    let all = db.run_all(script, ()).await?;
    let [inserted, both, none, deleted] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (inserted.rows_affected, inserted.last_insert_id),
        (2, Some(2))
    );
    assert_eq!((names(both), names(none)), (vec!["id", "text"], vec!["id"]));
    assert_eq!(both.rows.as_ref().unwrap().len(), 2);
    assert_eq!(none.rows.as_ref().unwrap().len(), 0);
    assert_eq!(deleted.rows_affected, 1);
    Ok(())
}

#[tokio::test]
async fn run_all_of_one_statement_is_run_and_takes_parameters() -> Result<()> {
    let db = notes("one").await;
    let all = db
        .run_all("SELECT :n AS n", cenote::named! { n: 7 })
        .await?;
    assert_eq!(all.len(), 1);
    let rows = all.into_iter().next().unwrap().into_rows();
    assert_eq!(rows[0].get::<i64>("n")?, 7);
    let refused = db.run_all("SELECT ?; SELECT 2", (1,)).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Parameters);
    Ok(())
}

#[tokio::test]
async fn run_all_ends_at_the_first_error_and_joins_a_transaction() -> Result<()> {
    let db = notes("error").await;
    let script = "INSERT INTO note (text) VALUES ('a'); SELECT * FROM nowhere; SELECT 1";
    let failed = db.transaction(async || db.run_all(script, ()).await).await;
    assert_eq!(failed.unwrap_err().kind(), Kind::Database);
    assert_eq!(
        db.query_as_one::<i64>("SELECT count(*) FROM note", ())
            .await?,
        0
    );
    db.run_all(script, ()).await.unwrap_err();
    assert_eq!(
        db.query_as_one::<i64>("SELECT count(*) FROM note", ())
            .await?,
        1
    );
    assert!(
        db.last_error().is_none(),
        "no coroutine, nothing to remember"
    );
    Ok(())
}

#[tokio::test]
async fn driver_without_run_all_refuses_scripts_only() -> Result<()> {
    let fake = Fake::new();
    let db = fake.builder().open().await?;
    assert_eq!(db.run_all("SELECT 1", ()).await?.len(), 1);
    let refused = db.run_all("SELECT 1; SELECT 2", ()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported);
    Ok(())
}
