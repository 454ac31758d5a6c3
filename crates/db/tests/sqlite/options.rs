//! What the DSN and the options of the SQLite driver mean, on every connection.

use cenote::driver::{Credentials, Driver, Dsn, Options};
use cenote::sqlite::Sqlite;
use cenote::{FromValue, Kind, Value, Violation};

use crate::support::*;

#[test]
fn it_is_called_sqlite() {
    assert_eq!(Sqlite::new().name(), "sqlite");
    assert_eq!(Sqlite::new().aliases(), ["sqlite3"]);
    template("sqlite3::memory:");
}

#[test]
fn a_template_opens_nothing() {
    let file = TempDb::new();
    let template = template(&file.dsn());
    assert!(!std::path::Path::new(&file.path()).exists());
    assert_eq!(template.address(), file.path());
    template.check_poolable().unwrap();
}

#[tokio::test]
async fn a_file_is_opened_in_wal_and_with_foreign_keys() {
    let file = TempDb::new();
    let template = template(&file.dsn());
    for _ in 0..3 {
        let mut db = connect(&template).await;
        assert_eq!(one::<String>(&mut db, "PRAGMA journal_mode").await, "wal");
        assert_eq!(one::<i64>(&mut db, "PRAGMA foreign_keys").await, 1);
    }
}

#[tokio::test]
async fn kept_journal_mode_is_that_of_the_file() {
    for mode in ["truncate", "wal", "delete"] {
        let file = TempDb::new();
        connect(&template(&format!("{}?journal_mode={mode}", file.dsn()))).await;
        let mut db = connect(&template(&format!("{}?journal_mode=keep", file.dsn()))).await;
        // Only WAL is a property of the file.
        let kept = if mode == "wal" { "wal" } else { "delete" };
        assert_eq!(one::<String>(&mut db, "PRAGMA journal_mode").await, kept);
    }
}

#[tokio::test]
async fn every_option_reaches_every_connection() {
    let file = TempDb::new();
    let options = "journal_mode=truncate&synchronous=off&foreign_keys=no&cache_size=-500\
                   &mmap_size=1MiB&temp_store=memory&locking_mode=normal&pragma.secure_delete=1\
                   &PRAGMA.recursive_triggers=on&busy_timeout=250ms&mode=rwc&cache=private";
    let template = template(&format!("{}?{options}", file.dsn()));
    let mut connections = Vec::new();
    for _ in 0..3 {
        let mut db = connect(&template).await;
        for (pragma, expected) in [
            ("journal_mode", "truncate"),
            ("synchronous", "0"),
            ("foreign_keys", "0"),
            ("cache_size", "-500"),
            ("mmap_size", "1048576"),
            ("temp_store", "2"),
            ("locking_mode", "normal"),
            ("secure_delete", "1"),
            ("recursive_triggers", "1"),
        ] {
            let answer = exec(&mut db, &format!("PRAGMA {pragma}"))
                .await
                .rows
                .unwrap();
            let row = answer.into_rows().next().unwrap();
            let told = match row.get::<Value<'_>>(0).unwrap() {
                Value::Int(number) => number.to_string(),
                text => String::from_value(text).unwrap(),
            };
            assert_eq!(told, expected, "{pragma}");
        }
        connections.push(db);
    }
}

#[tokio::test]
async fn options_of_the_builder_count_more_than_those_of_the_dsn() {
    let file = TempDb::new();
    let mut options = Options::new();
    options.set("cache_size", "-700");
    options.set("pragma.secure_delete", "0");
    for dsn in [
        format!(
            "sqlite:{}?cache_size=-1&pragma.secure_delete=1",
            file.path()
        ),
        format!(
            "sqlite:file:{}?cache_size=-1&pragma.secure_delete=1",
            file.path()
        ),
    ] {
        let dsn: Dsn = dsn.parse().unwrap();
        let template = Sqlite::new().template(&dsn, &options).unwrap();
        let mut db = connect(&template).await;
        assert_eq!(one::<i64>(&mut db, "PRAGMA cache_size").await, -700);
        assert_eq!(one::<i64>(&mut db, "PRAGMA secure_delete").await, 0);
    }
}

#[test]
fn an_unknown_option_is_an_error_that_names_it_and_the_driver() {
    for dsn in [
        "sqlite:shop.db?colour=blue",
        "sqlite:file:shop.db?colour=blue",
        "sqlite:///shop.db?colour=blue",
    ] {
        let error = try_template(&Sqlite::new(), dsn).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(
            error.message().contains("sqlite has no option colour"),
            "{error}"
        );
    }
    let error = try_template(&Sqlite::new(), "sqlite:shop.db?bussy_timeout=1").unwrap_err();
    assert!(error.message().contains("busy_timeout"), "{error}");
}

