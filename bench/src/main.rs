//! All pools side by side, in one run: in every round all pools run in turn, and
//! the medians over the rounds are compared. Ratios survive a noisy machine.

mod chart;
mod goals;
mod pools;
mod report;
mod scenarios;
mod stats;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pools::{Entry, Patience};
use report::{Machine, MemoryRow, Report, Row, Table};
use scenarios::crowd::Load;
use scenarios::waiting::Counting;
use stats::{Sample, Summary};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HELP: &str = "\
Runs cenote-pool beside its peers and prints what a checkout costs.

    cargo run --release -- [OPTIONS]

    --quick            about a minute instead of about ten
    --json FILE        writes all results, with every round
    --svg FILE         writes a chart
    --only NAME        only this pool; may be given again
    --scenario NAME    only this scenario; may be given again
    --rounds N         so many rounds
    --help             prints this and the names
";

/// The options of the command line.
#[derive(Default)]
struct Options {
    quick: bool,
    json: Option<String>,
    svg: Option<String>,
    only: Vec<String>,
    scenarios: Vec<String>,
    rounds: Option<usize>,
    help: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = Some(value()?),
                "--svg" => options.svg = Some(value()?),
                "--only" => options.only.push(value()?),
                "--scenario" => options.scenarios.push(value()?),
                "--rounds" => {
                    let number = value()?;
                    let rounds = number.parse().ok().filter(|&rounds| rounds > 0);
                    let wrong = || format!("--rounds takes a number above 0, not {number}");
                    options.rounds = Some(rounds.ok_or_else(wrong)?);
                }
                "--help" | "-h" => options.help = true,
                _ => return Err(format!("there is no option {word}; see --help")),
            }
        }
        Ok(options)
    }

    /// Nothing chosen means everything.
    fn wants(chosen: &[String], name: &str) -> bool {
        chosen.is_empty() || chosen.iter().any(|chosen| chosen == name)
    }

    fn check_names(&self, entries: &[Entry], scenarios: &[Scenario]) -> Result<(), String> {
        for name in &self.only {
            if !entries.iter().any(|entry| entry.name == name) {
                return Err(format!("there is no pool {name}; see --help"));
            }
        }
        for name in &self.scenarios {
            if name != WAITING && !scenarios.iter().any(|scenario| scenario.name == *name) {
                return Err(format!("there is no scenario {name}; see --help"));
            }
        }
        Ok(())
    }
}

/// A scenario that is timed.
struct Scenario {
    name: String,
    title: String,
    /// How long one measurement takes in the full run, in ms. Many threads on
    /// few cores take turns of some ms, so they need longer.
    full: u64,
    quick: u64,
    rounds: (usize, usize),
    kind: Timed,
}

#[derive(Clone, Copy)]
enum Timed {
    One,
    OneHooks,
    Threads(usize),
    Crowd(Load),
}

impl Scenario {
    /// How this pool is measured in it; `None` if it takes no part.
    fn measure(&self, entry: &Entry) -> Option<Box<dyn Fn(Duration) -> Sample>> {
        let (one, threads) = (entry.one, entry.threads);
        let takes_part = match self.kind {
            Timed::OneHooks => entry.in_hooks,
            _ => entry.in_others,
        };
        match self.kind {
            _ if !takes_part => None,
            Timed::One | Timed::OneHooks => Some(Box::new(one)),
            Timed::Threads(count) => Some(Box::new(move |time| threads(count, time))),
            Timed::Crowd(load) => {
                let crowd = entry.waiting?.crowd;
                Some(Box::new(move |time| crowd(load, time)))
            }
        }
    }
}

const WAITING: &str = "waiting";

