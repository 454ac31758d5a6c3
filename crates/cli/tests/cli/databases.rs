//! Which database it runs on, and what it says when it cannot.

use crate::process::{Ended, Folder};

const SECRET: &str = "hush-hush";

#[test]
fn an_unusable_database_gives_one_line_and_exit_code_3() {
    let folder = Folder::new();
    let nowhere = format!("sqlite:{}/no/such/folder/x.db", folder.path().display());
    let no_database = folder.path().join("text.db");
    std::fs::write(&no_database, "this is a text, and no database at all").unwrap();
    let no_database = format!("sqlite:{}", no_database.display());
    for (dsn, named) in [
        ("oracle:whatever", "oracle"),
        ("nonsense", "DSN"),
        ("sqlite::memory:", "in-memory"),
        ("sqlite:x.db?colour=red", "colour"),
        (nowhere.as_str(), "no/such/folder"),
        (no_database.as_str(), "text.db"),
    ] {
        let run = folder.run(&["run", "--dsn", dsn, "--seconds", "1"]);
        let line = run.one_line(3);
        assert!(line.contains(named), "{dsn}: {line}");
        assert!(!line.contains("panicked"), "{dsn}: {line}");
    }
}

#[test]
fn a_password_is_never_printed() {
    let folder = Folder::new();
    let file = folder.dsn();
    let with = |text: &str| text.replace("SECRET", SECRET);
    for dsn in [
        with("postgres://app:SECRET@localhost/shop"),
        with("postgres://app:SECRET@local host/shop"),
        with("mysql:host=localhost;password=SECRET"),
        with("pgsql:host=localhost password='SECRET"),
        with("odbc:DRIVER={x};PWD={SECRET}"),
        with("SECRET"),
        with("SECRET@localhost"),
        format!("{file}?password={SECRET}"),
    ] {
        let by_flag = folder.run(&["run", "--seconds", "0.1", "--dsn", &dsn]);
        let mut by_variable = folder.command(&["run", "--seconds", "0.1"]);
        by_variable.env("CENOTE_DSN", &dsn);
        for run in [by_flag, Ended::of(by_variable)] {
            let text = format!("{}{}", run.out, run.err);
            assert!(!text.contains(SECRET), "{dsn}: {text}");
        }
    }
    for format in [&[][..], &["--json"]] {
        let mut command = folder.command(&["run", "--seconds", "0.1", "--dsn", &file]);
        command.args(format).env("CENOTE_PASSWORD", SECRET);
        let run = Ended::of(command);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(!format!("{run:?}").contains(SECRET), "{run:?}");
    }
}

#[test]
fn run_takes_the_database_from_the_environment() {
    let folder = Folder::new();
    let mut command = folder.command(&["run", "--seconds", "0.2"]);
    command.env("CENOTE_DSN", folder.dsn());
    let run = Ended::of(command);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("theirs.db"), "{run:?}");
    assert!(folder.path().join("theirs.db").exists());
}

#[test]
fn without_run_no_database_of_the_users_is_touched() {
    let folder = Folder::new();
    let mut command = folder.command(&["--seconds", "0.2"]);
    command
        .env("CENOTE_DSN", folder.dsn())
        .env("DATABASE_URL", folder.dsn());
    let run = Ended::of(command);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("temporary"), "{run:?}");
    assert!(!folder.path().join("theirs.db").exists());
}
