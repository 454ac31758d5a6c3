//! Rows of Rust values: names, counts, errors that name row and column.

use cenote::{Error, Kind, Params, named};

use super::{count, db, db_with};
use crate::servers::{assert_whole, quiet};

#[tokio::test]
async fn rows_of_every_kind_are_stored() {
    let db = db().await;
    let columns = ["id", "name"];
    let stored = db.copy_in_rows("t", &columns, (0..3).map(|id| (id, format!("n{id}"))));
    assert_eq!(stored.await.unwrap(), 3);
    let name = String::from("borrowed");
    let rows = [(3, name.as_str()), (4, "x")];
    assert_eq!(db.copy_in_rows("t", &columns, rows).await.unwrap(), 2);
    let rows = vec![
        named! { name: "by name", id: 5 },
        named! { id: 6, name: None::<&str> },
    ];
    assert_eq!(db.copy_in_rows("t", &columns, rows).await.unwrap(), 2);
    assert_eq!(
        db.copy_in_rows("t", &["id"], vec![[7], [8]]).await.unwrap(),
        2
    );
    assert_eq!(
        db.copy_in_rows("t", &["id"], Vec::<(i64,)>::new())
            .await
            .unwrap(),
        0
    );
    let names: Vec<Option<String>> = db
        .query_scalar("SELECT name FROM t ORDER BY id", ())
        .await
        .unwrap();
    let expected = ["n0", "n1", "n2", "borrowed", "x", "by name"];
    let expected = expected.iter().map(|name| Some((*name).to_owned()));
    assert_eq!(
        names,
        expected.chain([None, None, None]).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn many_rows_are_read_from_the_iterator_as_they_are_sent() {
    let db = db().await;
    let rows = (0..300_000_i64).map(|id| (id, "some text that takes a little room"));
    assert_eq!(
        db.copy_in_rows("t", &["id", "name"], rows).await.unwrap(),
        300_000
    );
    assert_eq!(count(&db).await, 300_000);
    // A value that is larger than every buffer.
    let large = "y".repeat(5_000_000);
    let rows = [(-1, large.as_str()), (-2, "z")];
    assert_eq!(
        db.copy_in_rows("t", &["id", "name"], rows).await.unwrap(),
        2
    );
    let sql = "SELECT length(name)::int8 FROM t WHERE id = -1";
    assert_eq!(
        db.query_scalar_one::<i64>(sql, ()).await.unwrap(),
        5_000_000
    );
    assert_whole(&db).await;
}

#[tokio::test]
async fn names_are_quoted_and_may_have_a_schema() {
    let db = db().await;
    let schema: String = db
        .query_scalar_one("SELECT current_schema()::text", ())
        .await
        .unwrap();
    db.run_all(
        r#"CREATE TABLE "Odd ""t""; DROP TABLE t" ("A b" int, "c""d" int, "?" int);
           CREATE TABLE "with.dot" (id int)"#,
        (),
    )
    .await
    .unwrap();
    let odd = r#"Odd "t"; DROP TABLE t"#;
    let columns = ["A b", "c\"d", "?"];
    assert_eq!(
        db.copy_in_rows(odd, &columns, [(1, 2, 3)]).await.unwrap(),
        1
    );
    let with_schema = format!("{schema}.t");
    assert_eq!(
        db.copy_in_rows(&with_schema, &["id"], [1]).await.unwrap(),
        1
    );
    let with_dot = format!("{schema}.\"with.dot\"");
    assert_eq!(db.copy_in_rows(&with_dot, &["id"], [1]).await.unwrap(), 1);
    assert_eq!(
        db.copy_in_rows("\"with.dot\"", &["id"], [1]).await.unwrap(),
        1
    );
    for wrong in ["", ".", "a.", ".t", "a.b.c", "\"t", "\"\"", "\"t\"x"] {
        let error = db.copy_in_rows(wrong, &["id"], [1]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters, "{wrong}: {error}");
    }
    let error = db.copy_in_rows("t", &[], [(1,)]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters, "{error}");
    let error = db.copy_in_rows("T", &["id"], [1]).await.unwrap_err();
    assert_eq!(
        error.sql_state(),
        Some("42P01"),
        "the case matters: {error}"
    );
    assert_eq!(error.position(), None);
    assert!(error.sql().unwrap().starts_with("COPY \"T\""));
    let error = db.copy_in_rows("t", &["nothing"], [1]).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("42703"));
    assert_eq!(count(&db).await, 1);
    assert_whole(&db).await;
}

/// Kind, SQLSTATE, row and column.
fn place(error: &Error) -> (Kind, Option<&str>, Option<u64>, Option<&str>) {
    (error.kind(), error.sql_state(), error.row(), error.column())
}

#[tokio::test]
async fn value_that_does_not_fit_names_row_and_column() {
    let db = db_with(|builder| builder.max(1)).await;
    let session = crate::servers::session_id(&db).await;
    // In the first chunk, and after megabytes were sent.
    for wrong in [0, 7, 100_000] {
        let rows = (0..200_000_i64).map(|id| match id == wrong {
            true => Params::Positional(vec![
                cenote::driver::Param::Value("no number".into()),
                cenote::driver::Param::Value("x".into()),
            ]),
            false => Params::Positional(vec![
                cenote::driver::Param::Value(id.into()),
                cenote::driver::Param::Value("x".into()),
            ]),
        });
        let error = db
            .copy_in_rows("t", &["id", "name"], rows)
            .await
            .unwrap_err();
        let row = Some(u64::try_from(wrong).unwrap());
        assert_eq!(
            place(&error),
            (Kind::Type, None, row, Some("id")),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("row {wrong}, column id")),
            "{error}"
        );
        assert!(!error.to_string().contains("no number"), "{error}");
        assert_eq!(error.call_site().unwrap().file(), file!());
        assert_eq!(count(&db).await, 0);
        assert_eq!(
            crate::servers::session_id(&db).await,
            session,
            "it can be used again"
        );
    }
    let error = db
        .copy_in_rows("t", &["id", "name"], vec![vec![1], vec![2]])
        .await
        .unwrap_err();
    assert_eq!(
        place(&error),
        (Kind::Parameters, None, Some(0), None),
        "{error}"
    );
    let rows = [named! { id: 1, name: "x" }, named! { id: 2 }];
    let error = db
        .copy_in_rows("t", &["id", "name"], rows)
        .await
        .unwrap_err();
    assert_eq!(
        place(&error),
        (Kind::Parameters, None, Some(1), Some("name")),
        "{error}"
    );
    let rows = [named! { id: 1, nam: "x" }];
    let error = db
        .copy_in_rows("t", &["id", "name"], rows)
        .await
        .unwrap_err();
    assert_eq!(
        place(&error),
        (Kind::Parameters, None, Some(0), None),
        "{error}"
    );
    quiet(&db).await;
}

