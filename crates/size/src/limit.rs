//! What keeps more connections from doing more: pure rules over what was seen at the knee and beyond it.
//!
//! Beyond the knee, each further connection waits for what is scarce. So the kind of wait that grows with the number of
//! connections is the limit.

use serde::Serialize;

/// The share of the further connections that must wait for one thing to name it.
const SHARE: f64 = 0.3;
/// From this share on, processors count as used up.
const FULL: f64 = 0.85;

/// What limits throughput.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// The processors of this program.
    ClientCpu,
    /// The processors of the server.
    ServerCpu,
    /// Locks of the database: rows, tables, advisory or internal ones.
    Locks,
    /// The disk of the server: reads, or the flush of each commit.
    Disk,
    /// The one writer of SQLite.
    OneWriter,
    /// None was reached: throughput still grew with the most connections.
    NotReached,
    /// Nothing that could be seen grew.
    Unknown,
}

impl Limit {
    /// Returns the limit in words.
    pub fn name(self) -> &'static str {
        match self {
            Limit::ClientCpu => "the CPU of this program",
            Limit::ServerCpu => "the CPU of the server",
            Limit::Locks => "locks in the database",
            Limit::Disk => "the disk of the server",
            Limit::OneWriter => "SQLite's one writer",
            Limit::NotReached => "not reached",
            Limit::Unknown => "unknown",
        }
    }
}

/// What the server's sessions did, on average: how many were working, or waiting for what.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Activity {
    /// Sessions that run, or wait for a processor.
    pub cpu: f64,
    /// Sessions that wait for a lock.
    pub locks: f64,
    /// Sessions that wait for the disk.
    pub disk: f64,
    /// Sessions that sleep because their statement asks for it.
    pub sleeping: f64,
    /// Sessions that wait for anything else, such as their client.
    pub other: f64,
}

impl Activity {
    /// Returns the mean of several. `None` if there are none.
    pub(crate) fn mean<'a>(all: impl IntoIterator<Item = &'a Activity>) -> Option<Activity> {
        let (mut sum, mut count) = (Activity::default(), 0.0);
        for one in all {
            count += 1.0;
            sum.cpu += one.cpu;
            sum.locks += one.locks;
            sum.disk += one.disk;
            sum.sleeping += one.sleeping;
            sum.other += one.other;
        }
        (count > 0.0).then(|| Activity {
            cpu: sum.cpu / count,
            locks: sum.locks / count,
            disk: sum.disk / count,
            sleeping: sum.sleeping / count,
            other: sum.other / count,
        })
    }
}

/// What was seen at one size, averaged over its measurements. `None` is unknown.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Evidence {
    /// How many processors this program used.
    pub client_cpu: Option<f64>,
    /// The share of this machine's processors that were busy.
    pub machine_cpu: Option<f64>,
    /// The sessions of the server.
    pub activity: Option<Activity>,
    /// How many calls waited to write, on a database with one writer.
    pub waiting_to_write: f64,
}

impl Evidence {
    /// Returns the mean of several; each figure of those that know it.
    pub(crate) fn mean(all: &[Evidence]) -> Evidence {
        let known = |of: fn(&Evidence) -> Option<f64>| {
            let known: Vec<f64> = all.iter().filter_map(of).collect();
            #[allow(clippy::cast_precision_loss, reason = "a number of repeats")]
            let count = known.len() as f64;
            (count > 0.0).then(|| known.iter().sum::<f64>() / count)
        };
        Evidence {
            client_cpu: known(|it| it.client_cpu),
            machine_cpu: known(|it| it.machine_cpu),
            activity: Activity::mean(all.iter().filter_map(|it| it.activity.as_ref())),
            waiting_to_write: known(|it| Some(it.waiting_to_write)).unwrap_or(0.0),
        }
    }
}

/// The circumstances of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// The processors of this machine.
    pub processors: f64,
    /// The server runs on this machine.
    pub is_local: bool,
    /// The database is a library in this program.
    pub is_embedded: bool,
}

