//! `cenote check`.

use serde_json::Value;

use crate::process::{Folder, with_db};

/// Checks a database, and returns the exit code and the JSON.
fn checked(dsn: &str) -> (Option<i32>, Value) {
    let run = Folder::new().run(&["check", "--json", dsn]);
    let json = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
    (run.code, json)
}

#[test]
fn a_sqlite_file_is_described_and_not_changed() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    with_db(&format!("{dsn}?journal_mode=delete"), async |db| {
        db.exec("CREATE TABLE a (n)", ()).await
    });
    let file = folder.path().join("theirs.db");
    let before = std::fs::read(&file).unwrap();
    let run = folder.run(&["check", &dsn]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
    for said in [
        "server      SQLite 3.",
        "theirs.db",
        "journal_mode  delete",
        "synchronous   2 (full)",
        "busy_timeout  30s",
        "ms median of 21",
        "note        journal_mode is not wal",
    ] {
        assert!(run.out.contains(said), "{said}: {}", run.out);
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let (code, json) = checked(&dsn);
    assert_eq!(code, Some(0), "{json}");
    assert_eq!(json["settings"]["journal_mode"], "delete", "{json}");
    assert!(
        json["latency_ms"]["median"].as_f64().unwrap() > 0.0,
        "{json}"
    );
    assert_eq!(json["error"], Value::Null);
}

#[test]
fn checked_wal_file_has_nothing_beside_it() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    with_db(&dsn, async |db| {
        db.exec("CREATE TABLE a (n)", ()).await?;
        db.close().await
    });
    let file = folder.path().join("theirs.db");
    let before = std::fs::read(&file).unwrap();
    assert_eq!(folder.run(&["check", &dsn]).code, Some(0));
    assert!(std::fs::read(&file).unwrap() == before);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_file_that_is_not_there_is_not_created() {
    let folder = Folder::new();
    let run = folder.run(&["check", &folder.dsn()]);
    assert!(run.one_line(3).contains("theirs.db"), "{run:?}");
    assert!(!folder.path().join("theirs.db").exists());
}

#[test]
fn a_wrong_dsn_is_wrong_usage() {
    for dsn in ["nonsense", "oracle:x", "sqlite:x.db?colour=red"] {
        let (code, json) = checked(dsn);
        assert_eq!(code, Some(2), "{json}");
        assert_eq!(json["error"]["cause"], "usage", "{json}");
    }
}

#[cfg(not(feature = "postgres"))]
#[test]
fn a_missing_driver_names_the_command_that_has_it() {
    let folder = Folder::new();
    for args in [
        &["check", "postgres://localhost/x"][..],
        &["run", "--dsn", "postgres://localhost/x"],
        &["migrate", "--dsn", "postgres://localhost/x", "dir"],
    ] {
        let run = folder.run(args);
        let line = run.one_line(3);
        assert!(
            line.contains("cargo run --release -p cenote-cli --features postgres"),
            "{line}"
        );
    }
}

/// What a script says that has started a server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run ci/test.sh, or \
             ci/postgres.sh run -- ci/mariadb.sh run -- cargo test …"
        )
    })
}

/// Each way to fail has an exit code and a cause of its own.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn assert_causes(dsn: &str, driver: &str, tls: &str) {
    let wrong_password = dsn.replace("cenote-secret", "wrong");
    let wrong_database = dsn.replace("dbname=cenote", "dbname=nowhere");
    let stranger = format!("{dsn};sslmode=verify-full;sslrootcert={tls}/stranger.crt");
    let refused = format!("{driver}:host=127.0.0.1;port=1;user=a;dbname=b");
    let unknown = format!("{driver}:host=no-such-host.invalid;user=a;dbname=b");
    for (dsn, code, cause) in [
        (wrong_password, 5, "login"),
        (wrong_database, 5, "login"),
        (stranger, 6, "tls"),
        (refused, 3, "unreachable"),
        (unknown, 3, "unreachable"),
    ] {
        let (ended, json) = checked(&dsn);
        assert_eq!(json["error"]["cause"], cause, "{dsn}: {json}");
        assert_eq!(ended, Some(code), "{dsn}: {json}");
        let line = Folder::new().run(&["check", &dsn]);
        let line = line.one_line(code);
        assert!(!line.contains("cenote-secret"), "{line}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_is_described_with_login_and_tls() {
    let (dsn, tls) = (
        variable("CENOTE_TEST_POSTGRES"),
        variable("CENOTE_TEST_POSTGRES_TLS"),
    );
    for (options, verified) in [
        ("sslmode=require", "nothing"),
        ("sslmode=verify-ca;sslrootcert=ROOT", "certificate"),
        ("sslmode=verify-full;sslrootcert=ROOT", "host"),
    ] {
        let options = options.replace("ROOT", &format!("{tls}/ca.crt"));
        let (code, json) = checked(&format!("{dsn};{options}"));
        assert_eq!(code, Some(0), "{json}");
        assert_eq!(json["tls"]["verified"], verified, "{json}");
        assert_eq!(json["tls"]["protocol"], "TLSv1.3", "{json}");
        assert_eq!(json["user"], "cenote", "{json}");
        assert_eq!(json["name"], "cenote", "{json}");
        assert_eq!(json["settings"]["max_connections"], "100", "{json}");
        assert!(
            json["server"].as_str().unwrap().starts_with("PostgreSQL "),
            "{json}"
        );
    }
    let (_, plain) = checked(&format!("{dsn};sslmode=disable"));
    assert_eq!(plain["tls"], Value::Null, "{plain}");
    assert_causes(&dsn, "pgsql", &tls);
}

#[cfg(feature = "mysql")]
#[test]
fn mysql_is_described_with_login_and_tls() {
    let (dsn, tls) = (
        variable("CENOTE_TEST_MARIADB"),
        variable("CENOTE_TEST_MARIADB_TLS"),
    );
    let by_name = dsn.replace("127.0.0.1", "localhost");
    let verified = format!("{by_name};sslmode=verify-full;sslrootcert={tls}/ca.crt");
    for (dsn, verified) in [
        (format!("{dsn};sslmode=require"), "nothing"),
        (verified, "host"),
    ] {
        let (code, json) = checked(&dsn);
        assert_eq!(code, Some(0), "{json}");
        assert_eq!(json["tls"]["verified"], verified, "{json}");
        assert_eq!(json["tls"]["protocol"], "TLSv1.3", "{json}");
        assert!(
            json["user"].as_str().unwrap().starts_with("cenote@"),
            "{json}"
        );
        assert!(json["settings"]["wait_timeout"].is_string(), "{json}");
        let mode = json["settings"]["sql_mode"].as_str().unwrap();
        assert!(mode.contains("STRICT_TRANS_TABLES"), "{json}");
    }
    assert_causes(&dsn, "mysql", &tls);
}
