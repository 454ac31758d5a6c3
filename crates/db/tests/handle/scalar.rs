//! Values of single columns, bare parameters and lists, on SQLite.

use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Db, Error, Kind, Value, list, named};

static DATABASES: AtomicUsize = AtomicUsize::new(0);

async fn people() -> Db {
    // Only a number that is not used twice: no memory depends on it.
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let dsn = format!("sqlite:file:values-scalar-{number}?mode=memory&cache=shared");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    db.exec(
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)",
        (),
    )
    .await
    .unwrap();
    let people = [(1, "ada"), (2, "grace"), (3, "mary"), (4, "it's :me ?")];
    db.exec_many("INSERT INTO person (id, name) VALUES (?, ?)", people)
        .await
        .unwrap();
    db
}

fn refused(error: &Error) -> &str {
    assert_eq!(error.kind(), Kind::Parameters, "{error}");
    error.message()
}

#[tokio::test]
async fn query_scalar_is_query_as_of_a_tuple_without_the_tuple() {
    let db = people().await;
    let sql = "SELECT name FROM person WHERE id < ? ORDER BY id";
    let scalars: Vec<String> = db.query_scalar(sql, 3).await.unwrap();
    let tuples: Vec<(String,)> = db.query_as(sql, 3).await.unwrap();
    assert_eq!(scalars, ["ada", "grace"]);
    assert_eq!(
        scalars,
        tuples.into_iter().map(|(name,)| name).collect::<Vec<_>>()
    );
    let one = "SELECT name FROM person WHERE id = ?";
    assert_eq!(db.query_scalar_one::<String>(one, 1).await.unwrap(), "ada");
    assert_eq!(db.query_scalar_opt::<String>(one, 9).await.unwrap(), None);
    let kind = |error: Error| error.kind();
    let missing = db.query_scalar_one::<String>(one, 9).await;
    assert_eq!(missing.map_err(kind), Err(Kind::NoRows));
    let many = db
        .query_scalar_opt::<String>("SELECT name FROM person", ())
        .await;
    assert_eq!(many.map_err(kind), Err(Kind::TooManyRows));
    let wide = db
        .query_scalar::<String>("SELECT name, id FROM person", ())
        .await;
    let wide = wide.unwrap_err();
    assert_eq!(wide.message(), "the row has 2 columns, wanted 1 value");
    db.exec("UPDATE person SET photo = ? WHERE id = 1", (vec![1_u8, 2],))
        .await
        .unwrap();
    let photo = "SELECT photo FROM person WHERE id = ?";
    let photos: Vec<Option<Vec<u8>>> = db
        .query_scalar("SELECT photo FROM person WHERE id < 3", ())
        .await
        .unwrap();
    assert_eq!(photos, [Some(vec![1, 2]), None]);
    let error = db.query_as_one::<Vec<u8>>(photo, 1).await.unwrap_err();
    assert!(error.message().contains("query_scalar"), "{error}");
}

#[tokio::test]
async fn query_scalar_runs_on_everything_that_runs_sql() {
    let db = people().await;
    let count = "SELECT count(*) FROM person";
    let in_transaction = cenote::scope(async {
        let tx = db.begin().await.unwrap();
        let counted = tx.query_scalar_one::<i64>(count, ()).await;
        tx.rollback().await.unwrap();
        counted
    });
    assert_eq!(in_transaction.await.unwrap(), 4);
    let connection = db.connection().await.unwrap();
    assert_eq!(
        connection.query_scalar::<i64>(count, ()).await.unwrap(),
        [4]
    );
}

#[tokio::test]
async fn a_list_is_as_many_placeholders_as_it_has_values() {
    let db = people().await;
    let sql = "SELECT id FROM person WHERE id IN (?) AND name <> ? ORDER BY id";
    for (ids, found) in [
        (vec![3_i64], vec![3]),
        (vec![3, 1], vec![1, 3]),
        (vec![9, 2, 1, 9, 3], vec![1, 2, 3]),
    ] {
        let read: Vec<i64> = db.query_scalar(sql, (list(&ids), "?")).await.unwrap();
        assert_eq!(read, found);
    }
    let named = "SELECT id FROM person WHERE (id IN (:ids) OR name IN (:names)) AND id NOT IN (:ids) AND ':ids' <> ''";
    let params = named! { ids: list([1, 2, 3]), names: list(["ada", "it's :me ?"]) };
    assert_eq!(db.query_scalar::<i64>(named, params).await.unwrap(), [4]);
    let numbered = "SELECT id FROM person WHERE id IN (?2) AND name = ?1 AND ?1 <> 'x'";
    let found: Vec<i64> = db
        .query_scalar(numbered, ("ada", list([1, 2, 3])))
        .await
        .unwrap();
    assert_eq!(found, [1]);
    let deleted = db
        .exec("DELETE FROM person WHERE id IN(?)", (list([1, 2, 3]),))
        .await
        .unwrap();
    assert_eq!(deleted.rows_affected, 3);
    let streamed = db
        .stream("SELECT id FROM person WHERE id IN (?)", (list([4]),))
        .await;
    let mut streamed = streamed.unwrap();
    assert_eq!(
        streamed
            .try_next()
            .await
            .unwrap()
            .unwrap()
            .get::<i64>(0)
            .unwrap(),
        4
    );
}