/// Names the limit: `knee` is what was seen with as many connections as the knee has, `beyond` with `further` connections
/// more. Returns the evidence in words, too.
pub fn limit(
    setting: Setting,
    knee: &Evidence,
    beyond: &Evidence,
    further: usize,
) -> (Limit, String) {
    #[allow(clippy::cast_precision_loss, reason = "a number of connections")]
    let needed = (SHARE * further as f64).max(0.5);
    if beyond.waiting_to_write >= needed {
        let text = format!(
            "{:.1} calls wait to write on average",
            beyond.waiting_to_write
        );
        return (Limit::OneWriter, text);
    }
    let cpu = beyond.client_cpu.unwrap_or(0.0);
    let machine = beyond.machine_cpu.unwrap_or(0.0);
    let is_full = machine >= FULL;
    if cpu >= FULL * setting.processors
        || (is_full && setting.is_embedded && cpu >= 0.5 * setting.processors)
    {
        return (
            Limit::ClientCpu,
            format!(
                "this program uses {cpu:.1} of {:.0} processors",
                setting.processors
            ),
        );
    }
    if let (Some(before), Some(after)) = (&knee.activity, &beyond.activity) {
        let grown = [
            (Limit::Locks, after.locks - before.locks, "wait for locks"),
            (Limit::Disk, after.disk - before.disk, "wait for the disk"),
            (
                Limit::ServerCpu,
                after.cpu - before.cpu,
                "run or wait for a processor",
            ),
        ];
        let most = grown.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((which, more, what)) = most.filter(|(_, more, _)| *more >= needed) {
            // The server waits for a processor, but this program uses most of them.
            let is_ours = which == Limit::ServerCpu
                && setting.is_local
                && is_full
                && cpu > 0.5 * machine * setting.processors;
            if is_ours {
                let text = format!(
                    "the machine is full, and this program uses {cpu:.1} of {:.0} processors",
                    setting.processors
                );
                return (Limit::ClientCpu, text);
            }
            let text = format!("{more:.1} of {further} further connections {what} in the server");
            return (which, text);
        }
    }
    if is_full && setting.is_local && !setting.is_embedded {
        return (
            Limit::ServerCpu,
            format!(
                "{:.0} % of this machine's processors are busy",
                machine * 100.0
            ),
        );
    }
    (
        Limit::Unknown,
        "nothing that can be seen from here grew with the connections".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: Setting = Setting {
        processors: 2.0,
        is_local: false,
        is_embedded: false,
    };

    fn activity(activity: Activity) -> Evidence {
        Evidence {
            client_cpu: Some(0.2),
            machine_cpu: Some(0.4),
            activity: Some(activity),
            waiting_to_write: 0.0,
        }
    }

    #[test]
    fn limit_is_what_further_connections_wait_for() {
        let knee = activity(Activity {
            cpu: 1.0,
            sleeping: 3.0,
            ..Activity::default()
        });
        let with = |change: fn(&mut Activity)| {
            let mut beyond = knee;
            change(beyond.activity.as_mut().unwrap());
            limit(REMOTE, &knee, &beyond, 4).0
        };
        assert_eq!(with(|it| it.locks += 3.0), Limit::Locks);
        assert_eq!(with(|it| it.disk += 3.0), Limit::Disk);
        assert_eq!(with(|it| it.cpu += 3.0), Limit::ServerCpu);
        assert_eq!(with(|it| it.sleeping += 3.0), Limit::Unknown);
        assert_eq!(with(|it| it.locks += 0.4), Limit::Unknown);
    }

    #[test]
    fn busy_client_is_named_before_the_server() {
        let busy = Evidence {
            client_cpu: Some(1.9),
            machine_cpu: Some(1.0),
            ..Evidence::default()
        };
        let (which, text) = limit(REMOTE, &busy, &busy, 8);
        assert_eq!(which, Limit::ClientCpu);
        assert_eq!(text, "this program uses 1.9 of 2 processors");
    }

    #[test]
    fn shared_machine_is_charged_to_who_uses_more() {
        let local = Setting {
            is_local: true,
            ..REMOTE
        };
        let knee = Evidence {
            machine_cpu: Some(1.0),
            activity: Some(Activity::default()),
            ..Evidence::default()
        };
        for (cpu, which) in [(1.4, Limit::ClientCpu), (0.4, Limit::ServerCpu)] {
            let beyond = Evidence {
                client_cpu: Some(cpu),
                activity: Some(Activity {
                    cpu: 6.0,
                    ..Activity::default()
                }),
                ..knee
            };
            assert_eq!(limit(local, &knee, &beyond, 8).0, which);
        }
    }

    #[test]
    fn queue_of_writers_is_the_one_writer() {
        let beyond = Evidence {
            waiting_to_write: 12.0,
            client_cpu: Some(2.0),
            ..Evidence::default()
        };
        assert_eq!(
            limit(REMOTE, &Evidence::default(), &beyond, 8).0,
            Limit::OneWriter
        );
    }

    #[test]
    fn what_cannot_be_seen_is_unknown() {
        let nothing = Evidence::default();
        assert_eq!(limit(REMOTE, &nothing, &nothing, 8).0, Limit::Unknown);
    }
}
