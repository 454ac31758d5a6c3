//! The required and the desired results of the pool, computed from this run.

use crate::report::Report;
use crate::scenarios::waiting::Memory;

/// One number and the limits it has to keep.
pub struct Goal {
    pub what: &'static str,
    pub unit: Unit,
    /// `None` if the run left out a scenario that the number needs.
    pub value: Option<f64>,
    /// The same with `Order::Fifo`.
    pub fifo: Option<f64>,
    pub must: Option<f64>,
    pub aim: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A multiple of the named result.
    Times,
    Bytes,
}

impl Goal {
    pub fn verdict(&self) -> &'static str {
        let Some(value) = self.value else {
            return "not measured";
        };
        let within = |limit: Option<f64>| limit.map(|limit| value <= limit);
        match (within(self.must), within(self.aim)) {
            (Some(false), _) => "SHORT",
            (None, Some(false)) => "aim not met",
            (Some(true), Some(false)) => "ok, aim not met",
            (Some(true), None) => "ok",
            (_, Some(true)) => "ok, aim met",
            (None, None) => "",
        }
    }
}

const OURS: &str = "cenote";
const OWNED: &str = "cenote-owned";
const FIFO: &str = "cenote-fifo";
const DEADPOOL: &str = "deadpool";

/// All goals, in the order they were set.
pub fn goals(report: &Report) -> Vec<Goal> {
    let time = |scenario: &str, pool: &str| report.summary(scenario, pool)?.ns;
    let worst = |scenario: &str, pool: &str| Some(report.summary(scenario, pool)?.waits?.worst);
    // A multiple of deadpool's time in the same scenario.
    let by_time =
        |scenario: &str, pool: &str| Some(time(scenario, pool)? / time(scenario, DEADPOOL)?);
    let by_worst =
        |scenario: &str, pool: &str| Some(worst(scenario, pool)? / worst(scenario, DEADPOOL)?);
    let by_queue = |pool: &str| Some(time("one", pool)? / time("one", "floor-array-queue")?);
    let by_itself = |pool: &str| Some(time("threads-2", pool)? / time("threads-1", pool)?);
    let memory = |pool: &str, pick: fn(&crate::report::MemoryRow) -> Option<Memory>| {
        let row = report.memory.iter().find(|row| row.name == pool)?;
        Some(pick(row)?.beyond_task)
    };

    // With the setting that is printed beside it.
    let goal = |what, unit, must, aim, of: &dyn Fn(&str) -> Option<f64>| Goal {
        what,
        unit,
        value: of(OURS),
        fifo: of(FIFO),
        must,
        aim,
    };
    // Of one pool only.
    let single = |what, must, aim, value| Goal {
        what,
        unit: Unit::Times,
        value,
        fifo: None,
        must,
        aim,
    };
    let times = Unit::Times;
    vec![
        goal(
            "one task, no hooks, × deadpool",
            times,
            Some(0.25),
            None,
            &|pool| by_time("one", pool),
        ),
        goal(
            "one task, no hooks, × the bare array queue",
            times,
            None,
            Some(1.0),
            &by_queue,
        ),
        single(
            "one task, all hooks ready at once, × deadpool",
            Some(0.40),
            Some(0.30),
            by_time("one-hooks", "cenote-hooks"),
        ),
        goal(
            "2 threads, nobody waits, × deadpool",
            times,
            Some(0.10),
            Some(0.05),
            &|pool| by_time("threads-2", pool),
        ),
        single(
            "2 threads, nobody waits, owned lease, × deadpool",
            Some(0.10),
            Some(0.05),
            by_time("threads-2", OWNED),
        ),
        goal(
            "2 threads, × its own time on one thread",
            times,
            None,
            Some(0.5),
            &by_itself,
        ),
        single(
            "2 threads, owned lease, × its own time on one thread",
            None,
            Some(0.5),
            by_itself(OWNED),
        ),
        goal(
            "16 threads, nobody waits, × deadpool",
            times,
            Some(0.15),
            Some(0.08),
            &|pool| by_time("threads-16", pool),
        ),
        single(
            "16 threads, nobody waits, owned lease, × deadpool",
            Some(0.15),
            Some(0.08),
            by_time("threads-16", OWNED),
        ),
        goal(
            "64 tasks on 8, × deadpool",
            times,
            Some(0.80),
            Some(0.5),
            &|pool| by_time("64-on-8", pool),
        ),
        goal(
            "64 tasks on 8, worst wait, × deadpool",
            times,
            Some(1.0),
            None,
            &|pool| by_worst("64-on-8", pool),
        ),
        goal(
            "1000 tasks on 10, × deadpool",
            times,
            Some(0.80),
            Some(0.5),
            &|pool| by_time("1000-on-10", pool),
        ),
        goal(
            "1000 tasks on 10, worst wait, × deadpool",
            times,
            Some(1.0),
            None,
            &|pool| by_worst("1000-on-10", pool),
        ),
        goal(
            "a waiter, beyond its task",
            Unit::Bytes,
            Some(256.0),
            Some(128.0),
            &|pool| memory(pool, |row| row.forever),
        ),
        goal(
            "a waiter with a timeout, beyond its task",
            Unit::Bytes,
            Some(256.0),
            Some(128.0),
            &|pool| memory(pool, |row| row.within),
        ),
    ]
}
