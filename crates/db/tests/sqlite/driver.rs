//! The SQLite driver behind the contract of a connection.

use cenote::driver::{Begin, Param, Request, Reset, Status};
use cenote::{Date, DateTime, Kind, Time, Value, Violation};

use crate::support::*;

#[tokio::test]
async fn a_statement_gives_its_rows_with_their_columns() {
    let mut db = memory().await;
    let outcome = exec(&mut db, "SELECT 1 AS a, 'two' AS b, NULL AS c").await;
    let batch = outcome.rows.unwrap();
    let names: Vec<_> = batch
        .columns()
        .as_slice()
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(batch.len(), 1);
    let row = batch.into_rows().next().unwrap();
    assert_eq!(row.get::<i64>("a").unwrap(), 1);
    assert_eq!(row.get::<String>("b").unwrap(), "two");
    assert_eq!(row.get::<Option<i64>>("c").unwrap(), None);
    assert_eq!((outcome.rows_affected, outcome.last_insert_id), (0, None));
}

#[tokio::test]
async fn without_rows_there_are_still_columns() {
    let mut db = memory().await;
    let outcome = exec(&mut db, "SELECT 1 AS a WHERE 0").await;
    let batch = outcome.rows.unwrap();
    assert!(batch.is_empty());
    assert_eq!(batch.columns().as_slice()[0].name, "a");
}

#[tokio::test]
async fn rows_that_are_not_wanted_are_not_collected() {
    let mut db = memory().await;
    let mut request = Request::new("SELECT 1", &[]);
    request.rows = false;
    assert!(db.run(request).await.unwrap().rows.is_none());
}

#[tokio::test]
async fn every_neutral_value_goes_in_and_comes_back() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (n INTEGER PRIMARY KEY, v)").await;
    let date = Date::new(2024, 2, 29).unwrap();
    let time = Time::new(9, 5, 0, 250_000_000).unwrap();
    let moment = DateTime::new(date, time);
    let values = [
        (Value::Null, Value::Null),
        (Value::Bool(true), Value::Int(1)),
        (Value::Int(i64::MIN), Value::Int(i64::MIN)),
        (Value::Int(i64::MAX), Value::Int(i64::MAX)),
        (Value::UInt(7), Value::Int(7)),
        (Value::Float(-0.5), Value::Float(-0.5)),
        (Value::Float(f64::INFINITY), Value::Float(f64::INFINITY)),
        (Value::Decimal("12.50".into()), Value::Text("12.50".into())),
        (
            Value::Text("grüß\0 dich".into()),
            Value::Text("grüß\0 dich".into()),
        ),
        (Value::Text("".into()), Value::Text("".into())),
        (
            Value::Bytes(vec![0, 255].into()),
            Value::Bytes(vec![0, 255].into()),
        ),
        (Value::Bytes(vec![].into()), Value::Bytes(vec![].into())),
        (Value::Date(date), Value::Text("2024-02-29".into())),
        (Value::Time(time), Value::Text("09:05:00.250".into())),
        (
            Value::DateTime(moment),
            Value::Text("2024-02-29 09:05:00.250".into()),
        ),
        (
            Value::Timestamp(moment),
            Value::Text("2024-02-29 09:05:00.250".into()),
        ),
        (
            Value::Uuid([0xab; 16]),
            Value::Text("abababab-abab-abab-abab-abababababab".into()),
        ),
        (Value::Json("[1]".into()), Value::Text("[1]".into())),
    ];
    for (given, expected) in values {
        let set = params([given.clone()]);
        let sql = "INSERT INTO t (v) VALUES (?) RETURNING v";
        let outcome = db.run(Request::new(sql, &set)).await.unwrap();
        let row = outcome.rows.unwrap().into_rows().next().unwrap();
        assert_eq!(row.get::<Value<'_>>(0).unwrap(), expected, "{given:?}");
    }
    let row = exec(
        &mut db,
        "SELECT v FROM t WHERE typeof(v) = 'text' AND v LIKE '2024%:%' LIMIT 1",
    );
    let row = row.await.rows.unwrap().into_rows().next().unwrap();
    assert_eq!(row.get::<DateTime>(0).unwrap(), moment);
}

