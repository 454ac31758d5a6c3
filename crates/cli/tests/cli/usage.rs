//! Arguments.

use crate::process::Folder;

#[test]
fn a_wrong_argument_is_named_in_one_line_with_exit_code_2() {
    let folder = Folder::new();
    for args in [
        &["--fast"][..],
        &["more"],
        &["--tasks"],
        &["--tasks", "many"],
        &["--max", "0"],
        &["--seconds", "-1"],
        &["--accounts", "1"],
        &["--seed", "x"],
        &["--json=yes"],
        &["--keep"],
        &["--cluster"],
        &["--force"],
        &["-q"],
    ] {
        let run = folder.run(args);
        let line = run.one_line(2);
        let name = args[0].split('=').next().unwrap();
        assert!(line.contains(name), "{args:?}: {line}");
    }
    assert!(folder.left_behind().is_empty());
}

#[test]
fn a_flag_that_is_nearly_right_is_guessed() {
    let run = Folder::new().run(&["run", "--secnods", "1"]);
    let line = run.one_line(2);
    assert!(line.contains("--secnods"), "{line}");
    assert!(line.contains("did you mean --seconds?"), "{line}");
}

#[test]
fn help_names_every_flag_variable_and_exit_code() {
    let help = Folder::new().run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    for name in [
        "cenote run",
        "cenote chaos",
        "--dsn",
        "--tasks",
        "--max",
        "--seconds",
        "--accounts",
        "--seed",
        "--server",
        "--cluster",
        "--only",
        "--json",
        "--keep",
        "--force",
        "--help",
        "--version",
        "CENOTE_DSN",
        "CENOTE_PASSWORD",
        "NO_COLOR",
        "Exit codes",
        "130",
    ] {
        assert!(help.out.contains(name), "{name}");
    }
    assert_eq!(Folder::new().run(&["run", "-h"]).out, help.out);
}

#[test]
fn version_is_the_version_of_the_package() {
    let version = Folder::new().run(&["--version"]);
    assert_eq!(version.code, Some(0));
    let expected = concat!("cenote ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(version.out, expected);
}