#[tokio::test]
async fn row_that_the_server_refuses_is_named() {
    let db = db().await;
    db.exec("CREATE TABLE s (id int PRIMARY KEY, short varchar(3) NOT NULL, even int CHECK (even % 2 = 0))", ())
        .await
        .unwrap();
    let columns = ["id", "short", "even"];
    for (wrong, state, column) in [
        ((5, Some("long"), 2), "22001", Some("short")),
        ((5, None, 2), "23502", Some("short")),
        ((5, Some("x"), 3), "23514", None),
        ((1, Some("x"), 2), "23505", None),
        ((5, Some("\0"), 2), "22021", Some("short")),
    ] {
        for at in [2, 1500] {
            let rows = (0..3000_i32).map(|id| match id == at {
                true => wrong,
                false => (id + 10, Some("abc"), 4),
            });
            let rows = [(1, Some("abc"), 2)].into_iter().chain(rows);
            let error = db.copy_in_rows("s", &columns, rows).await.unwrap_err();
            let row = Some(u64::try_from(at).unwrap() + 1);
            let (kind, said, at, named) = place(&error);
            assert_eq!(
                (kind, said, at),
                (Kind::Database, Some(state), row),
                "{error}"
            );
            assert_eq!(named, column, "{error}");
            let stored: i64 = db
                .query_scalar_one("SELECT count(*) FROM s", ())
                .await
                .unwrap();
            assert_eq!(stored, 0, "{error}");
        }
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn defaults_are_kept_and_generated_columns_refused() {
    let db = db().await;
    db.exec(
        "CREATE TABLE g (id int8 GENERATED BY DEFAULT AS IDENTITY, n int, \
         double int GENERATED ALWAYS AS (n * 2) STORED, made timestamptz DEFAULT now(), \
         dropped int)",
        (),
    )
    .await
    .unwrap();
    db.exec("ALTER TABLE g DROP COLUMN dropped", ())
        .await
        .unwrap();
    assert_eq!(db.copy_in_rows("g", &["n"], [5, 6]).await.unwrap(), 2);
    let rows: Vec<(i64, i32, i32, bool)> = db
        .query_as(
            "SELECT id, n, double, made IS NOT NULL FROM g ORDER BY id",
            (),
        )
        .await
        .unwrap();
    assert_eq!(rows, [(1, 5, 10, true), (2, 6, 12, true)]);
    let error = db
        .copy_in_rows("g", &["n", "double"], [(1, 2)])
        .await
        .unwrap_err();
    assert_eq!(error.sql_state(), Some("42P10"), "{error}");
    let error = db.copy_in_rows("g", &["dropped"], [1]).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("42703"), "{error}");
    let error = db
        .copy_in_rows("g", &["n", "n"], [(1, 2)])
        .await
        .unwrap_err();
    assert_eq!(error.sql_state(), Some("42701"), "{error}");
}

#[tokio::test]
async fn an_iterator_that_panics_stores_nothing() {
    let db = db().await;
    let copied = cenote::spawn({
        let db = db.clone();
        async move {
            let rows = (0..100_000_i64).map(|id| {
                assert!(id < 50_000, "the iterator fails");
                (id, "x")
            });
            db.copy_in_rows("t", &["id", "name"], rows).await
        }
    });
    assert!(copied.await.unwrap_err().is_panic());
    assert_whole(&db).await;
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn an_error_of_a_deferred_constraint_is_reported() {
    let db = db().await;
    db.exec(
        "CREATE TABLE child (t int8 REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)",
        (),
    )
    .await
    .unwrap();
    let error = db.copy_in_rows("child", &["t"], [1, 2]).await.unwrap_err();
    assert!(error.is_foreign_key_violation(), "{error}");
    let stored: i64 = db
        .query_scalar_one("SELECT count(*) FROM child", ())
        .await
        .unwrap();
    assert_eq!(stored, 0);
    assert_whole(&db).await;
}
