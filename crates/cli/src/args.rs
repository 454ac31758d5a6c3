//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use cenote::Secret;
use cenote_bank::{Chaos, Database, FAULTS, Fault};
use lexopt::prelude::*;

use crate::failure::Failure;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
cenote: hundreds of tasks move money over a handful of connections

Every task transfers money between accounts through one shared Db. Some panic
in the middle of a transaction, some are aborted or cut off at any point, some
forget to commit, some are refused, some use savepoints. At the end the command
checks that not a cent was lost and that the pool is whole.

Usage:
  cenote [options]       on a temporary SQLite file, or on --dsn
  cenote run [options]   the same, and CENOTE_DSN is looked at, too
  cenote chaos [options] the same while sessions are killed, the network is cut,
                         slow or silent, the server restarted, killed or frozen,
                         and the pool exhausted, resized, closed and opened; at
                         quiet moments every single transfer is looked for

Options:
  --dsn DSN      the database, such as sqlite:/path/bank.db
  --tasks N      how many tasks share the Db (300)
  --max N        how many connections it may have (5)
  --seconds N    for how long; 0.5 is fine (5; chaos: 60)
  --accounts N   how many accounts there are, with 1,000.00 each (100)
  --seed N       plans every task in the same way again (by chance)
  --server CMD   for chaos: a shell command that becomes the server of --dsn, in
                 the foreground; it is started, killed and started again.
                 Without it the server's process is left alone
  --only KINDS   for chaos: only these faults, with commas between them; a wrong
                 one gives the list
  --json         no live view: the summary as one JSON object
  --keep         leave the tables in the database
  --force        drop tables of the same names that are in the way
  -h, --help     this text
  -V, --version  the version

Environment:
  CENOTE_DSN       the database for cenote run, if --dsn is not given; unlike an
                   argument it is not seen in the list of processes
  CENOTE_USER      who connects, before the user in the DSN
  CENOTE_PASSWORD  the password, before the one in the DSN
  NO_COLOR         no colours

The tables are cenote_bank_account and cenote_bank_run, for chaos also
cenote_bank_ledger. One connection more than --max is used, to look at the books
from outside. If the check fails the tables stay.

Ctrl-C stops the tasks, checks and prints the summary; a second one ends at
once.

Exit codes:
  0    not a cent is missing and the pool is whole, after Ctrl-C as well
  1    money is missing or the pool is not whole
  2    wrong usage
  3    the database cannot be reached, or refuses
  4    something else: no temporary file, the output cannot be written
  130  ended by a second Ctrl-C, nothing checked

Fields of --json (times in milliseconds, money in cents):
  ok  database  driver  seed  tasks  max  accounts  seconds  interrupted
  committed  per_second  transfers  savepoints_undone
  rolled_back   total  error  panic  cancel  forgotten  database
  not_begun     cancelled  no_connection
  unknown       transactions cancelled in the middle of their commit
  complaint     the last error that was not planned, or null
  wait_ms       mean  p99  max
  pool          acquired  waited  timed_out  cancelled  created  create_failed
                destroyed  total  idle  active  creating  waiting
  money         before  after  lowest  audits
  checks        a list of  name  ok  says
  chaos         only there with chaos:
                faults (a list of  kind  count  recovery_mean_ms
                recovery_max_ms)  sessions_killed  left_out  quiet_moments
                transfers (acknowledged  rolled_back  unknown
                unknown_committed)  looks  marks  visit_ms (mean  p99  max)
  kept          where the tables were left, or null
";

const FLAGS: [&str; 13] = [
    "dsn", "tasks", "max", "seconds", "accounts", "seed", "server", "only", "json", "keep",
    "force", "help", "version",
];

/// The default length of a run with faults.
const CHAOS_LENGTH: Duration = Duration::from_secs(60);

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    Help,
    Version,
}

/// What to run, and how to show it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bank: cenote_bank::Options,
    pub(crate) json: bool,
}