#[tokio::test]
async fn a_datetime_can_be_compared_with_sqlites_own() {
    let mut db = memory().await;
    let moment: DateTime = "2024-02-29T09:05:00".parse().unwrap();
    let set = params([Value::Timestamp(moment)]);
    let sql = "SELECT datetime('2024-02-29 09:04:59', '+1 second') = ?";
    let outcome = db.run(Request::new(sql, &set)).await.unwrap();
    assert!(first::<bool>(outcome.rows.unwrap()));
}

#[tokio::test]
async fn numbered_placeholders_can_be_used_twice() {
    let mut db = memory().await;
    let set = params([Value::Int(3), Value::Int(4)]);
    let sql = "SELECT ?1 * ?1 + ?2";
    let outcome = db.run(Request::new(sql, &set)).await.unwrap();
    assert_eq!(first::<i64>(outcome.rows.unwrap()), 13);
}

#[tokio::test]
async fn wrong_parameter_count_is_an_error_before_anything_runs() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a, b)").await;
    for given in [0, 1, 3] {
        let set = vec![Param::Value(Value::Int(1)); given];
        let request = Request::new("INSERT INTO t VALUES (?, ?)", &set);
        let error = db.run(request).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters);
        assert!(error.message().contains("takes 2"), "{error}");
    }
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn affected_rows_belong_only_to_the_statement_that_changed_them() {
    let mut db = memory().await;
    assert_eq!(
        exec(&mut db, "CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
            .await
            .rows_affected,
        0
    );
    let inserted = exec(&mut db, "INSERT INTO t (a) VALUES (1), (2), (3)").await;
    assert_eq!(
        (inserted.rows_affected, inserted.last_insert_id),
        (3, Some(3))
    );
    let updated = exec(&mut db, "UPDATE t SET a = 9 WHERE id > 1").await;
    assert_eq!((updated.rows_affected, updated.last_insert_id), (2, None));
    let none = exec(&mut db, "UPDATE t SET a = 9 WHERE id > 100").await;
    assert_eq!((none.rows_affected, none.last_insert_id), (0, None));
    let selected = exec(&mut db, "SELECT * FROM t").await;
    assert_eq!((selected.rows_affected, selected.last_insert_id), (0, None));
    let created = exec(&mut db, "CREATE TABLE u AS SELECT * FROM t").await;
    assert_eq!((created.rows_affected, created.last_insert_id), (0, None));
    let with = exec(
        &mut db,
        "WITH x AS (SELECT 1) DELETE FROM t WHERE id IN (SELECT * FROM x)",
    )
    .await;
    assert_eq!((with.rows_affected, with.last_insert_id), (1, None));
    let dropped = exec(&mut db, "DROP TABLE t").await;
    assert_eq!((dropped.rows_affected, dropped.last_insert_id), (0, None));
}

#[tokio::test]
async fn dropping_a_table_with_foreign_keys_changes_no_rows() {
    let mut db = memory().await;
    exec_script(
        &mut db,
        "CREATE TABLE p (id INTEGER PRIMARY KEY);
         CREATE TABLE c (p REFERENCES p);
         INSERT INTO p VALUES (1), (2)",
    )
    .await;
    // SQLite deletes its rows first, and counts them.
    assert_eq!(exec(&mut db, "DROP TABLE p").await.rows_affected, 0);
}

#[tokio::test]
async fn the_last_insert_id_is_that_of_this_statement() {
    let mut db = memory().await;
    exec_script(
        &mut db,
        "CREATE TABLE a (id INTEGER PRIMARY KEY, x UNIQUE, n DEFAULT 0);
         CREATE TABLE b (id INTEGER PRIMARY KEY);
         CREATE TABLE w (x PRIMARY KEY) WITHOUT ROWID",
    )
    .await;
    let insert = exec(&mut db, "INSERT INTO a (x) VALUES ('one')").await;
    assert_eq!(insert.last_insert_id, Some(1));
    // The same number in another table is as good.
    let other = exec(&mut db, "INSERT INTO b DEFAULT VALUES").await;
    assert_eq!(other.last_insert_id, Some(1));
    let ignored = exec(&mut db, "INSERT OR IGNORE INTO a (x) VALUES ('one')").await;
    assert_eq!((ignored.rows_affected, ignored.last_insert_id), (0, None));
    let upsert = "INSERT INTO a (x) VALUES ('one') ON CONFLICT (x) DO UPDATE SET n = n + 1";
    let updated = exec(&mut db, upsert).await;
    assert_eq!((updated.rows_affected, updated.last_insert_id), (1, None));
    let without = exec(&mut db, "INSERT INTO w VALUES ('one')").await;
    assert_eq!((without.rows_affected, without.last_insert_id), (1, None));
    let replaced = exec(&mut db, "REPLACE INTO a (x) VALUES ('one')").await;
    assert_eq!(replaced.last_insert_id, Some(2));
    let returning = exec(&mut db, "INSERT INTO a (x) VALUES ('two') RETURNING id").await;
    assert_eq!(returning.last_insert_id, Some(3));
    assert_eq!(first::<i64>(returning.rows.unwrap()), 3);
}

#[tokio::test]
async fn a_script_runs_to_its_end_and_its_last_result_counts() {
    let mut db = memory().await;
    let outcome = exec_script(
        &mut db,
        "CREATE TABLE t (a); -- a comment; with a semicolon
         INSERT INTO t VALUES (1), (';');
         SELECT count(*) FROM t; ",
    )
    .await;
    assert_eq!(first::<i64>(outcome.rows.unwrap()), 2);
    let outcome = exec_script(&mut db, "SELECT 1; INSERT INTO t VALUES (3)").await;
    assert_eq!(
        (outcome.rows_affected, outcome.last_insert_id),
        (1, Some(3))
    );
    let nothing = exec_script(&mut db, " -- nothing at all").await;
    assert!(nothing.rows.is_none());
}

#[tokio::test]
async fn a_script_stops_at_its_first_error() {
    let mut db = memory().await;
    let sql = "CREATE TABLE t (a); SELECT * FROM nowhere; INSERT INTO t VALUES (1)";
    let error = db.run(script(sql)).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Undefined));
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn a_script_takes_no_parameters() {
    let mut db = memory().await;
    let set = params([Value::Int(1)]);
    let mut request = Request::new("SELECT 1; SELECT 2", &set);
    request.script = true;
    assert_eq!(db.run(request).await.unwrap_err().kind(), Kind::Parameters);
    let placeholder = db.run(script("SELECT 1; SELECT ?")).await.unwrap_err();
    assert_eq!(placeholder.kind(), Kind::Parameters);
}