#[test]
fn senseless_option_value_is_an_error_that_names_the_option() {
    for (option, wrong) in [
        ("mode", "readonly"),
        ("cache", "yes"),
        ("immutable", "maybe"),
        ("busy_timeout", "soon"),
        ("journal_mode", "waal"),
        ("synchronous", "9"),
        ("foreign_keys", "some"),
        ("cache_size", "big"),
        ("mmap_size", "-1"),
        ("temp_store", "disk"),
        ("locking_mode", "shared"),
        ("pragma.a%20b", "1"),
        ("pragma.", "1"),
    ] {
        let dsn = format!("sqlite:shop.db?{option}={wrong}");
        let error = try_template(&Sqlite::new(), &dsn).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let name = option.replace("%20", " ");
        assert!(error.message().contains(&name), "{error}");
    }
    for malformed in [
        "sqlite:file:shop.db?mode",
        "sqlite:file:a%zz",
        "sqlite:file:a%f",
    ] {
        let error = try_template(&Sqlite::new(), malformed).unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{malformed}");
    }
}

#[tokio::test]
async fn a_pragma_that_does_not_exist_is_an_error_that_names_it() {
    let template = template("sqlite::memory:?pragma.no_such_thing=1");
    let error = try_connect(&template).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("no_such_thing"), "{error}");
}

/// D-lite-s001a, D-lite-009.
#[test]
fn a_private_database_in_memory_cannot_be_pooled() {
    for private in [
        "sqlite::memory:",
        "sqlite:",
        "sqlite:file::memory:",
        "sqlite:file:?mode=memory",
        "sqlite:file:x?mode=memory",
        "sqlite:file::memory:?mode=memory",
        "sqlite:x?mode=memory",
        "sqlite:file:x?mode=memory&cache=private",
        // SQLite shares no database without a name.
        "sqlite:file:?mode=memory&cache=shared",
        "sqlite:?cache=shared",
        "sqlite:x?vfs=memdb",
    ] {
        let error = template(private).check_poolable().unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.message().contains("memory"), "{error}");
        assert!(error.message().contains("cache=shared"), "{error}");
        assert!(error.message().contains("unpooled"), "{error}");
    }
}

/// D-lite-s001b, D-lite-008.
#[tokio::test]
async fn a_shared_database_in_memory_can_be_pooled() {
    for shared in [
        "sqlite:file::memory:?cache=shared",
        "sqlite:file:pooled-1?mode=memory&cache=shared",
        "sqlite:file:pooled-2?cache=shared&mode=memory",
        "sqlite::memory:?cache=shared",
        "sqlite:pooled-3?mode=memory&cache=shared",
        "sqlite:/pooled-4?vfs=memdb",
        "sqlite:file:/pooled-5?vfs=memdb",
    ] {
        let template = template(shared);
        template.check_poolable().unwrap();
        let mut first = connect(&template).await;
        exec(&mut first, "CREATE TABLE t (a)").await;
        let mut second = connect(&template).await;
        exec(&mut second, "INSERT INTO t VALUES (1)").await;
        assert_eq!(
            one::<i64>(&mut first, "SELECT count(*) FROM t").await,
            1,
            "{shared}"
        );
        // Two of these names are one database: it must be gone before the next.
        first.close().await.unwrap();
        second.close().await.unwrap();
    }
    assert!(!std::path::Path::new("pooled-3").exists());
}

#[tokio::test]
async fn a_private_database_in_memory_is_there_for_its_one_connection() {
    for private in ["sqlite::memory:", "sqlite:", "sqlite:file:x?mode=memory"] {
        let template = template(private);
        let mut db = connect(&template).await;
        exec(&mut db, "CREATE TABLE t (a)").await;
        let mut other = connect(&template).await;
        let error = try_exec(&mut other, "SELECT * FROM t").await.unwrap_err();
        assert_eq!(error.violation(), Some(Violation::Undefined));
    }
}

#[tokio::test]
async fn a_shared_database_survives_while_there_is_no_connection() {
    for dsn in [shared_memory(), "sqlite:/survivor?vfs=memdb".into()] {
        let one_handle = template(&dsn);
        let mut db = connect(&one_handle).await;
        exec(&mut db, "CREATE TABLE t (a)").await;
        db.close().await.unwrap();
        let mut again = connect(&one_handle).await;
        assert_eq!(one::<i64>(&mut again, "SELECT count(*) FROM t").await, 0);
        again.close().await.unwrap();

        drop(one_handle);
        let mut gone = connect(&template(&dsn)).await;
        assert!(try_exec(&mut gone, "SELECT * FROM t").await.is_err());
    }
}

