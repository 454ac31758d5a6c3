//! `cenote migrate`.

use std::path::PathBuf;

use crate::process::{Ended, Folder, with_db};

/// Writes migrations, and returns their folder.
fn migrations(folder: &Folder, files: &[(&str, &str)]) -> PathBuf {
    let path = folder.path().join("migrations");
    std::fs::create_dir_all(&path).unwrap();
    for (name, text) in files {
        std::fs::write(path.join(name), text).unwrap();
    }
    path
}

fn migrate(folder: &Folder, dsn: &str, more: &[&str]) -> Ended {
    let path = folder.path().join("migrations").display().to_string();
    folder.run(&[&["migrate", "--dsn", dsn, &path][..], more].concat())
}

const TWO: [(&str, &str); 2] = [
    ("V1__a.sql", "CREATE TABLE a (n INTEGER);"),
    (
        "V2__b.sql",
        "CREATE TABLE b (n INTEGER);\nINSERT INTO b VALUES (7);",
    ),
];

#[test]
fn status_dry_run_and_migrate_agree() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    migrations(&folder, &TWO);
    let dry = migrate(&folder, &dsn, &["--dry-run"]);
    assert_eq!((dry.code, dry.err.as_str()), (Some(0), ""), "{dry:?}");
    assert!(dry.out.contains("would apply  V2__b.sql"), "{}", dry.out);
    assert!(dry.out.contains("2 migrations are pending"), "{}", dry.out);
    let done = migrate(&folder, &dsn, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.out.contains("2 migrations applied to sqlite:"),
        "{}",
        done.out
    );
    let again = migrate(&folder, &dsn, &[]);
    assert!(again.out.contains("is up to date"), "{}", again.out);
    let status = migrate(&folder, &dsn, &["--status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(
        status.out.contains("2 applied, 0 pending"),
        "{}",
        status.out
    );
    let seven: i64 = with_db(&dsn, async |db| {
        db.query_as_one("SELECT n FROM b", ()).await
    });
    assert_eq!(seven, 7);
}

#[test]
fn json_names_what_was_applied_and_what_is_pending() {
    let folder = Folder::new();
    migrations(&folder, &TWO);
    let read = |more: &[&str]| {
        let run = migrate(&folder, &folder.dsn(), more);
        assert_eq!(run.code, Some(0), "{run:?}");
        serde_json::from_str::<serde_json::Value>(&run.out).unwrap()
    };
    let dry = read(&["--dry-run", "--json"]);
    assert_eq!(dry["migrations"][1]["state"], "pending", "{dry}");
    let done = read(&["--json"]);
    assert_eq!(done["applied"][0]["file"], "V1__a.sql", "{done}");
    let status = read(&["--json", "--status"]);
    assert_eq!(status["migrations"][1]["state"], "applied", "{status}");
    assert_eq!(status["migrations"][1]["version"], 2, "{status}");
}

#[test]
fn a_failure_is_one_line_with_file_statement_and_cause() {
    let folder = Folder::new();
    let text = "CREATE TABLE a (n INTEGER);\nINSRT INTO a VALUES (1);";
    migrations(&folder, &[("V1__a.sql", text)]);
    let run = migrate(&folder, &folder.dsn(), &[]);
    let line = run.one_line(1);
    for said in [
        "V1__a.sql",
        "statement 2 of 2, line 2",
        "rolled back",
        "INSRT",
    ] {
        assert!(line.contains(said), "{said}: {line}");
    }
    let run = migrate(&folder, &folder.dsn(), &["--json"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert!(json["error"].as_str().unwrap().contains("INSRT"), "{json}");
}

#[test]
fn a_failure_also_names_what_was_applied_before() {
    let folder = Folder::new();
    let three = [&TWO[..], &[("V3__wrong.sql", "INSRT INTO a VALUES (1)")]].concat();
    migrations(&folder, &three);
    let run = migrate(&folder, &folder.dsn(), &["--json"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(json["applied"][1]["file"], "V2__b.sql", "{json}");
    assert!(
        json["error"].as_str().unwrap().contains("V3__wrong.sql"),
        "{json}"
    );

    let folder = Folder::new();
    migrations(&folder, &three);
    let run = migrate(&folder, &folder.dsn(), &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("applied  V2__b.sql"), "{run:?}");
    assert!(run.err.contains("V3__wrong.sql"), "{run:?}");
}

#[test]
fn status_and_dry_run_create_no_file() {
    let folder = Folder::new();
    migrations(&folder, &TWO);
    let file = folder.path().join("not-yet.db");
    let dsn = format!("sqlite:{}", file.display());
    for mode in ["--status", "--dry-run"] {
        let run = migrate(&folder, &dsn, &[mode]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(
            run.out.contains("pending on sqlite:") && run.out.contains("not-yet.db"),
            "{run:?}"
        );
        assert!(run.out.contains('2'), "{run:?}");
        assert!(!file.exists(), "{mode}");
    }
    let run = migrate(&folder, "sqlite:/no/such/folder/x.db", &["--status"]);
    assert!(run.one_line(3).contains("/no/such/folder/x.db"), "{run:?}");
}

#[test]
fn a_changed_file_is_refused_and_shown() {
    let folder = Folder::new();
    migrations(&folder, &TWO);
    migrate(&folder, &folder.dsn(), &[]);
    migrations(
        &folder,
        &[("V1__a.sql", "CREATE TABLE a (n INTEGER, m INTEGER);")],
    );
    let run = migrate(&folder, &folder.dsn(), &[]);
    let line = run.one_line(1);
    assert!(line.contains("V1__a.sql was changed"), "{line}");
    assert!(line.contains("UPDATE refinery_schema_history"), "{line}");
    let status = migrate(&folder, &folder.dsn(), &["--status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.out.contains("changed "), "{}", status.out);
    assert!(
        status.out.contains("the next migration fails"),
        "{}",
        status.out
    );
}

#[test]
fn a_missing_folder_or_database_is_named() {
    let folder = Folder::new();
    let run = folder.run(&["migrate", "--dsn", &folder.dsn(), "/no/such/folder"]);
    assert!(run.one_line(1).contains("/no/such/folder"), "{run:?}");
    migrations(&folder, &TWO);
    let run = migrate(&folder, "sqlite:/no/such/folder/x.db", &[]);
    assert!(run.one_line(3).contains("/no/such/folder/x.db"), "{run:?}");
}