#[tokio::test]
async fn several_statements_are_refused_where_one_was_announced() {
    let mut db = memory().await;
    let error = try_exec(&mut db, "SELECT 1; SELECT 2").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Database);
    let empty = try_exec(&mut db, " -- nothing").await.unwrap_err();
    assert!(empty.message().contains("empty"), "{empty}");
    assert_eq!(one::<i64>(&mut db, "SELECT 1; -- only one").await, 1);
}

#[tokio::test]
async fn an_error_has_sqlites_words_and_numbers() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a UNIQUE)").await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    let error = try_exec(&mut db, "INSERT INTO t VALUES (1)")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Database);
    assert!(error.is_unique_violation());
    assert_eq!(error.message(), "UNIQUE constraint failed: t.a");
    assert_eq!(
        (error.sql_state(), error.code()),
        (Some("23000"), Some(2067))
    );
    let syntax = try_exec(&mut db, "SELEC 1").await.unwrap_err();
    assert_eq!(
        (syntax.sql_state(), syntax.violation()),
        (Some("HY000"), Some(Violation::Syntax))
    );
    assert!(!db.is_broken());
}

#[tokio::test]
async fn a_batch_is_all_or_nothing_outside_a_transaction() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    let sql = "INSERT INTO t VALUES (?)";
    let set = |n| vec![Param::Value(Value::Int(n))];
    let outcome = db.run_batch(sql, &[set(1), set(2), set(7)]).await.unwrap();
    assert_eq!(
        (outcome.rows_affected, outcome.last_insert_id),
        (3, Some(7))
    );
    let error = db
        .run_batch(sql, &[set(8), set(7), set(9)])
        .await
        .unwrap_err();
    assert!(error.is_unique_violation());
    assert_eq!(error.set_index(), Some(1), "{error}");
    assert_eq!(db.status(), Status::Idle);
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 3);
    assert_eq!(db.run_batch(sql, &[]).await.unwrap().rows_affected, 0);
}

