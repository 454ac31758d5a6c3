//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cenote::Secret;
use cenote_bank::{Chaos, Database, FAULTS, Fault};
use lexopt::prelude::*;

use crate::failure::Failure;
use crate::help;
use crate::size_args::{SizeOptions, size};
use crate::suggest::nearest;

/// The options of the bank.
const FLAGS: [&str; 17] = [
    "dsn",
    "tasks",
    "max",
    "seconds",
    "accounts",
    "seed",
    "server",
    "cluster",
    "share-connections",
    "only",
    "report",
    "page",
    "json",
    "keep",
    "force",
    "help",
    "version",
];
/// The commands, as the first word.
const COMMANDS: [&str; 5] = ["run", "chaos", "migrate", "check", "size"];

/// The default length of a run with faults.
const CHAOS_LENGTH: Duration = Duration::from_secs(60);

/// The default length of a run with a page: long enough to look at it.
const PAGE_LENGTH: Duration = Duration::from_secs(3600);

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    Migrate(MigrateOptions),
    Check(CheckOptions),
    Size(Box<SizeOptions>),
    Help(&'static str),
    Version,
}

/// What to run, and how to show it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bank: cenote_bank::Options,
    pub(crate) json: bool,
    pub(crate) report: Option<PathBuf>,
    /// Serve the live page.
    pub(crate) page: bool,
}

/// What to migrate, and how.
#[derive(Debug)]
pub(crate) struct MigrateOptions {
    pub(crate) database: Database,
    pub(crate) folder: PathBuf,
    pub(crate) table: Option<String>,
    pub(crate) mode: MigrateMode,
    pub(crate) json: bool,
}

/// What `cenote migrate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigrateMode {
    Apply,
    DryRun,
    Status,
}

/// What to check, and how to show it.
#[derive(Debug)]
pub(crate) struct CheckOptions {
    pub(crate) database: Database,
    pub(crate) json: bool,
}

/// Reads the arguments, without the program's name, and what they leave to the environment.
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, Failure> {
    let mut args = args.into_iter().peekable();
    let environment = Environment(&environment);
    match args.peek().and_then(|word| word.to_str()) {
        Some("migrate") => migrate(lexopt::Parser::from_args(args.skip(1)), &environment),
        Some("check") => check(lexopt::Parser::from_args(args.skip(1)), &environment),
        Some("size") => size(lexopt::Parser::from_args(args.skip(1)), &environment),
        _ => bank(lexopt::Parser::from_args(args), &environment),
    }
}

/// The variables of the environment.
pub(crate) struct Environment<'e>(&'e dyn Fn(&str) -> Option<OsString>);

impl Environment<'_> {
    fn variable(&self, name: &str) -> Result<Option<String>, Failure> {
        let value = (self.0)(name).filter(|value| !value.is_empty());
        let value = value.map(OsString::into_string).transpose();
        value.map_err(|_| Failure::usage(format!("{name} is not valid UTF-8")))
    }

    pub(crate) fn dsn(&self) -> Result<Option<String>, Failure> {
        self.variable("CENOTE_DSN")
    }

    /// The user's database at this DSN.
    pub(crate) fn database(&self, dsn: String) -> Result<Database, Failure> {
        Ok(Database::Theirs {
            dsn: Secret::from(dsn),
            user: self.variable("CENOTE_USER")?,
            password: self.variable("CENOTE_PASSWORD")?.map(Secret::from),
        })
    }
}

fn migrate(mut parser: lexopt::Parser, environment: &Environment<'_>) -> Result<Command, Failure> {
    let (mut dsn, mut folder, mut table) = (None, None, None);
    let (mut mode, mut json) = (MigrateMode::Apply, false);
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Long("dsn") => dsn = Some(text(&mut parser, "--dsn")?),
            Long("table") => table = Some(text(&mut parser, "--table")?),
            Long("status") => mode = MigrateMode::Status,
            Long("dry-run") => mode = MigrateMode::DryRun,
            Long("json") => json = true,
            Short('h') | Long("help") => return Ok(Command::Help(help::MIGRATE)),
            Long(unknown) => {
                let flags = ["dsn", "table", "status", "dry-run", "json", "help"];
                return Err(unknown_flag(unknown, &flags));
            }
            Value(word) if folder.is_none() => folder = Some(PathBuf::from(word)),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let folder = folder
        .ok_or_else(|| Failure::usage("cenote migrate needs the folder of the migrations"))?;
    let dsn = match dsn {
        None => environment.dsn()?,
        given => given,
    };
    let dsn = dsn.ok_or_else(|| Failure::usage("no database is given: --dsn, or CENOTE_DSN"))?;
    Ok(Command::Migrate(MigrateOptions {
        database: environment.database(dsn)?,
        folder,
        table,
        mode,
        json,
    }))
}