/// Reads the arguments, without the program's name, and what they leave to the environment.
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, Failure> {
    let mut options = cenote_bank::Options::default();
    let mut chaos = Chaos::default();
    let mut json = false;
    let mut run = false;
    let mut dsn = None;
    let mut first = true;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Value(word) if first && word == "run" => run = true,
            Value(word) if first && word == "chaos" => {
                run = true;
                options.chaos = Some(Chaos::default());
                options.length = CHAOS_LENGTH;
            }
            Long("only") => chaos.only = faults(&mut parser)?,
            Long("server") => chaos.server = Some(text(&mut parser, "--server")?),
            Long("dsn") => dsn = Some(text(&mut parser, "--dsn")?),
            Long("tasks") => options.tasks = number(&mut parser, "--tasks", 1, 100_000)?,
            Long("max") => options.max = number(&mut parser, "--max", 1, 10_000)?,
            Long("seconds") => options.length = seconds(&mut parser)?,
            Long("accounts") => options.accounts = number(&mut parser, "--accounts", 2, 100_000)?,
            Long("seed") => options.seed = seed(&mut parser)?,
            Long("json") => json = true,
            Long("keep") => options.keep = true,
            Long("force") => options.force = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long(unknown) => return Err(unknown_flag(unknown)),
            Value(word) => return Err(unknown_word(&word)),
            Short(_) => return Err(wrong(arg.unexpected())),
        }
        first = false;
    }
    if options.chaos.is_none() && (chaos.server.is_some() || !chaos.only.is_empty()) {
        let what = "--server and --only are for cenote chaos";
        return Err(Failure::usage(what));
    }
    let variable = |name: &str| -> Result<Option<String>, Failure> {
        let value = environment(name).filter(|value| !value.is_empty());
        let value = value.map(OsString::into_string).transpose();
        value.map_err(|_| Failure::usage(format!("{name} is not valid UTF-8")))
    };
    if dsn.is_none() && run {
        dsn = variable("CENOTE_DSN")?;
    }
    if let Some(dsn) = dsn {
        options.database = Database::Theirs {
            dsn: Secret::from(dsn),
            user: variable("CENOTE_USER")?,
            password: variable("CENOTE_PASSWORD")?.map(Secret::from),
        };
    } else if chaos.server.is_some() {
        return Err(needs_dsn("--server"));
    } else if options.keep {
        return Err(needs_dsn("--keep"));
    } else if options.force {
        return Err(needs_dsn("--force"));
    }
    if let Some(of_this_run) = &mut options.chaos {
        *of_this_run = chaos;
    }
    Ok(Command::Run(Options {
        bank: options,
        json,
    }))
}

fn wrong(error: lexopt::Error) -> Failure {
    Failure::usage(error.to_string())
}

fn needs_dsn(flag: &str) -> Failure {
    Failure::usage(format!(
        "{flag} is for a database of yours, and none is given: --dsn, or cenote run with CENOTE_DSN"
    ))
}

fn unknown_flag(name: &str) -> Failure {
    let guess = match nearest(name, &FLAGS) {
        Some(near) => format!(", did you mean --{near}?"),
        None => String::new(),
    };
    Failure::usage(format!("there is no option --{name}{guess}"))
}

fn unknown_word(word: &OsString) -> Failure {
    let word = word.display();
    Failure::usage(format!(
        "there is no command '{word}'; there are run and chaos, as the first word"
    ))
}

/// A value that may be a secret: it is not quoted when it is wrong.
fn text(parser: &mut lexopt::Parser, name: &str) -> Result<String, Failure> {
    let value = parser.value().map_err(wrong)?;
    match value.into_string() {
        Ok(text) if !text.is_empty() => Ok(text),
        Ok(_) => Err(Failure::usage(format!("{name} is empty"))),
        Err(_) => Err(Failure::usage(format!("{name} is not valid UTF-8"))),
    }
}

