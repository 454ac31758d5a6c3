//! The metrics of hosts, replicas and shared connections. A handle without them has no such series.

use super::{Labels, Metric, Snapshot, Values, label, no_label, number};
use crate::{HostStatus, ReplicaStatus, SharedConnections};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "cenote_host_role",
        help: "1 for the role of the host: primary, standby, read-only, former primary, not ready, no answer, unknown.",
        values: Values::Gauge(|of| {
            let series = of.hosts.iter().map(|host| {
                let role = ("cenote_role", host.state.to_string().into());
                (vec![("cenote_host", host.name.as_str().into()), role], 1)
            });
            series.collect()
        }),
    },
    Metric {
        name: "cenote_host_usable",
        help: "1 if the host gets new connections.",
        values: Values::Gauge(|of| hosts(of, |host| u64::from(host.is_usable))),
    },
    Metric {
        name: "cenote_host_connections",
        help: "Open connections to the host.",
        values: Values::Gauge(|of| hosts(of, |host| number(host.connections))),
    },
    Metric {
        name: "cenote_host_retired_total",
        help: "How often the host has ceased to fit, so that its connections were closed.",
        values: Values::Counter(|of| hosts(of, |host| host.retired)),
    },
    Metric {
        name: "cenote_replica_usable",
        help: "1 if the replica gets reads.",
        values: Values::Gauge(|of| replicas(of, |replica| Some(u64::from(replica.is_usable)))),
    },
    Metric {
        name: "cenote_replica_lag_seconds",
        help: "How far the replica is behind the primary. Absent while it does not answer.",
        values: Values::Seconds(|of| replicas(of, |replica| replica.lag)),
    },
    Metric {
        name: "cenote_replica_connections",
        help: "Open connections to the replica.",
        values: Values::Gauge(|of| replicas(of, |replica| Some(number(replica.connections)))),
    },
    Metric {
        name: "cenote_replica_reads_total",
        help: "Reads and transactions that the replica has served.",
        values: Values::Counter(|of| replicas(of, |replica| Some(replica.reads))),
    },
    Metric {
        name: "cenote_primary_reads_total",
        help: "Reads that the primary has served because no replica could, by the reason.",
        values: Values::Counter(|of| match of.replicas.is_empty() {
            true => Vec::new(),
            false => {
                let reads = of.primary_reads.by_reason();
                let series = reads.map(|(reason, count)| (label("reason", reason), count));
                series.collect()
            }
        }),
    },
    Metric {
        name: "cenote_shared_connections",
        help: "Connections that several tasks share now.",
        values: Values::Gauge(|of| shared(of, |shared| number(shared.connections))),
    },
    Metric {
        name: "cenote_shared_reads_in_flight",
        help: "Reads in flight on shared connections.",
        values: Values::Gauge(|of| shared(of, |shared| number(shared.reads_in_flight))),
    },
    Metric {
        name: "cenote_shared_reads_total",
        help: "Reads that have run on shared connections.",
        values: Values::Counter(|of| shared(of, |shared| shared.reads)),
    },
];

/// Returns the value of each host.
fn hosts(of: &Snapshot, value: impl Fn(&HostStatus) -> u64) -> Vec<(Labels<'_>, u64)> {
    let hosts = of.hosts.iter();
    hosts
        .map(|host| (label("cenote_host", &host.name), value(host)))
        .collect()
}

/// Returns the value of each replica that has one.
fn replicas<T>(of: &Snapshot, value: impl Fn(&ReplicaStatus) -> Option<T>) -> Vec<(Labels<'_>, T)> {
    let named = of.replicas.iter().filter_map(|replica| {
        let value = value(replica)?;
        Some((label("cenote_replica", &replica.address), value))
    });
    named.collect()
}

fn shared(of: &Snapshot, value: impl Fn(&SharedConnections) -> u64) -> Vec<(Labels<'_>, u64)> {
    let shared = of.shared.iter();
    shared.map(|shared| (no_label(), value(shared))).collect()
}