#[tokio::test]
async fn a_batch_in_a_transaction_is_part_of_it() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (id INTEGER PRIMARY KEY)").await;
    begin(&mut db).await;
    let sql = "INSERT INTO t VALUES (?)";
    let set = |n| vec![Param::Value(Value::Int(n))];
    db.run_batch(sql, &[set(1), set(2)]).await.unwrap();
    assert_eq!(db.status(), Status::InTransaction);
    assert!(db.run_batch(sql, &[set(3), set(1)]).await.is_err());
    assert_eq!(db.status(), Status::InTransaction);
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 3);
    db.rollback().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn set_with_a_wrong_parameter_count_fails_before_any_runs() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    let good = vec![Param::Value(Value::Int(1))];
    let sets = [good.clone(), good, vec![]];
    let error = db
        .run_batch("INSERT INTO t VALUES (?)", &sets)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    assert_eq!(error.set_index(), Some(2), "{error}");
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn preparing_returns_parameters_and_columns() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a INTEGER, b TEXT)").await;
    let prepared = db
        .prepare("SELECT a, b FROM t WHERE a > ? AND b = ?")
        .await
        .unwrap();
    assert_eq!(prepared.params, 2);
    let names: Vec<_> = prepared
        .columns
        .as_slice()
        .iter()
        .map(|c| &c.name)
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!(
        db.prepare("INSERT INTO t VALUES (1, 2)")
            .await
            .unwrap()
            .columns
            .is_empty()
    );
    assert!(db.prepare("SELECT nowhere").await.is_err());
}

#[tokio::test]
async fn a_cached_statement_is_compiled_once() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let before = sqlite(&mut db).compiled_statements();
    db.prepare("SELECT a FROM t WHERE a = 1").await.unwrap();
    for _ in 0..5 {
        exec(&mut db, "SELECT a FROM t WHERE a = 1").await;
    }
    assert_eq!(sqlite(&mut db).compiled_statements(), before + 1);
    let mut request = Request::new("SELECT a FROM t WHERE a = 2", &[]);
    request.cache = false;
    for _ in 0..5 {
        db.run(request).await.unwrap();
    }
    assert_eq!(sqlite(&mut db).compiled_statements(), before + 6);
}

#[tokio::test]
async fn the_cache_keeps_the_configured_number_of_statements() {
    use cenote::driver::{ConnectSettings, Credentials};
    for (capacity, compiled) in [(0, 6), (1, 6), (2, 2)] {
        let template = template("sqlite::memory:");
        let settings = ConnectSettings::new(capacity);
        let connecting = template.connect(Credentials::default(), &settings);
        let mut db = connecting.await.unwrap();
        for _ in 0..3 {
            exec(&mut db, "SELECT 1").await;
            exec(&mut db, "SELECT 2").await;
        }
        assert_eq!(
            sqlite(&mut db).compiled_statements(),
            compiled,
            "{capacity}"
        );
    }
}