#[tokio::test]
async fn an_empty_list_is_refused() {
    let db = people().await;
    let none: [i64; 0] = [];
    let sql = "SELECT id FROM person WHERE id IN (:ids)";
    let error = db.query(sql, named! { ids: list(none) }).await.unwrap_err();
    assert_eq!(
        refused(&error),
        "the list for the placeholder :ids is empty, and SQL has no empty list: skip the call, or use another condition"
    );
    let sets = [(list([1]),), (list([2]),)];
    let error = db
        .exec_many("DELETE FROM person WHERE id IN (?)", sets)
        .await
        .unwrap_err();
    assert!(
        refused(&error).starts_with("exec_many runs one statement"),
        "{error}"
    );
}

#[tokio::test]
async fn a_vector_inside_of_a_tuple_needs_a_database_with_arrays() {
    let db = people().await;
    let sql = "SELECT id FROM person WHERE id IN (?)";
    let error = db.query(sql, (vec![1, 2],)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert_eq!(
        error.message(),
        "parameter 1: SQLite has no arrays: use list(..) for IN (?), Json(..) for a JSON column"
    );
    let bytes: Vec<u8> = db
        .query_scalar_one("SELECT ?", (&b"abc"[..],))
        .await
        .unwrap();
    assert_eq!(bytes, b"abc");
    let sum: i64 = db
        .query_scalar_one("SELECT ? + ?", vec![20, 22])
        .await
        .unwrap();
    assert_eq!(sum, 42, "an outer vector is the list of parameters");
}

#[tokio::test]
async fn a_bare_value_is_one_parameter() {
    let db = people().await;
    let typed =
        async |row: cenote::Result<cenote::Row>| row.unwrap().value(0).unwrap().into_owned();
    assert_eq!(
        typed(db.query_one("SELECT ?", 7).await).await,
        Value::Int(7)
    );
    assert_eq!(
        typed(db.query_one("SELECT ?", 0.5).await).await,
        Value::Float(0.5)
    );
    assert_eq!(
        typed(db.query_one("SELECT ?", true).await).await,
        Value::Int(1)
    );
    assert_eq!(
        typed(db.query_one("SELECT ?", "ada").await).await,
        Value::from("ada")
    );
    assert_eq!(
        typed(db.query_one("SELECT ?", None::<i64>).await).await,
        Value::Null
    );
    let updated = db
        .exec("UPDATE person SET name = 'x' WHERE id = ?", 1)
        .await
        .unwrap();
    assert_eq!(updated.rows_affected, 1);
    let many = db
        .exec_many("DELETE FROM person WHERE id = ?", [1, 2])
        .await
        .unwrap();
    assert_eq!(many.rows_affected, 2);
    let error = db.query("SELECT :id", 7).await.unwrap_err();
    assert!(
        refused(&error).contains("have names, such as :id"),
        "{error}"
    );
}

#[tokio::test]
async fn a_name_alone_is_short_for_itself() {
    let db = people().await;
    let (id, name) = (2, "grace");
    let sql = "SELECT count(*) FROM person WHERE id = :id AND name = :name AND id < :max";
    let found: i64 = db
        .query_scalar_one(sql, named! { id, name, max: 9 })
        .await
        .unwrap();
    assert_eq!(found, 1);
}

#[tokio::test]
async fn a_slip_in_a_name_is_answered_with_the_name_without_a_value() {
    let db = people().await;
    let sql = "SELECT id FROM person WHERE name = :name AND id = :nam";
    let error = db
        .query(sql, named! { nmae: "ada", nam: 1 })
        .await
        .unwrap_err();
    assert_eq!(
        refused(&error),
        "the SQL has no placeholder :nmae; :name has no value, did you mean that?"
    );
    // SQLite has no operator `?`.
    let error = db.query("SELECT 'a' || ? 'b'", ()).await.unwrap_err();
    assert_eq!(
        refused(&error),
        "the SQL has 1 placeholder and no value was given"
    );
}

#[tokio::test]
async fn lists_take_as_many_values_as_the_database_does() {
    let db = people().await;
    for count in [4_096, 4_097, 20_000, 32_765] {
        let ids = list(1..=count);
        let found: i64 = db
            .query_scalar_one("SELECT ? IN (?)", (count, ids))
            .await
            .unwrap();
        assert_eq!(found, 1, "{count}");
    }
}

#[tokio::test]
async fn question_mark_after_a_number_keeps_its_value_beside_a_list() {
    let db = people().await;
    let read: (i64, String) = db
        .query_as_one("SELECT 2 IN (?1), ?", (list([1, 2]), "ada"))
        .await
        .unwrap();
    assert_eq!(read, (1, "ada".to_owned()));
}
