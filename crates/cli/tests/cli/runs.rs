//! Runs, and what they find.

use cenote::Violation;
use serde_json::Value;

use crate::process::{Folder, Running, exec_elsewhere, with_db};

/// What is on all accounts of a database that was kept, and how many there are.
fn books(dsn: &str) -> (i64, usize) {
    with_db(dsn, async |db| {
        let sql = "SELECT balance FROM cenote_bank_account";
        let balances: Vec<i64> = db.query_as(sql, ()).await?;
        Ok((balances.iter().sum(), balances.len()))
    })
}

fn has_tables(dsn: &str) -> bool {
    with_db(dsn, async |db| {
        match db.query("SELECT 1 FROM cenote_bank_account", ()).await {
            Ok(_) => Ok(true),
            Err(error) if error.violation() == Some(Violation::Undefined) => Ok(false),
            Err(error) => Err(error),
        }
    })
}

#[test]
fn a_run_without_arguments_verifies_its_total_and_cleans_up() {
    let folder = Folder::new();
    let run = folder.run(&["--seconds", "1"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.err, "", "planned panics are not reported");
    let out = &run.out;
    let first = "300 tasks on 5 connections for 1.0 s on a temporary SQLite file\n";
    assert!(out.starts_with(first), "{out}");
    for said in [
        "100,000.00 before, 100,000.00 after: not a cent lost",
        "ok    balances",
        "ok    books",
        "ok    audits",
        "ok    transactions",
        "ok    pool          whole: 0 active, 0 waiting",
        "ms p99",
        "a second",
    ] {
        assert!(out.contains(said), "{said}: {out}");
    }
    assert!(!out.contains("FAIL"), "{out}");
    assert!(!out.contains('\x1b'), "no terminal, no colours: {out:?}");
    for line in out.lines() {
        assert!(line.chars().count() <= 81, "{line}");
    }
    assert!(folder.left_behind().is_empty());
}

#[test]
fn json_is_one_object_whose_numbers_add_up() {
    let args = ["run", "--seconds=1", "--tasks", "80", "--max", "3"];
    let more = ["--accounts", "20", "--seed", "7", "--json"];
    let run = Folder::new().run(&[&args[..], &more].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.out.lines().count(), 1, "{run:?}");
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["driver"], "sqlite");
    let number = |path: &str| json.pointer(path).unwrap().as_u64().unwrap();
    let given = ["/tasks", "/max", "/accounts", "/seed"].map(number);
    assert_eq!(given, [80, 3, 20, 7]);

    assert_eq!(number("/money/before"), 2_000_000);
    assert_eq!(number("/money/after"), 2_000_000);
    assert!(number("/committed") > 0, "{json}");
    assert!(number("/transfers") >= number("/committed"), "{json}");
    let causes = ["error", "panic", "cancel", "forgotten", "database"];
    let causes = causes.map(|cause| number(&format!("/rolled_back/{cause}")));
    assert_eq!(number("/rolled_back/total"), causes.iter().sum::<u64>());

    assert_eq!(number("/pool/active"), 0);
    let [created, destroyed, total] =
        ["/pool/created", "/pool/destroyed", "/pool/total"].map(number);
    assert_eq!(created, destroyed + total);
    assert!(total <= 3, "{json}");
    let waits = ["mean", "p99", "max"].map(|name| json["wait_ms"][name].as_f64().unwrap());
    assert!(waits.is_sorted(), "{json}");
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 6);
    assert!(checks.iter().all(|check| check["ok"] == true), "{json}");
}

#[test]
fn help_describes_every_field_of_the_json() {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                found.push(name.clone());
                names(value, found);
            }),
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let folder = Folder::new();
    let run = folder.run(&["--json", "--seconds", "0.1"]);
    let mut fields = Vec::new();
    names(&serde_json::from_str(&run.out).unwrap(), &mut fields);
    assert!(fields.len() > 40, "{fields:?}");
    let help = folder.run(&["--help"]).out;
    let (_, described) = help.split_once("Fields of --json").unwrap();
    let described: Vec<&str> = described.split_whitespace().collect();
    for field in fields {
        assert!(described.contains(&field.as_str()), "{field}");
    }
}

#[test]
fn every_way_to_misbehave_is_met_and_survived() {
    let memory = "sqlite:file:every-way?mode=memory&cache=shared";
    let args = ["--dsn", memory, "--seconds", "2", "--json", "--seed", "3"];
    let run = Folder::new().run(&args);
    assert_eq!(run.code, Some(0), "{run:?}");
    let json: Value = serde_json::from_str(&run.out).unwrap();
    let met = ["error", "panic", "cancel", "forgotten"];
    for cause in met {
        assert!(
            json["rolled_back"][cause].as_u64() > Some(0),
            "{cause}: {json}"
        );
    }
    assert!(json["savepoints_undone"].as_u64() > Some(0), "{json}");
}

#[test]
fn the_tables_go_at_the_end_unless_they_are_to_be_kept() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    let run = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.2"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!has_tables(&dsn));

    let kept = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.5", "--keep"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(
        kept.out.contains("The tables are left in sqlite:"),
        "{kept:?}"
    );
    assert_eq!(books(&dsn), (10_000_000, 100));

    // They are known to be of a run that is over.
    let again = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.2"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(!has_tables(&dsn));
}

#[test]
fn tables_of_others_are_not_touched_unless_forced() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    with_db(&dsn, async |db| {
        db.exec("CREATE TABLE cenote_bank_account (name TEXT)", ())
            .await?;
        db.exec("INSERT INTO cenote_bank_account VALUES ('mine')", ())
            .await
    });
    let refused = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.2"]);
    let line = refused.one_line(3);
    assert!(line.contains("cenote_bank_account"), "{line}");
    assert!(line.contains("--force"), "{line}");
    let names: Vec<String> = with_db(&dsn, async |db| {
        db.query_as("SELECT name FROM cenote_bank_account", ())
            .await
    });
    assert_eq!(names, ["mine"]);

    let forced = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.2", "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
}

#[cfg(unix)]
#[test]
fn two_runs_on_one_database_do_not_get_into_each_others_way() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    let args = ["run", "--dsn", &dsn, "--seconds", "60", "--tasks", "3"];
    let first = Running::start(folder.command(&args));
    let second = folder.run(&["run", "--dsn", &dsn, "--seconds", "0.2"]);
    let line = second.one_line(3);
    assert!(line.contains("another run"), "{line}");
    first.interrupt();
    let first = first.end();
    assert_eq!(first.code, Some(0), "{first:?}");
}

#[cfg(unix)]
#[test]
fn a_missing_cent_is_detected() {
    let folder = Folder::new();
    let dsn = folder.dsn();
    let args = ["run", "--dsn", &dsn, "--seconds", "60", "--tasks", "3"];
    let running = Running::start(folder.command(&args));
    let sql = "UPDATE cenote_bank_account SET balance = balance - 1 WHERE id = 1";
    assert_eq!(exec_elsewhere(&dsn, sql), 1);
    running.interrupt();
    let run = running.end();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("FAIL  money"), "{run:?}");
    assert!(run.out.contains("0.01 IS MISSING"), "{run:?}");
    // So that it can be found.
    assert_eq!(books(&dsn), (9_999_999, 100));
}