fn scenarios() -> Vec<Scenario> {
    let scenario = |name: &str, title: &str, times: (u64, u64), kind| Scenario {
        name: name.into(),
        title: title.into(),
        full: times.0,
        quick: times.1,
        rounds: (11, 3),
        kind,
    };
    let crowd = |tasks, max, cancel_half| {
        Timed::Crowd(Load {
            tasks,
            max,
            cancel_half,
        })
    };
    let mut all = vec![
        Scenario {
            rounds: (21, 5),
            ..scenario("one", "one task, nobody waits", (60, 20), Timed::One)
        },
        Scenario {
            rounds: (21, 5),
            ..scenario(
                "one-hooks",
                "one task, all hooks set and ready at once",
                (60, 20),
                Timed::OneHooks,
            )
        },
    ];
    for threads in [1, 2, 4, 8, 16] {
        let name = format!("threads-{threads}");
        let plural = if threads == 1 { "" } else { "s" };
        let title = format!("{threads} thread{plural}, nobody waits");
        let times = if threads <= 2 { (150, 40) } else { (250, 70) };
        all.push(scenario(&name, &title, times, Timed::Threads(threads)));
    }
    all.push(scenario(
        "64-on-8",
        "64 tasks on 8 resources, each held across a yield, 2 worker threads",
        (250, 60),
        crowd(64, 8, false),
    ));
    all.push(scenario(
        "1000-on-10",
        "1000 tasks on 10 resources, each held across a yield, 2 worker threads",
        (250, 60),
        crowd(1000, 10, false),
    ));
    all.push(scenario(
        "storm",
        "64 tasks on 8, every other acquire dropped after one poll; ns for a lease",
        (250, 60),
        crowd(64, 8, true),
    ));
    all
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let options = Options::parse(std::env::args().skip(1))?;
    let (entries, scenarios) = (pools::all(), scenarios());
    if options.help {
        print_help(&entries, &scenarios);
        return Ok(());
    }
    options.check_names(&entries, &scenarios)?;
    let began = Instant::now();
    let mut report = Report {
        machine: Machine::look(),
        quick: options.quick,
        tables: Vec::new(),
        waiters: 100_000,
        memory: Vec::new(),
    };
    println!("{}", report.machine.line());
    println!("ns a checkout = wall time / all checkouts of all threads; medians over the rounds");
    for scenario in &scenarios {
        if !Options::wants(&options.scenarios, &scenario.name) {
            continue;
        }
        let table = measure(scenario, &entries, &options);
        if !table.rows.is_empty() {
            table.print();
            report.tables.push(table);
        }
    }
    if Options::wants(&options.scenarios, WAITING) {
        report.memory = measure_memory(&entries, report.waiters, &options);
        report::print_memory(&report.memory, report.waiters);
    }
    let goals = goals::goals(&report);
    report::print_goals(&goals);
    println!("\n{:.0} s in all", began.elapsed().as_secs_f64());
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report.json(&goals)).expect("plain values");
        write(path, &json)?;
    }
    if let Some(path) = &options.svg {
        write(path, &chart::draw(&report))?;
    }
    Ok(())
}

/// All rounds of a scenario: in each, all pools in turn.
fn measure(scenario: &Scenario, entries: &[Entry], options: &Options) -> Table {
    let (full_rounds, quick_rounds) = scenario.rounds;
    let (time, rounds) = if options.quick {
        (scenario.quick, quick_rounds)
    } else {
        (scenario.full, full_rounds)
    };
    let time = Duration::from_millis(time);
    let rounds = options.rounds.unwrap_or(rounds);
    let subjects: Vec<_> = entries
        .iter()
        .filter(|entry| Options::wants(&options.only, entry.name))
        .filter_map(|entry| Some((entry, scenario.measure(entry)?)))
        .collect();
    let mut samples = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        progress(&format!(
            "{}: round {} of {rounds}",
            scenario.name,
            round + 1
        ));
        for turn in 0..subjects.len() {
            // Each round begins with another pool, so that no pool always follows
            // the same one.
            let subject = (turn + round) % subjects.len();
            let hung = samples[subject].last().is_some_and(is_hung);
            // A pool that hung once is skipped from then on.
            if !hung {
                samples[subject].push(subjects[subject].1(time));
            }
        }
    }
    progress("");
    let rows = subjects
        .iter()
        .zip(samples)
        .map(|((entry, _), samples)| Row {
            name: entry.name,
            kind: entry.kind,
            summary: Summary::of(samples),
        });
    Table {
        scenario: scenario.name.clone(),
        title: format!(
            "{} ({rounds} rounds of {} ms)",
            scenario.title,
            time.as_millis()
        ),
        rows: rows.collect(),
    }
}

fn is_hung(sample: &Sample) -> bool {
    sample.ns.is_none()
}

/// Counted, not timed: once is enough.
fn measure_memory(entries: &[Entry], tasks: usize, options: &Options) -> Vec<MemoryRow> {
    let mut rows = Vec::new();
    for entry in entries {
        let Some(waiting) = entry.waiting.filter(|_| entry.in_others) else {
            continue;
        };
        if !Options::wants(&options.only, entry.name) {
            continue;
        }
        progress(&format!("{WAITING}: {}", entry.name));
        let an_hour = Duration::from_secs(3600);
        rows.push(MemoryRow {
            name: entry.name,
            kind: entry.kind,
            forever: (waiting.memory)(tasks, Patience::Forever),
            within: (waiting.memory)(tasks, Patience::Within(an_hour)),
        });
    }
    progress("");
    rows
}

/// Shows the progress on one line of stderr.
fn progress(line: &str) {
    eprint!("\r{line:60}\r");
    let _ = std::io::stderr().flush();
}

fn write(path: &str, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))
}

fn print_help(entries: &[Entry], scenarios: &[Scenario]) {
    let pools: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let mut names: Vec<&str> = scenarios.iter().map(|scenario| &*scenario.name).collect();
    names.push(WAITING);
    println!("{HELP}");
    println!("pools:     {}", pools.join(" "));
    println!("scenarios: {}", names.join(" "));
}