#[tokio::test]
async fn a_cached_statement_follows_a_changed_schema() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    let width = |outcome: cenote::driver::Outcome| outcome.rows.unwrap().columns().len();
    assert_eq!(width(exec(&mut db, "SELECT * FROM t").await), 1);
    exec(&mut db, "ALTER TABLE t ADD COLUMN b DEFAULT 2").await;
    assert_eq!(width(exec(&mut db, "SELECT * FROM t").await), 2);
    exec(&mut db, "ALTER TABLE t ADD COLUMN c").await;
    let columns = db
        .start_stream(Request::new("SELECT * FROM t", &[]))
        .await
        .unwrap();
    assert_eq!(columns.len(), 3);
}

#[tokio::test]
async fn a_session_cannot_be_reset_only_replaced() {
    let file = TempDb::new();
    for dsn in [file.dsn(), shared_memory()] {
        let mut db = open(&dsn).await;
        assert_eq!(db.reset().await.unwrap(), Reset::Replace);
        db.ping().await.unwrap();
    }
}

#[tokio::test]
async fn session_of_a_private_database_resets_and_the_database_stays() {
    let file = TempDb::new();
    let options = "cache_size=-77&busy_timeout=0&pragma.case_sensitive_like=1";
    let mut db = open(&format!("sqlite::memory:?{options}")).await;
    let like = "SELECT 'a' LIKE 'A'";
    exec_script(
        &mut db,
        "CREATE TABLE t (a); INSERT INTO t VALUES (1); CREATE TABLE sqlitely (a)",
    )
    .await;
    exec_script(
        &mut db,
        &format!(
            "CREATE TEMP TABLE parent (id PRIMARY KEY); INSERT INTO parent VALUES (1);
             CREATE TEMP TABLE \"odd \"\" one\" (p REFERENCES parent); INSERT INTO \"odd \"\" one\" VALUES (1);
             CREATE TEMP TABLE sqlitely (id INTEGER PRIMARY KEY AUTOINCREMENT);
             CREATE TEMP TABLE t (a);
             CREATE VIRTUAL TABLE temp.words USING fts5(a);
             CREATE TEMP VIEW v AS SELECT 1;
             CREATE TEMP TRIGGER tr AFTER INSERT ON main.t BEGIN SELECT 1; END;
             ATTACH '{}' AS \"an \"\" other\";
             PRAGMA cache_size = 5; PRAGMA recursive_triggers = 1; PRAGMA foreign_keys = 0;
             PRAGMA busy_timeout = 1234; PRAGMA case_sensitive_like = 0; PRAGMA query_only = 1",
            file.path()
        ),
    )
    .await;
    assert!(one::<bool>(&mut db, like).await);
    assert_eq!(db.reset().await.unwrap(), Reset::Done);

    let left = "SELECT count(*) FROM temp.sqlite_schema WHERE name NOT LIKE 'sqlite_sequence'";
    assert_eq!(one::<i64>(&mut db, left).await, 0);
    let databases = "SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp')";
    assert_eq!(one::<i64>(&mut db, databases).await, 0);
    assert_eq!(one::<i64>(&mut db, "PRAGMA cache_size").await, -77);
    assert_eq!(one::<i64>(&mut db, "PRAGMA recursive_triggers").await, 0);
    assert_eq!(one::<i64>(&mut db, "PRAGMA foreign_keys").await, 1);
    assert_eq!(one::<i64>(&mut db, "PRAGMA query_only").await, 0);
    assert_eq!(one::<i64>(&mut db, "PRAGMA busy_timeout").await, 0);
    assert!(!one::<bool>(&mut db, like).await);
    exec(&mut db, "INSERT INTO t VALUES (2)").await;
    assert_eq!(one::<i64>(&mut db, "SELECT sum(a) FROM t").await, 3);
    assert_eq!(
        one::<i64>(&mut db, "SELECT count(*) FROM sqlitely").await,
        0
    );
    assert_eq!(db.reset().await.unwrap(), Reset::Done, "and again");
}