fn number(
    parser: &mut lexopt::Parser,
    name: &str,
    least: usize,
    most: usize,
) -> Result<usize, Failure> {
    let value = parser.value().map_err(wrong)?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            let value = value.display();
            Failure::usage(format!(
                "{name} takes a whole number from {least} to {most}, not '{value}'"
            ))
        })
}

fn faults(parser: &mut lexopt::Parser) -> Result<Vec<Fault>, Failure> {
    let names = text(parser, "--only")?;
    let find = |name: &str| {
        let found = FAULTS.into_iter().find(|fault| fault.key() == name);
        found.ok_or_else(|| {
            let known = FAULTS.map(Fault::key).join(", ");
            Failure::usage(format!("--only takes some of {known}; not '{name}'"))
        })
    };
    names.split(',').map(find).collect()
}

fn seconds(parser: &mut lexopt::Parser) -> Result<Duration, Failure> {
    let value = parser.value().map_err(wrong)?;
    let seconds: Option<f64> = value.to_str().and_then(|text| text.parse().ok());
    seconds
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            let value = value.display();
            Failure::usage(format!(
                "--seconds takes a number from 0.1 to 86400, not '{value}'"
            ))
        })
}

fn seed(parser: &mut lexopt::Parser) -> Result<u64, Failure> {
    let value = parser.value().map_err(wrong)?;
    let seed = value.to_str().and_then(|text| text.parse().ok());
    seed.ok_or_else(|| {
        let (value, most) = (value.display(), u64::MAX);
        Failure::usage(format!(
            "--seed takes a whole number from 0 to {most}, not '{value}'"
        ))
    })
}

/// Returns the candidate that the fewest changes make of the text, if these are at most two and
/// fewer than it has letters.
fn nearest<'c>(text: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let with_distance = candidates.iter().map(|name| (distance(text, name), *name));
    let (changes, name) = with_distance.min_by_key(|(changes, _)| *changes)?;
    (changes <= 2 && changes < name.chars().count()).then_some(name)
}