fn check(mut parser: lexopt::Parser, environment: &Environment<'_>) -> Result<Command, Failure> {
    let (mut dsn, mut json) = (None, false);
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Long("json") => json = true,
            Long("dsn") => dsn = Some(text(&mut parser, "--dsn")?),
            Short('h') | Long("help") => return Ok(Command::Help(help::CHECK)),
            Long(unknown) => return Err(unknown_flag(unknown, &["dsn", "json", "help"])),
            Value(word) if dsn.is_none() => dsn = Some(not_empty(word, "the DSN")?),
            // It may be a second DSN, and have a password in it.
            Value(_) => return Err(Failure::usage("cenote check takes one DSN")),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let dsn = match dsn {
        None => environment.dsn()?,
        given => given,
    };
    let dsn =
        dsn.ok_or_else(|| Failure::usage("no database is given: cenote check DSN, or CENOTE_DSN"))?;
    Ok(Command::Check(CheckOptions {
        database: environment.database(dsn)?,
        json,
    }))
}

fn bank(mut parser: lexopt::Parser, environment: &Environment<'_>) -> Result<Command, Failure> {
    let mut report = None;
    let (mut page, mut length) = (false, None);
    let mut options = cenote_bank::Options::default();
    let mut chaos = Chaos::default();
    let mut json = false;
    let mut run = false;
    let mut dsn = None;
    let mut first = true;
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
            Long("cluster") => chaos.cluster = true,
            Long("share-connections") => chaos.share_connections = true,
            Long("dsn") => dsn = Some(text(&mut parser, "--dsn")?),
            Long("tasks") => options.tasks = number(&mut parser, "--tasks", 1, 100_000)?,
            Long("max") => options.max = number(&mut parser, "--max", 1, 10_000)?,
            Long("seconds") => length = Some(seconds(&mut parser)?),
            Long("page") => page = true,
            Long("accounts") => options.accounts = number(&mut parser, "--accounts", 2, 100_000)?,
            Long("seed") => options.seed = seed(&mut parser)?,
            Long("report") => report = Some(PathBuf::from(parser.value().map_err(wrong)?)),
            Long("json") => json = true,
            Long("keep") => options.keep = true,
            Long("force") => options.force = true,
            Short('h') | Long("help") => return Ok(Command::Help(help::CENOTE)),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long(unknown) => return Err(unknown_flag(unknown, &FLAGS)),
            Value(word) => return Err(unknown_word(&word)),
            Short(_) => return Err(wrong(arg.unexpected())),
        }
        first = false;
    }
    options.length = match (length, page) {
        (Some(given), _) => given,
        (None, true) => PAGE_LENGTH,
        (None, false) => options.length,
    };
    let has_kind = chaos.cluster || chaos.share_connections || !chaos.only.is_empty();
    if options.chaos.is_none() && (chaos.server.is_some() || has_kind) {
        let what = "--server, --cluster, --share-connections and --only are for cenote chaos";
        return Err(Failure::usage(what));
    }
    if chaos.cluster && (dsn.is_some() || chaos.server.is_some()) {
        let what = "--cluster starts servers of its own: leave out --dsn and --server";
        return Err(Failure::usage(what));
    }
    if dsn.is_none() && run && !chaos.cluster {
        dsn = environment.dsn()?;
    }
    if let Some(dsn) = dsn {
        options.database = environment.database(dsn)?;
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
        report,
        page,
    }))
}

pub(crate) fn wrong(error: lexopt::Error) -> Failure {
    Failure::usage(error.to_string())
}

pub(crate) fn needs_dsn(flag: &str) -> Failure {
    Failure::usage(format!(
        "{flag} is for a database of yours, and none is given: --dsn, or CENOTE_DSN with cenote run or size"
    ))
}

pub(crate) fn unknown_flag(name: &str, flags: &[&str]) -> Failure {
    let guess = match nearest(name, flags) {
        Some(near) => format!(", did you mean --{near}?"),
        None => String::new(),
    };
    Failure::usage(format!("there is no option --{name}{guess}"))
}

fn unknown_word(word: &OsString) -> Failure {
    let guess = word.to_str().and_then(|word| nearest(word, &COMMANDS));
    let guess = match guess.filter(|guess| *guess != word) {
        Some(near) => format!(", did you mean {near}?"),
        None => format!("; the first word can be {}", COMMANDS.join(", ")),
    };
    let word = word.display();
    Failure::usage(format!("there is no command '{word}'{guess}"))
}

/// A value that may be a secret: it is not quoted when it is wrong.
pub(crate) fn text(parser: &mut lexopt::Parser, name: &str) -> Result<String, Failure> {
    not_empty(parser.value().map_err(wrong)?, name)
}