#[tokio::test]
async fn a_setting_is_a_pragma() {
    let mut db = memory().await;
    db.set("cache_size", &Value::Int(-123)).await.unwrap();
    assert_eq!(one::<i64>(&mut db, "PRAGMA cache_size").await, -123);
    db.set("foreign_keys", &Value::Bool(false)).await.unwrap();
    assert_eq!(one::<i64>(&mut db, "PRAGMA foreign_keys").await, 0);
    db.set("temp_store", &Value::Text("memory".into()))
        .await
        .unwrap();
    assert_eq!(one::<i64>(&mut db, "PRAGMA temp_store").await, 2);
    db.set("busy_timeout", &Value::Int(10)).await.unwrap();
}

#[tokio::test]
async fn a_setting_that_is_no_pragma_is_an_error_that_names_it() {
    let mut db = memory().await;
    for wrong in ["cache_sice", "cache_size = 1; DROP TABLE t", "", "1x"] {
        let error = db.set(wrong, &Value::Int(1)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.message().contains(wrong), "{error}");
    }
    let null = db.set("cache_size", &Value::Null).await.unwrap_err();
    assert_eq!(null.kind(), Kind::Type);
}

#[tokio::test]
async fn a_set_busy_timeout_holds() {
    let file = TempDb::new();
    let mut first = file.open().await;
    let mut second = file.open().await;
    second.set("busy_timeout", &Value::Int(0)).await.unwrap();
    begin(&mut first).await;
    let error = second
        .begin_with(&Begin::default(), None)
        .await
        .unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked));
}

#[tokio::test]
async fn a_damaged_database_breaks_the_connection_for_ever() {
    let file = TempDb::new();
    let mut db = open(&format!("{}?journal_mode=delete", file.dsn())).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    exec(&mut db, "CREATE TABLE u (a)").await;
    assert!(!db.is_broken());
    exec_script(
        &mut db,
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET rootpage = 999 WHERE name = 't';
         PRAGMA writable_schema = RESET",
    )
    .await;
    let error = try_exec(&mut db, "SELECT * FROM t").await.unwrap_err();
    assert_eq!(error.code().map(|code| code & 0xff), Some(11), "{error}");
    assert!(db.is_broken());
    assert_eq!(one::<i64>(&mut db, "SELECT 1").await, 1);
    assert!(db.is_broken());
}

#[tokio::test]
async fn closing_closes_and_ends_the_thread() {
    let file = TempDb::new();
    let mut db = file.open().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    let thread = sqlite(&mut db).take_thread().unwrap();
    db.close().await.unwrap();
    thread.join().unwrap();
    // The last connection has taken the log with it.
    assert!(!std::path::Path::new(&file.file("test.db-wal")).exists());
    let mut again = file.open().await;
    assert_eq!(one::<i64>(&mut again, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn dropping_closes_and_ends_the_thread() {
    let file = TempDb::new();
    let mut db = file.open().await;
    begin(&mut db).await;
    let thread = sqlite(&mut db).take_thread().unwrap();
    drop(db);
    thread.join().unwrap();
    let mut again = open(&format!("{}?busy_timeout=0", file.dsn())).await;
    begin(&mut again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_work_on_a_runtime_with_several_threads() {
    let file = TempDb::new();
    let template = template(&file.dsn());
    let mut db = connect(&template).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let mut db = connect(&template).await;
        #[expect(clippy::disallowed_methods, reason = "there is no pool in this test")]
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                begin(&mut db).await;
                let set = params([Value::Int(n)]);
                let request = Request::new("INSERT INTO t VALUES (?)", &set);
                db.run(request).await.unwrap();
                db.commit().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 160);
}

#[test]
fn no_executor_is_needed() {
    let count = block_on(async {
        let mut db = memory().await;
        exec(&mut db, "CREATE TABLE t (a)").await;
        exec(&mut db, "INSERT INTO t VALUES (1), (2)").await;
        let count = one::<i64>(&mut db, "SELECT count(*) FROM t").await;
        db.close().await.unwrap();
        count
    });
    assert_eq!(count, 2);
}