/// Returns how many letters to add, remove or replace to make one of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(line: &str, variables: &[(&str, &str)]) -> Result<Command, String> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let args = line.split_whitespace().map(OsString::from);
        parse(args, lookup).map_err(|failure| failure.to_string())
    }

    fn options(line: &str, variables: &[(&str, &str)]) -> Options {
        match read_with(line, variables) {
            Ok(Command::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn dsn(options: &Options) -> Option<&str> {
        match &options.bank.database {
            Database::Temporary => None,
            Database::Theirs { dsn, .. } => Some(dsn.expose()),
        }
    }

    #[test]
    fn every_option_has_a_default_and_two_spellings() {
        let defaults = options("", &[]);
        assert_eq!(dsn(&defaults), None);
        let (bank, json) = (defaults.bank, defaults.json);
        assert_eq!((bank.tasks, bank.max), (300, 5));
        assert_eq!(bank.length, Duration::from_secs(5));
        assert_eq!(bank.accounts, 100);
        assert!(!json && !bank.keep && !bank.force);

        let line = "run --tasks 5 --max=2 --seconds 0.5 --accounts=7 --seed 9 --json --keep \
                    --force --dsn=sqlite:x.db";
        let set = options(line, &[]);
        assert_eq!(dsn(&set), Some("sqlite:x.db"));
        let (bank, json) = (set.bank, set.json);
        let numbers = (bank.tasks, bank.max, bank.accounts, bank.seed);
        assert_eq!(numbers, (5, 2, 7, 9));
        assert_eq!(bank.length, Duration::from_millis(500));
        assert!(json && bank.keep && bank.force);
    }

    #[test]
    fn the_environment_names_the_database_for_run_only() {
        let variables = [
            ("CENOTE_DSN", "sqlite:theirs.db"),
            ("DATABASE_URL", "sqlite:production.db"),
        ];
        assert_eq!(dsn(&options("run", &variables)), Some("sqlite:theirs.db"));
        assert_eq!(dsn(&options("", &variables)), None);
        assert_eq!(dsn(&options("run", &variables[1..])), None);
        assert_eq!(dsn(&options("run", &[("CENOTE_DSN", "")])), None);
        let given = options("run --dsn sqlite:given.db", &variables);
        assert_eq!(dsn(&given), Some("sqlite:given.db"));
    }

    #[test]
    fn the_password_of_the_environment_is_not_shown() {
        let variables = [("CENOTE_USER", "app"), ("CENOTE_PASSWORD", "hush")];
        let read = options("run --dsn sqlite:x.db", &variables);
        assert!(!format!("{read:?}").contains("hush"));
        let Database::Theirs { user, password, .. } = read.bank.database else {
            panic!("--dsn was given");
        };
        assert_eq!(user.as_deref(), Some("app"));
        assert_eq!(password.unwrap().expose(), "hush");
    }

    #[test]
    fn chaos_lasts_longer_and_may_have_a_server_of_its_own() {
        let run = options("chaos --server ci/own --dsn pgsql:host=localhost", &[]);
        assert_eq!(run.bank.length, CHAOS_LENGTH);
        let chaos = run.bank.chaos.unwrap();
        assert_eq!(chaos.server.as_deref(), Some("ci/own"));
        let short = options("chaos --seconds 1", &[("CENOTE_DSN", "sqlite:x.db")]);
        assert_eq!(short.bank.length, Duration::from_secs(1));
        assert_eq!(dsn(&short), Some("sqlite:x.db"));
        assert!(options("run", &[]).bank.chaos.is_none());
        let some = options("chaos --only crash,cut", &[]);
        assert_eq!(some.bank.chaos.unwrap().only, [Fault::Crash, Fault::Cut]);
    }

    #[test]
    fn a_wrong_argument_is_named_in_one_line() {
        for (line, named) in [
            ("--tasks", "--tasks"),
            ("--tasks 0", "--tasks takes a whole number from 1"),
            ("--max -1", "'-1'"),
            ("--seconds soon", "'soon'"),
            ("--seconds NaN", "'NaN'"),
            ("--seconds 0", "'0'"),
            ("--accounts 1", "from 2"),
            ("--seed -1", "'-1'"),
            ("--json=yes", "yes"),
            ("--dsn=", "--dsn"),
            ("--fast", "--fast"),
            ("-x", "-x"),
            ("faster", "'faster'"),
            ("--json run", "'run'"),
            ("run run", "'run'"),
            ("--keep", "--keep"),
            ("run --force", "--force"),
            ("chaos --server x", "--server"),
            ("run --dsn sqlite:x.db --server x", "cenote chaos"),
            ("run --only cut", "cenote chaos"),
            ("chaos --only cut,cat", "'cat'"),
            ("chaos --only cat", "single_bytes, black_hole"),
            ("chaos run", "'run'"),
        ] {
            let error = read_with(line, &[]).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn a_flag_that_is_nearly_right_is_guessed() {
        let error = read_with("--task 5", &[]).unwrap_err();
        assert!(error.contains("did you mean --tasks?"), "{error}");
        let error = read_with("--banana", &[]).unwrap_err();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn help_names_every_flag_and_fits_a_terminal() {
        for flag in FLAGS {
            assert!(HELP.contains(&format!("--{flag}")), "{flag}");
        }
        for line in HELP.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("tasks", "tasks"), 0);
        assert_eq!(distance("task", "tasks"), 1);
        assert_eq!(distance("tsaks", "tasks"), 2);
        assert_eq!(distance("", "max"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_what_is_near_is_guessed() {
        let flags = ["tasks", "max", "json"];
        assert_eq!(nearest("jsn", &flags), Some("json"));
        assert_eq!(nearest("", &["ab"]), None);
        assert_eq!(nearest("something", &flags), None);
    }
}