fn not_empty(value: OsString, name: &str) -> Result<String, Failure> {
    match value.into_string() {
        Ok(text) if !text.is_empty() => Ok(text),
        Ok(_) => Err(Failure::usage(format!("{name} is empty"))),
        Err(_) => Err(Failure::usage(format!("{name} is not valid UTF-8"))),
    }
}

pub(crate) fn number(
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

pub(crate) fn seconds(parser: &mut lexopt::Parser) -> Result<Duration, Failure> {
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

pub(crate) fn seed(parser: &mut lexopt::Parser) -> Result<u64, Failure> {
    let value = parser.value().map_err(wrong)?;
    let seed = value.to_str().and_then(|text| text.parse().ok());
    seed.ok_or_else(|| {
        let (value, most) = (value.display(), u64::MAX);
        Failure::usage(format!(
            "--seed takes a whole number from 0 to {most}, not '{value}'"
        ))
    })
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
        assert!(!chaos.share_connections);
        let shared = options("chaos --share-connections", &[]);
        assert!(shared.bank.chaos.unwrap().share_connections);
        let short = options("chaos --seconds 1", &[("CENOTE_DSN", "sqlite:x.db")]);
        assert_eq!(short.bank.length, Duration::from_secs(1));
        assert_eq!(dsn(&short), Some("sqlite:x.db"));
        let cluster = options("chaos --cluster", &[("CENOTE_DSN", "sqlite:x.db")]);
        assert_eq!(dsn(&cluster), None, "it has servers of its own");
        assert!(cluster.bank.chaos.unwrap().cluster);
        assert!(options("run", &[]).bank.chaos.is_none());
        let some = options("chaos --only crash,cut", &[]);
        assert_eq!(some.bank.chaos.unwrap().only, [Fault::Crash, Fault::Cut]);
    }

    #[test]
    fn run_with_a_page_lasts_until_it_is_stopped() {
        let run = options("run --page", &[]);
        assert!(run.page && run.bank.length == PAGE_LENGTH);
        let short = options("chaos --page --seconds 2", &[]);
        assert!(short.page && short.bank.length == Duration::from_secs(2));
        assert!(!options("run", &[]).page);
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
            ("--cluster", "cenote chaos"),
            ("--share-connections", "cenote chaos"),
            ("chaos --cluster --dsn sqlite:x.db", "leave out --dsn"),
            ("chaos --cluster --server x", "leave out --dsn and --server"),
            ("chaos --only cut,cat", "'cat'"),
            ("chaos --only cat", "single_bytes, black_hole"),
            ("chaos run", "'run'"),
            ("migrate", "folder"),
            ("migrate dir", "no database"),
            ("migrate --dsn sqlite:x.db a b", "b"),
            ("check", "no database"),
            ("check sqlite:x.db sqlite:y.db", "one DSN"),
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
        for (line, guess) in [
            ("--hlep", "--help"),
            ("migrate --dryrun x", "--dry-run"),
            ("check --josn", "--json"),
            ("chek x", "check"),
        ] {
            let error = read_with(line, &[]).unwrap_err();
            assert!(error.contains(&format!("did you mean {guess}?")), "{error}");
        }
        let error = read_with("--banana", &[]).unwrap_err();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn help_names_every_flag_and_every_command() {
        for flag in FLAGS {
            assert!(help::CENOTE.contains(&format!("--{flag}")), "{flag}");
        }
        for command in COMMANDS {
            assert!(
                help::CENOTE.contains(&format!("cenote {command}")),
                "{command}"
            );
        }
    }

    #[test]
    fn migrate_and_check_take_their_database_from_either_side() {
        let variables = [("CENOTE_DSN", "sqlite:env.db")];
        let given = |database: &Database| match database {
            Database::Theirs { dsn, .. } => dsn.expose().to_owned(),
            Database::Temporary => panic!("there is none"),
        };
        for (line, dsn, mode) in [
            (
                "migrate --dsn sqlite:x.db dir",
                "sqlite:x.db",
                MigrateMode::Apply,
            ),
            (
                "migrate dir --dry-run",
                "sqlite:env.db",
                MigrateMode::DryRun,
            ),
            (
                "migrate --status dir --json",
                "sqlite:env.db",
                MigrateMode::Status,
            ),
        ] {
            match read_with(line, &variables) {
                Ok(Command::Migrate(options)) => {
                    assert_eq!(options.folder, PathBuf::from("dir"), "{line}");
                    assert_eq!(given(&options.database), dsn, "{line}");
                    assert_eq!(options.mode, mode, "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        for (line, dsn) in [
            ("check sqlite:x.db", "sqlite:x.db"),
            ("check --json", "sqlite:env.db"),
        ] {
            match read_with(line, &variables) {
                Ok(Command::Check(options)) => assert_eq!(given(&options.database), dsn),
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
