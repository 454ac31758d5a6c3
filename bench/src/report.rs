//! The results: as tables for people, and as JSON with every round for machines.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::goals::{Goal, Unit};
use crate::pools::Kind;
use crate::scenarios::waiting::Memory;
use crate::stats::{Sample, Summary};

/// Everything a run found out.
pub struct Report {
    pub machine: Machine,
    pub quick: bool,
    pub tables: Vec<Table>,
    /// How many tasks waited for the numbers in `memory`.
    pub waiters: usize,
    pub memory: Vec<MemoryRow>,
}

/// One scenario.
pub struct Table {
    pub scenario: String,
    pub title: String,
    pub rows: Vec<Row>,
}

/// One pool in a scenario.
pub struct Row {
    pub name: &'static str,
    pub kind: Kind,
    pub summary: Summary,
}

/// What one waiter costs, without and with a timeout on the acquire.
pub struct MemoryRow {
    pub name: &'static str,
    pub kind: Kind,
    pub forever: Option<Memory>,
    pub within: Option<Memory>,
}

/// Where and when it ran.
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub rustc: &'static str,
    pub date: String,
    /// The load of the last minute, before anything was measured.
    pub load: String,
}

impl Machine {
    pub fn look() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let cpu = model.and_then(|line| line.split(':').nth(1));
        let date = Command::new("date").args(["-u", "+%FT%TZ"]).output();
        let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let load = read("/proc/loadavg");
        Machine {
            cpu: cpu.unwrap_or("unknown").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            rustc: env!("BUILT_WITH"),
            date: date.unwrap_or_default(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    pub fn line(&self) -> String {
        format!(
            "{}, {} cores, Linux {}, {}, {}, load before {}",
            self.cpu, self.cores, self.kernel, self.rustc, self.date, self.load
        )
    }
}

impl Report {
    pub fn summary(&self, scenario: &str, pool: &str) -> Option<&Summary> {
        let table = self
            .tables
            .iter()
            .find(|table| table.scenario == scenario)?;
        let row = table.rows.iter().find(|row| row.name == pool)?;
        Some(&row.summary)
    }

    pub fn json(&self, goals: &[Goal]) -> Value {
        let Machine {
            cpu,
            cores,
            kernel,
            rustc,
            date,
            load,
        } = &self.machine;
        let scenarios: Vec<Value> = self.tables.iter().map(Table::json).collect();
        let memory: Vec<Value> = self.memory.iter().map(MemoryRow::json).collect();
        let goals: Vec<Value> = goals.iter().map(goal_json).collect();
        json!({
            "machine": {
                "cpu": cpu,
                "cores": cores,
                "kernel": kernel,
                "rustc": rustc,
                "date": date,
                "load_before": load,
            },
            "quick": self.quick,
            "scenarios": scenarios,
            "waiting": { "tasks": self.waiters, "pools": memory },
            "goals": goals,
        })
    }
}

impl Table {
    pub fn has_waits(&self) -> bool {
        self.rows.iter().any(|row| row.summary.waits.is_some())
    }

    pub fn print(&self) {
        println!("\n## {}: {}\n", self.scenario, self.title);
        let deadpool = self.rows.iter().find(|row| row.name == "deadpool");
        let deadpool = deadpool.and_then(|row| row.summary.ns);
        print!(
            "{:24}{:>10}{:>20}{:>12}",
            "", "ns", "from – to", "× deadpool"
        );
        if self.has_waits() {
            print!("{:>12}{:>12}{:>12}", "mean µs", "p99 µs", "worst µs");
        }
        println!();
        for row in &self.rows {
            println!("{}", row.line(deadpool, self.has_waits()).trim_end());
        }
    }

    fn json(&self) -> Value {
        let pools: Vec<Value> = self.rows.iter().map(Row::json).collect();
        json!({ "name": self.scenario, "title": self.title, "pools": pools })
    }
}

impl Row {
    fn line(&self, deadpool: Option<f64>, with_waits: bool) -> String {
        let Summary {
            ns,
            fastest,
            slowest,
            waits,
            starved,
            hung,
            ..
        } = &self.summary;
        let mut line = format!("{:24}", self.name);
        match ns {
            Some(ns) => {
                let range = format!("{} – {}", nanos(*fastest), nanos(*slowest));
                let ratio = deadpool.map_or_else(|| "–".into(), |by| ratio(ns / by));
                line += &format!("{:>10}{range:>20}{ratio:>12}", nanos(*ns));
            }
            None => line += &format!("{:>10}{:>20}{:>12}", "–", "–", "–"),
        }
        if with_waits {
            match waits {
                Some(waits) => {
                    line += &format!(
                        "{:>12}{:>12}{:>12}",
                        micros(waits.mean),
                        micros(waits.p99),
                        micros(waits.worst)
                    );
                }
                None => line += &format!("{:>12}{:>12}{:>12}", "–", "–", "–"),
            }
        }
        if *hung {
            line += "  starved: did not end";
        } else if *starved > 0 {
            line += &format!("  starved: {starved} tasks got nothing");
        }
        line
    }

    fn json(&self) -> Value {
        let Summary {
            rounds,
            ns,
            fastest,
            slowest,
            waits,
            worst_of_all,
            starved,
            hung,
        } = &self.summary;
        let rounds: Vec<Value> = rounds.iter().map(sample_json).collect();
        json!({
            "pool": self.name,
            "kind": self.kind.name(),
            "ns": ns,
            "ns_fastest": ns.and(Some(fastest)),
            "ns_slowest": ns.and(Some(slowest)),
            "wait_mean_us": waits.map(|waits| waits.mean),
            "wait_p99_us": waits.map(|waits| waits.p99),
            "wait_worst_us": waits.map(|waits| waits.worst),
            "wait_worst_of_all_rounds_us": worst_of_all,
            "starved_tasks": starved,
            "did_not_end": hung,
            "rounds": rounds,
        })
    }
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "ns": sample.ns,
        "checkouts": sample.checkouts,
        "wait_mean_us": sample.waits.map(|waits| waits.mean),
        "wait_p99_us": sample.waits.map(|waits| waits.p99),
        "wait_worst_us": sample.waits.map(|waits| waits.worst),
        "starved_tasks": sample.starved,
    })
}

