//! Counts of hosts, replicas and shared connections, for handles that have them.

use std::sync::{Arc, Weak};

use cenote::{HostStatus, ReplicaStatus, SharedConnections};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::{Counts, number};

/// What an observation reports: further attributes and the value.
type Seen<T> = Vec<(Vec<KeyValue>, T)>;

impl Counts {
    /// Registers what this handle has: hosts and replicas are those of its configuration.
    pub(crate) fn register_servers(self: &Arc<Self>, meter: &Meter) {
        let weak = Arc::downgrade(self);
        if !self.db.hosts().is_empty() {
            register_hosts(&weak, meter);
        }
        if !self.db.replicas().is_empty() {
            register_replicas(&weak, meter);
        }
        if self.db.shared_connections().is_some() {
            register_shared(&weak, meter);
        }
    }

    fn of_hosts<T>(&self, value: impl Fn(&HostStatus) -> T) -> Seen<T> {
        let hosts = self.db.hosts();
        let named = hosts.iter().map(|host| {
            let name = KeyValue::new("cenote.host", host.name.clone());
            (vec![name], value(host))
        });
        named.collect()
    }

    fn of_replicas<T>(&self, value: impl Fn(&ReplicaStatus) -> Option<T>) -> Seen<T> {
        let replicas = self.db.replicas();
        let named = replicas.iter().filter_map(|replica| {
            let name = KeyValue::new("cenote.replica", replica.address.clone());
            Some((vec![name], value(replica)?))
        });
        named.collect()
    }

    fn of_shared<T>(&self, value: impl Fn(&SharedConnections) -> T) -> Seen<T> {
        let shared = self.db.shared_connections();
        shared.iter().map(|of| (Vec::new(), value(of))).collect()
    }

    fn with_pool(&self, mut attributes: Vec<KeyValue>) -> Vec<KeyValue> {
        attributes.extend(self.attributes.iter().cloned());
        attributes
    }
}

/// Registers an instrument by its builder of the meter. Its callback holds the handle weakly.
macro_rules! register {
    ($counts:expr, $meter:ident.$kind:ident($name:literal, $unit:literal, $description:literal), $seen:expr) => {{
        let counts = Weak::clone($counts);
        $meter
            .$kind($name)
            .with_unit($unit)
            .with_description($description)
            .with_callback(move |observer| {
                let Some(counts) = counts.upgrade() else {
                    return;
                };
                for (attributes, value) in $seen(&counts) {
                    observer.observe(value, &counts.with_pool(attributes));
                }
            })
            .build();
    }};
}

fn register_hosts(counts: &Weak<Counts>, meter: &Meter) {
    register!(
        counts,
        meter.i64_observable_gauge("cenote.host.role", "", "1 for the role of the host."),
        |counts: &Counts| {
            let roles = counts.of_hosts(|host| host.state.to_string());
            let with_role = |(mut attributes, role): (Vec<_>, String)| {
                attributes.push(KeyValue::new("cenote.role", role));
                (attributes, 1)
            };
            roles.into_iter().map(with_role).collect::<Seen<i64>>()
        }
    );
    register!(
        counts,
        meter.i64_observable_gauge(
            "cenote.host.usable",
            "",
            "1 if the host gets new connections."
        ),
        |counts: &Counts| counts.of_hosts(|host| i64::from(host.is_usable))
    );
    register!(
        counts,
        meter.i64_observable_up_down_counter(
            "cenote.host.connections",
            "{connection}",
            "The number of open connections to the host."
        ),
        |counts: &Counts| counts.of_hosts(|host| number(host.connections))
    );
    register!(
        counts,
        meter.u64_observable_counter(
            "cenote.host.retired",
            "{retirement}",
            "How often the host has ceased to fit, so that its connections were closed."
        ),
        |counts: &Counts| counts.of_hosts(|host| host.retired)
    );
}

fn register_replicas(counts: &Weak<Counts>, meter: &Meter) {
    register!(
        counts,
        meter.i64_observable_gauge("cenote.replica.usable", "", "1 if the replica gets reads."),
        |counts: &Counts| counts.of_replicas(|replica| Some(i64::from(replica.is_usable)))
    );
    register!(
        counts,
        meter.f64_observable_gauge(
            "cenote.replica.lag",
            "s",
            "How far the replica is behind the primary. Absent while it does not answer."
        ),
        |counts: &Counts| counts.of_replicas(|replica| Some(replica.lag?.as_secs_f64()))
    );
    register!(
        counts,
        meter.i64_observable_up_down_counter(
            "cenote.replica.connections",
            "{connection}",
            "The number of open connections to the replica."
        ),
        |counts: &Counts| counts.of_replicas(|replica| Some(number(replica.connections)))
    );
    register!(
        counts,
        meter.u64_observable_counter(
            "cenote.replica.reads",
            "{read}",
            "The number of reads and transactions that the replica has served."
        ),
        |counts: &Counts| counts.of_replicas(|replica| Some(replica.reads))
    );
    register!(
        counts,
        meter.u64_observable_counter(
            "cenote.primary.reads",
            "{read}",
            "The number of reads that the primary has served because no replica could."
        ),
        |counts: &Counts| {
            let reads = counts.db.primary_reads().by_reason();
            reads.map(|(reason, count)| (vec![KeyValue::new("reason", reason)], count))
        }
    );
}

fn register_shared(counts: &Weak<Counts>, meter: &Meter) {
    register!(
        counts,
        meter.i64_observable_up_down_counter(
            "cenote.shared.connections",
            "{connection}",
            "The number of connections that several tasks share."
        ),
        |counts: &Counts| counts.of_shared(|shared| number(shared.connections))
    );
    register!(
        counts,
        meter.i64_observable_up_down_counter(
            "cenote.shared.reads_in_flight",
            "{read}",
            "The number of reads in flight on shared connections."
        ),
        |counts: &Counts| counts.of_shared(|shared| number(shared.reads_in_flight))
    );
    register!(
        counts,
        meter.u64_observable_counter(
            "cenote.shared.reads",
            "{read}",
            "The number of reads that have run on shared connections."
        ),
        |counts: &Counts| counts.of_shared(|shared| shared.reads)
    );
}
