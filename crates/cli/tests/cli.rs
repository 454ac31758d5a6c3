//! The command as its users run it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output};

fn cenote(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.args(args).output().unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A whole number of the summary.
fn number(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

#[test]
fn a_short_run_prints_plain_lines_loses_nothing_and_ends_with_success() {
    let run = cenote(&["--seconds", "1"]);
    assert_eq!(run.status.code(), Some(0), "{}", out(&run));
    assert_eq!(err(&run), "", "simulated panics are not reported");
    let out = out(&run);
    assert!(
        out.starts_with("cenote: 200 tasks share 8 connections\n"),
        "{out}"
    );
    assert!(out.contains("uses/s"), "{out}");
    assert!(out.contains("nothing lost"), "{out}");
    assert!(!out.contains('\x1b'), "no terminal, no colours: {out:?}");
}

#[test]
fn json_is_one_line_whose_numbers_add_up() {
    let run = cenote(&["--seconds=2", "--tasks", "50", "--max", "3", "--json"]);
    assert_eq!(run.status.code(), Some(0), "{}", out(&run));
    let json = out(&run);
    assert!(json.starts_with('{') && json.ends_with("}\n"), "{json}");
    assert_eq!(json.lines().count(), 1, "{json}");
    assert!(json.contains("\"lost\":[]"), "{json}");
    let [created, destroyed, total, idle] =
        ["created", "destroyed", "total", "idle"].map(|name| number(json, name));
    assert_eq!(created, destroyed + total, "{json}");
    assert_eq!(total, idle, "{json}");
    assert!(total <= 3, "{json}");
    assert!(number(json, "used") > 0, "{json}");
    // The outage is seen by the breaker, and it finds out that it is over.
    assert!(number(json, "breaker_opened") > 0, "{json}");
    assert!(number(json, "breaker_recovered") > 0, "{json}");
}

#[test]
fn wrong_arguments_give_one_clear_line_and_exit_code_2() {
    for args in [
        &["--fast"][..],
        &["more"],
        &["--tasks"],
        &["--tasks", "many"],
        &["--max", "0"],
        &["--seconds", "-1"],
    ] {
        let run = cenote(args);
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        assert_eq!(out(&run), "", "{args:?}");
        let err = err(&run);
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
        assert!(err.starts_with("cenote: "), "{args:?}: {err}");
        assert!(err.contains(args[0]), "{args:?}: {err}");
    }
}

#[test]
fn help_names_every_option_and_version_the_version() {
    let help = cenote(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for option in [
        "--tasks",
        "--max",
        "--seconds",
        "--json",
        "--help",
        "--version",
    ] {
        assert!(out(&help).contains(option), "{option}");
    }
    let version = cenote(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(
        out(&version),
        concat!("cenote ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
