//! `cenote size`.

use std::path::PathBuf;

use serde_json::Value;

use crate::process::{Ended, Folder, with_db};

/// A file with a table, and its DSN.
fn shop(folder: &Folder, options: &str) -> String {
    let dsn = folder.dsn();
    with_db(&format!("{dsn}{options}"), async |db| {
        db.exec(
            "CREATE TABLE product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)",
            (),
        )
        .await?;
        db.exec("INSERT INTO product VALUES (1, 5), (2, 5)", ())
            .await?;
        // Its files beside the database go with it.
        db.close().await
    });
    dsn
}

fn workload(folder: &Folder, text: &str) -> String {
    let file = folder.path().join("shop.work");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

const READS: &str = "param id = 1 .. 2\nstatement\n  SELECT stock FROM product WHERE id = :id";

fn files(folder: &Folder) -> Vec<PathBuf> {
    let entries = folder.path().read_dir().unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn reads_leave_a_sqlite_file_as_it_was() {
    for options in ["", "?journal_mode=delete"] {
        let folder = Folder::new();
        let dsn = shop(&folder, options);
        let file = workload(&folder, READS);
        let bytes = || std::fs::read(folder.path().join("theirs.db")).unwrap();
        let (before, names) = (bytes(), files(&folder));
        let args = [
            "size",
            "--dsn",
            &dsn,
            "--workload",
            &file,
            "--seconds",
            "3",
            "--json",
        ];
        let run = folder.run(&args);
        assert!(
            run.err.is_empty() && run.code.is_some_and(|code| code <= 1),
            "{run:?}"
        );
        let json: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(json["read_only"], true, "{json}");
        assert!(
            json["recommendation"]["max"].as_u64().unwrap() >= 1,
            "{json}"
        );
        let first = &json["sizes"][0];
        assert_eq!(first["size"], 1, "{json}");
        assert!(first["throughput"].as_f64().unwrap() > 1.0, "{json}");
        assert!(first["wait_ms"]["p99"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!(first["activity"], Value::Null, "{json}");
        assert_eq!(json["ok"], run.code == Some(0), "{json}");
        assert_eq!(files(&folder), names);
        assert!(bytes() == before, "{options} changed");
    }
}

#[test]
fn bank_leaves_neither_tables_nor_temporary_files() {
    let folder = Folder::new();
    let temporary = folder.run(&["size", "--seconds", "2"]);
    assert!(temporary.out.contains("recommended  "), "{temporary:?}");
    assert!(files(&folder).is_empty());
    let dsn = shop(&folder, "");
    let run = folder.run(&["size", "--dsn", &dsn, "--seconds", "2"]);
    assert!(run.out.contains("theirs.db"), "{run:?}");
    let tables: Vec<String> = with_db(&dsn, async |db| {
        db.query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'", ())
            .await
    });
    assert_eq!(tables, ["product"]);
}

#[test]
fn report_of_a_measurement_stands_alone() {
    let folder = Folder::new();
    let dsn = shop(&folder, "");
    let file = workload(&folder, READS);
    let page = folder.path().join("out.html").display().to_string();
    let args = [
        "size",
        "--dsn",
        &dsn,
        "--workload",
        &file,
        "--report",
        &page,
    ];
    let run = folder.run(&[&args[..], &["--seconds", "2", "--instances", "2"]].concat());
    assert!(run.out.contains("for each of 2 instances"), "{run:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 2);
    for said in ["Throughput", "knee: ", "CENOTE_MAX=", "unknown"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    for elsewhere in ["<script", "http://", "https://", "@import", "NaN", "inf"] {
        assert!(!page.contains(elsewhere), "{elsewhere}: {page}");
    }
    let lost = folder.run(&[
        "size",
        "--seconds",
        "0.5",
        "--report",
        "/no/such/folder/out.html",
    ]);
    assert_eq!(lost.code, Some(4), "{lost:?}");
    assert!(lost.err.contains("/no/such/folder/out.html"), "{lost:?}");
}

#[test]
fn wrong_workload_is_one_line_with_its_place() {
    let folder = Folder::new();
    let dsn = shop(&folder, "");
    for (text, says) in [
        ("", "shop.work: it has no statement"),
        ("SELECT 1", "shop.work:1: SQL is indented"),
        ("statement\n  SELECT :a", "shop.work:2: :a has no values"),
        (
            "statement\n  SELECT * FROM missing",
            "shop.work:2: the statement fails: no such table",
        ),
        (
            "statement\n  UPDATE product SET stock = 1",
            "shop.work:2: the statement writes; add --allow-writes",
        ),
    ] {
        let file = workload(&folder, text);
        let run = folder.run(&["size", "--dsn", &dsn, "--workload", &file]);
        let line = run.one_line(2);
        assert!(line.contains(says), "{text}: {line}");
    }
    let missing = folder.run(&["size", "--dsn", &dsn, "--workload", "/no/such/file.work"]);
    assert!(
        missing
            .one_line(2)
            .contains("cannot read the workload /no/such/file.work")
    );
}

#[test]
fn trial_of_the_statements_is_rolled_back() {
    let folder = Folder::new();
    let dsn = shop(&folder, "");
    let text = "transaction\n  UPDATE product SET stock = 99;\n  SELECT * FROM missing";
    let file = workload(&folder, text);
    let run = folder.run(&["size", "--dsn", &dsn, "--workload", &file, "--allow-writes"]);
    assert!(
        run.one_line(2).contains("shop.work:3: the statement fails"),
        "{run:?}"
    );
    let stock: Vec<i64> = with_db(&dsn, async |db| {
        db.query_scalar("SELECT stock FROM product", ()).await
    });
    assert_eq!(stock, [5, 5]);
}

#[test]
fn unusable_database_is_one_line_and_not_created() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    let file = workload(&folder, READS);
    for args in [
        &["size", "--dsn", &dsn][..],
        &["size", "--dsn", &dsn, "--workload", &file],
        &["size", "--dsn", &dsn, "--workload", &file, "--allow-writes"],
    ] {
        let run = folder.run(args);
        assert!(run.one_line(3).contains("theirs.db"), "{run:?}");
        assert!(!folder.path().join("theirs.db").exists());
    }
    let memory = folder.run(&["size", "--dsn", "sqlite::memory:"]);
    assert!(memory.one_line(3).contains("in-memory"), "{memory:?}");
}

#[test]
fn read_only_file_is_one_line_for_the_bank() {
    let folder = Folder::new();
    let dsn = format!("{}?mode=ro", shop(&folder, "?journal_mode=delete"));
    let run = folder.run(&["size", "--dsn", &dsn]);
    let line = run.one_line(3);
    assert!(line.contains("the database is read-only"), "{line}");
    assert!(line.contains("--workload FILE"), "{line}");
    let file = workload(&folder, "statement\n  UPDATE product SET stock = 1");
    let run = folder.run(&["size", "--dsn", &dsn, "--workload", &file, "--allow-writes"]);
    let line = run.one_line(2);
    assert!(line.contains("the database is read-only"), "{line}");
}

#[test]
fn arguments_of_size_are_checked() {
    let folder = Folder::new();
    for (args, says) in [
        (&["size", "--wrkload", "x"][..], "did you mean --workload?"),
        (&["size", "--max", "0"], "--max takes a whole number from 1"),
        (&["size", "--instances", "none"], "--instances"),
        (&["size", "--seconds", "0"], "--seconds"),
        (&["size", "--workload", "x"], "--dsn"),
        (&["size", "more"], "more"),
        (&["siz"], "did you mean size?"),
    ] {
        let run = folder.run(args);
        let line = run.one_line(2);
        assert!(line.contains(says), "{args:?}: {line}");
    }
    let help = folder.run(&["size", "--help"]);
    assert_eq!(help.code, Some(0));
    for flag in [
        "dsn",
        "workload",
        "allow-writes",
        "max",
        "clients",
        "seconds",
        "instances",
        "replicas",
        "report",
        "json",
        "seed",
        "force",
        "help",
    ] {
        assert!(help.out.contains(&format!("--{flag}")), "{flag}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_reports_what_was_measured() {
    let folder = Folder::new();
    let dsn = shop(&folder, "");
    let args = ["size", "--dsn", &dsn, "--seconds", "600", "--max", "4"];
    let mut running = crate::process::Running::start(folder.command(&args));
    running.wait_for("statement");
    running.interrupt();
    let run: Ended = running.end();
    // Too little was measured for a verdict.
    assert_eq!((run.code, run.err.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.out.contains(", interrupted"), "{run:?}");
    assert!(run.out.contains("recommended  "), "{run:?}");
    assert!(run.out.contains("it was interrupted early"), "{run:?}");
    let tables: Vec<String> = with_db(&dsn, async |db| {
        db.query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'", ())
            .await
    });
    assert_eq!(tables, ["product"]);
}

#[cfg(unix)]
#[test]
fn measurement_without_a_reader_stops_and_cleans_up() {
    let folder = Folder::new();
    let mut running = crate::process::Running::start(folder.command(&["size", "--seconds", "30"]));
    running.stop_reading();
    let run = running.end();
    assert_eq!(run.err, "", "{run:?}");
    assert!(files(&folder).is_empty());
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run ci/test.sh"))
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_says_what_its_sessions_do() {
    let folder = Folder::new();
    let dsn = variable("CENOTE_TEST_POSTGRES");
    let file = workload(&folder, "statement\n  SELECT pg_sleep(0.05)");
    let args = [
        "size",
        "--dsn",
        &dsn,
        "--workload",
        &file,
        "--max",
        "4",
        "--seconds",
        "3",
        "--json",
    ];
    let run = folder.run(&args);
    let json: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
    let last = json["sizes"].as_array().unwrap().last().unwrap();
    assert!(
        last["activity"]["sleeping"].as_f64().unwrap() > 0.5,
        "{json}"
    );
    assert!(last["server_work"].is_number(), "{json}");
    // Four sleeping sessions limit nothing; other programs may keep the processors of the machine busy meanwhile.
    let limit = json["limit"].as_str().unwrap();
    assert!(["not_reached", "server_cpu"].contains(&limit), "{json}");
    assert!(!run.out.contains("cenote-secret"), "{run:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_that_refuses_is_one_line() {
    let folder = Folder::new();
    let second = variable("CENOTE_TEST_POSTGRES_SECOND");
    let line = folder.run(&["size", "--dsn", &second]);
    assert!(
        line.one_line(3).contains("the database is read-only"),
        "{line:?}"
    );
    let refused = folder.run(&[
        "size",
        "--dsn",
        "pgsql:host=127.0.0.1;port=1;user=a;dbname=b",
    ]);
    assert!(
        refused.one_line(3).contains("is the server running there?"),
        "{refused:?}"
    );
    let wrong = variable("CENOTE_TEST_POSTGRES").replace("cenote-secret", "wrong");
    let wrong = folder.run(&["size", "--dsn", &wrong]);
    assert!(
        wrong.one_line(3).contains("password authentication failed"),
        "{wrong:?}"
    );
    let dsn = variable("CENOTE_TEST_POSTGRES");
    let file = workload(&folder, "statement\n  CREATE TABLE never (id int)");
    let writes = folder.run(&["size", "--dsn", &dsn, "--workload", &file]);
    assert!(
        writes
            .one_line(2)
            .contains("shop.work:2: the statement writes"),
        "{writes:?}"
    );
}

#[cfg(feature = "mysql")]
#[test]
fn mariadb_says_what_its_sessions_do() {
    let folder = Folder::new();
    let dsn = variable("CENOTE_TEST_MARIADB");
    let file = workload(&folder, "statement\n  SELECT SLEEP(0.05)");
    let args = [
        "size",
        "--dsn",
        &dsn,
        "--workload",
        &file,
        "--max",
        "4",
        "--seconds",
        "3",
        "--json",
    ];
    let run = folder.run(&args);
    let json: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
    let last = json["sizes"].as_array().unwrap().last().unwrap();
    assert!(
        last["activity"]["sleeping"].as_f64().unwrap() > 0.5,
        "{json}"
    );
    let file = workload(&folder, "statement\n  CREATE TABLE never (id int)");
    let writes = folder.run(&["size", "--dsn", &dsn, "--workload", &file]);
    assert!(
        writes
            .one_line(2)
            .contains("shop.work:2: the statement writes"),
        "{writes:?}"
    );
}

/// A user who may have two connections: the ramp ends there, and the report says why.
#[cfg(feature = "mysql")]
#[test]
fn server_that_refuses_connections_limits_the_ramp() {
    let folder = Folder::new();
    let dsn = variable("CENOTE_TEST_MARIADB")
        .replace("user=cenote", "user=few")
        .replace("cenote-secret", "few-secret");
    let file = workload(&folder, "statement\n  SELECT SLEEP(0.05)");
    let args = [
        "size",
        "--dsn",
        &dsn,
        "--workload",
        &file,
        "--max",
        "8",
        "--seconds",
        "4",
        "--json",
    ];
    let run = folder.run(&args);
    let json: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
    let sizes: Vec<u64> = json["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["size"].as_u64().unwrap())
        .collect();
    assert!(sizes.iter().all(|size| *size <= 2), "{json}");
    assert!(json["notes"].to_string().contains("refused"), "{json}");
}