#[tokio::test]
async fn a_file_that_is_read_only_is_only_read() {
    let file = TempDb::new();
    let mut db = open(&format!("{}?journal_mode=delete", file.dsn())).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    db.close().await.unwrap();
    for dsn in [
        format!("sqlite:{}?mode=ro", file.path()),
        format!("sqlite:file:{}?mode=ro", file.path()),
        format!("sqlite:{}?immutable=1", file.path()),
        format!("sqlite:{}?mode=ro&journal_mode=wal", file.path()),
    ] {
        let mut db = open(&dsn).await;
        assert_eq!(
            one::<i64>(&mut db, "SELECT count(*) FROM t").await,
            0,
            "{dsn}"
        );
        let error = try_exec(&mut db, "INSERT INTO t VALUES (1)")
            .await
            .unwrap_err();
        assert_eq!(error.violation(), Some(Violation::Permission), "{error}");
        begin(&mut db).await;
        assert_eq!(
            one::<i64>(&mut db, "SELECT count(*) FROM t").await,
            0,
            "a transaction can be begun all the same"
        );
        db.commit().await.unwrap();
    }
}

#[tokio::test]
async fn where_queries_only_are_allowed_a_transaction_can_be_begun() {
    let mut db = open("sqlite::memory:?pragma.query_only=1").await;
    begin(&mut db).await;
    assert!(try_exec(&mut db, "CREATE TABLE t (a)").await.is_err());
    db.commit().await.unwrap();
}

#[tokio::test]
async fn wal_that_is_not_available_is_no_error() {
    for dsn in [
        shared_memory() + "&journal_mode=wal",
        "sqlite::memory:?journal_mode=wal".into(),
    ] {
        let mut db = open(&dsn).await;
        assert_eq!(
            one::<String>(&mut db, "PRAGMA journal_mode").await,
            "memory"
        );
    }
}

#[tokio::test]
async fn a_file_is_created_only_if_it_may_be() {
    let file = TempDb::new();
    for mode in ["ro", "rw"] {
        let template = template(&format!("{}?mode={mode}", file.dsn()));
        let error = try_connect(&template).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect);
        assert!(error.message().contains(&file.path()), "{error}");
        assert_eq!(error.code().map(|code| code & 0xff), Some(14), "{error:?}");
    }
    file.open().await;
    open(&format!("{}?mode=rw", file.dsn())).await;
}

#[tokio::test]
async fn what_is_no_database_cannot_be_opened() {
    let file = TempDb::new();
    std::fs::write(
        file.path(),
        "this is no database, however long it may be ".repeat(50),
    )
    .unwrap();
    for options in ["", "?mode=ro"] {
        let template = template(&format!("{}{options}", file.dsn()));
        let error = try_connect(&template).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect);
        assert!(error.message().contains("not a database"), "{error}");
        assert!(error.message().contains(&file.path()), "{error}");
    }
    let nowhere = template(&format!("sqlite:{}/x/y.db", file.path()));
    assert_eq!(
        try_connect(&nowhere).await.unwrap_err().kind(),
        Kind::Connect
    );
}

#[tokio::test]
async fn odd_names_of_files_are_taken_as_they_are() {
    let file = TempDb::new();
    for (name, dsn) in [
        ("50%.db", format!("sqlite:{}", file.file("50%.db"))),
        ("a#b.db", format!("sqlite:{}", file.file("a#b.db"))),
        ("a b.db", format!("sqlite:file:{}", file.file("a%20b.db"))),
        ("c?d.db", format!("sqlite://{}", file.file("c%3Fd.db"))),
    ] {
        let mut db = open(&dsn).await;
        exec(&mut db, "CREATE TABLE t (a)").await;
        assert!(std::path::Path::new(&file.file(name)).exists(), "{name}");
        assert_eq!(template(&dsn).address(), file.file(name));
        db.close().await.unwrap();
        let separator = if dsn.contains('?') { '&' } else { '?' };
        let mut fixed = open(&format!("{dsn}{separator}immutable=1")).await;
        assert_eq!(one::<i64>(&mut fixed, "SELECT count(*) FROM t").await, 0);
    }
}

#[tokio::test]
async fn users_and_passwords_mean_nothing_here() {
    use cenote::driver::ConnectSettings;
    let template = template("sqlite::memory:");
    let settings = ConnectSettings::new(0);
    let credentials = Credentials::new("ada", "secret");
    template.connect(credentials, &settings).await.unwrap();
    assert!(!format!("{template:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_can_open_a_new_file_at_once() {
    for _ in 0..40 {
        let file = TempDb::new();
        let template = template(&file.dsn());
        let mut tasks = Vec::new();
        for _ in 0..16 {
            let template = template.clone();
            #[expect(clippy::disallowed_methods, reason = "there is no pool in this test")]
            tasks.push(tokio::spawn(async move {
                let mut db = connect(&template).await;
                one::<String>(&mut db, "PRAGMA journal_mode").await
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), "wal");
        }
    }
}

#[tokio::test]
async fn the_size_of_pages_can_be_set_before_the_file_is_made() {
    let file = TempDb::new();
    let mut db = open(&format!("{}?pragma.page_size=8192", file.dsn())).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    assert_eq!(one::<i64>(&mut db, "PRAGMA page_size").await, 8192);
    assert_eq!(one::<String>(&mut db, "PRAGMA journal_mode").await, "wal");
}