impl MemoryRow {
    fn json(&self) -> Value {
        let of = |memory: Option<Memory>| {
            memory.map(|memory| {
                json!({
                    "bytes_beyond_task": memory.beyond_task,
                    "bytes_allocated_by_pool": memory.by_pool,
                    "bytes_of_future": memory.future,
                })
            })
        };
        json!({
            "pool": self.name,
            "kind": self.kind.name(),
            "without_timeout": of(self.forever),
            "with_timeout": of(self.within),
        })
    }
}

pub fn print_memory(rows: &[MemoryRow], tasks: usize) {
    println!("\n## waiting: {tasks} tasks wait at once on a pool of one; bytes a waiter\n");
    println!(
        "{:24}{:^36}{:^36}",
        "", "without a timeout", "with a timeout"
    );
    print!("{:24}", "");
    for _ in 0..2 {
        print!("{:>12}{:>12}{:>12}", "beyond task", "by the pool", "future");
    }
    println!();
    for row in rows {
        print!("{:24}", row.name);
        for memory in [row.forever, row.within] {
            match memory {
                Some(Memory {
                    beyond_task,
                    by_pool,
                    future,
                }) => print!("{beyond_task:>12.0}{by_pool:>12.0}{future:>12}"),
                None => print!("{:>12}{:>12}{:>12}", "–", "–", "–"),
            }
        }
        println!();
    }
}

pub fn print_goals(goals: &[Goal]) {
    println!("\n## goals: this run's medians\n");
    println!(
        "{:56}{:>8}{:>8}{:>8}  {:18}{:>8}",
        "", "cenote", "must ≤", "aim ≤", "verdict", "fifo"
    );
    for goal in goals {
        let number = |value: Option<f64>| match (value, goal.unit) {
            (None, _) => "–".to_owned(),
            (Some(value), Unit::Times) => ratio(value),
            (Some(value), Unit::Bytes) => format!("{value:.0} B"),
        };
        println!(
            "{:56}{:>8}{:>8}{:>8}  {:18}{:>8}",
            goal.what,
            number(goal.value),
            number(goal.must),
            number(goal.aim),
            goal.verdict(),
            number(goal.fifo),
        );
    }
}

fn goal_json(goal: &Goal) -> Value {
    json!({
        "what": goal.what,
        "unit": match goal.unit { Unit::Times => "times", Unit::Bytes => "bytes" },
        "value": goal.value,
        "must_be_at_most": goal.must,
        "aim_at_most": goal.aim,
        "verdict": goal.verdict(),
        "with_fifo": goal.fifo,
    })
}

/// Rounds to three significant digits.
pub fn nanos(ns: f64) -> String {
    if ns < 100.0 {
        format!("{ns:.1}")
    } else {
        format!("{ns:.0}")
    }
}

pub fn micros(us: f64) -> String {
    if us < 100.0 {
        format!("{us:.1}")
    } else {
        format!("{us:.0}")
    }
}

fn ratio(times: f64) -> String {
    if times < 10.0 {
        format!("{times:.3}")
    } else {
        format!("{times:.1}")
    }
}
