//! When the sets of an INSERT are written as statements of many rows, and when they must not be.

use cenote::{Db, Isolation};

use crate::servers::{dsn, own_tables_at};

const SETS: i64 = 700;

async fn shop(script: &str) -> Db {
    let db = own_tables_at(&dsn(), |builder| builder.max(1)).await;
    db.exec(script, ()).await.unwrap();
    db
}

async fn insert(db: &Db) {
    let sets = (0..SETS).map(|n| (n, format!("name {n}")));
    let done = db
        .exec_many("INSERT INTO t (n, name) VALUES (?, ?)", sets)
        .await;
    assert_eq!(done.unwrap().rows_affected, SETS.unsigned_abs());
}

/// Returns how many statements have written the rows of `t` in its transaction.
async fn statements(db: &Db) -> i64 {
    let sql = "SELECT count(DISTINCT (xmin::text, cmin::text)) FROM t";
    db.query_scalar_one(sql, ()).await.unwrap()
}

#[tokio::test]
async fn plain_table_gets_statements_of_many_rows() {
    let plain = [
        "CREATE TABLE t (n int8 PRIMARY KEY, name text)",
        "CREATE TABLE t (id serial, n int4 UNIQUE CHECK (n >= 0), name varchar(20) DEFAULT lower('X'), at timestamptz DEFAULT now())",
        "CREATE TABLE p (n int8 PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 700); \
         CREATE TABLE t (n int8 REFERENCES p, name text)",
    ];
    for script in plain {
        let db = shop(script).await;
        insert(&db).await;
        let many = statements(&db).await;
        assert!(many < 100, "{many} statements: {script}");
        let distinct: i64 = db
            .query_scalar_one("SELECT count(DISTINCT n) FROM t", ())
            .await
            .unwrap();
        assert_eq!(distinct, SETS);
    }
}

#[tokio::test]
async fn table_that_could_tell_gets_single_statements() {
    let log = "CREATE TABLE log (n int8); \
               CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN INSERT INTO log SELECT count(*) FROM t; RETURN NULL; END $$;";
    let table = "CREATE TABLE t (n int8, name text);";
    let scripts = [
        format!("{table}{log} CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION note()"),
        format!(
            "{table}{log} CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()"
        ),
    ];
    for script in scripts {
        let db = shop(&script).await;
        for _ in 0..2 {
            insert(&db).await;
            assert_eq!(statements(&db).await, SETS, "{script}");
            let seen: Vec<i64> = db
                .query_scalar("SELECT n FROM log ORDER BY n", ())
                .await
                .unwrap();
            assert_eq!(seen, (1..=SETS).collect::<Vec<_>>());
            db.exec("DELETE FROM t; DELETE FROM log", ()).await.unwrap();
        }
    }
    let scripts = [
        "CREATE TABLE t (n int8, name text); ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE t (n int8, name text); CREATE TABLE u (n int8); \
         CREATE RULE r AS ON INSERT TO t DO ALSO INSERT INTO u VALUES (NEW.n)",
        "CREATE TABLE t (n int8, name text) PARTITION BY RANGE (n); \
         CREATE TABLE a PARTITION OF t FOR VALUES FROM (0) TO (10000)",
        "CREATE DOMAIN d AS int8; CREATE TABLE t (n d, name text)",
        "CREATE TABLE t (n int8 PRIMARY KEY, name text, p int8 REFERENCES t)",
    ];
    for script in scripts {
        let db = shop(script).await;
        insert(&db).await;
        assert_eq!(statements(&db).await, SETS, "{script}");
    }
}

#[tokio::test]
async fn default_that_reads_the_table_sees_earlier_sets() {
    let db = shop(
        "CREATE TABLE t (n int8, name text); \
         CREATE FUNCTION so_far() RETURNS int8 LANGUAGE sql STABLE AS 'SELECT count(*) FROM t'; \
         ALTER TABLE t ADD before int8 DEFAULT so_far()",
    )
    .await;
    insert(&db).await;
    let wrong: i64 = db
        .query_scalar_one("SELECT count(*) FROM t WHERE before <> n", ())
        .await
        .unwrap();
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn row_that_refers_to_a_later_one_fails_as_alone() {
    let db = shop("CREATE TABLE t (n int8 PRIMARY KEY, p int8 REFERENCES t)").await;
    let sets = (0..SETS).map(|n| (n, (n + 1 < SETS).then_some(n + 1)));
    let error = db
        .exec_many("INSERT INTO t VALUES (?, ?)", sets)
        .await
        .unwrap_err();
    assert!(error.is_foreign_key_violation(), "{error}");
    assert_eq!(error.set_index(), Some(0));
}

#[tokio::test]
async fn old_snapshot_gets_single_statements() {
    let db = shop("CREATE TABLE t (n int8, name text)").await;
    let options = db
        .transaction_options()
        .isolation(Isolation::RepeatableRead);
    options
        .run(async || {
            insert(&db).await;
            assert_eq!(statements(&db).await, SETS);
            Ok::<_, cenote::Error>(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn trigger_that_appears_later_is_noticed() {
    let db = shop("CREATE TABLE t (n int8, name text)").await;
    insert(&db).await;
    assert!(statements(&db).await < 100);
    db.exec(
        "DELETE FROM t; CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION f()",
        (),
    )
    .await
    .unwrap();
    insert(&db).await;
    assert_eq!(statements(&db).await, SETS);
}
