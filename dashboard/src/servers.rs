//! Hosts, replicas and shared connections of a handle: what a sample sees of them, and what has happened between two samples.

use std::time::Duration;

use cenote::{
    Db, HostState, HostStatus, PrimaryReads, ReplicaProblem, ReplicaStatus, SharedConnections,
};

use crate::diagnosis::Level;
use crate::json::{Object, object};
use crate::snapshot::{millis, whole};
use crate::text::{count, duration, thousands};

/// What a sample sees. Empty for a handle with one host of any role.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) hosts: Vec<HostStatus>,
    pub(crate) replicas: Vec<ReplicaStatus>,
    pub(crate) primary_reads: PrimaryReads,
    pub(crate) shared: Option<SharedConnections>,
}

/// Something that has happened to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) level: Level,
    pub(crate) text: String,
}

impl Servers {
    pub(crate) fn see(db: &Db) -> Self {
        let replicas = db.replicas();
        Servers {
            hosts: db.hosts(),
            primary_reads: match replicas.is_empty() {
                true => PrimaryReads::default(),
                false => db.primary_reads(),
            },
            replicas,
            shared: db.shared_connections(),
        }
    }

    /// Returns what has happened from this sample to a later one, the most important last.
    pub(crate) fn changes(&self, later: &Servers) -> Vec<Change> {
        let mut changes = Vec::new();
        for (before, now) in self.hosts.iter().zip(&later.hosts) {
            changes.extend(host_changed(before, now));
            if now.retired > before.retired {
                let text = format!(
                    "Host {} no longer fits: its connections are closed",
                    now.name
                );
                changes.push(Change::new(Level::Warning, text));
            }
        }
        for (before, now) in self.replicas.iter().zip(&later.replicas) {
            changes.extend(replica_changed(before, now));
        }
        changes.extend(failover(&self.hosts, &later.hosts));
        changes
    }

    /// Returns why no host gets connections, if none does and any was asked: "db1 standby, db2 no answer".
    pub(crate) fn no_host(&self) -> Option<String> {
        let is_known = |host: &HostStatus| host.state != HostState::Unknown;
        let is_missed = !self.hosts.iter().any(|host| host.is_usable);
        let states = self
            .hosts
            .iter()
            .map(|host| format!("{} {}", host.name, host.state));
        (is_missed && self.hosts.iter().any(is_known))
            .then(|| states.collect::<Vec<_>>().join(", "))
    }

    /// Returns why no replica gets reads, if none does and any was asked.
    pub(crate) fn no_replica(&self) -> Option<String> {
        let is_known = |replica: &ReplicaStatus| replica.problem != Some(ReplicaProblem::NotAsked);
        let is_missed = !self.replicas.iter().any(|replica| replica.is_usable);
        let problems = self.replicas.iter().filter_map(|replica| {
            let problem = replica.problem?;
            Some(format!("{} {problem}", replica.address))
        });
        (is_missed && self.replicas.iter().any(is_known))
            .then(|| problems.collect::<Vec<_>>().join(", "))
    }

    /// Writes the fields of a handle that has servers or shares connections.
    pub(crate) fn write(&self, o: &mut Object<'_>) {
        if !self.hosts.is_empty() {
            o.list("hosts", &self.hosts, |out, host| {
                object(out, |o| write_host(host, o));
            });
        }
        if !self.replicas.is_empty() {
            o.list("replicas", &self.replicas, |out, replica| {
                object(out, |o| write_replica(replica, o));
            });
            o.text("primaryReads", &self.primary_reads_text());
        }
        if let Some(shared) = &self.shared {
            o.object("shared", |o| {
                o.whole("connections", whole(shared.connections));
                o.whole("inFlight", whole(shared.reads_in_flight));
                o.whole("reads", shared.reads);
            });
        }
    }

    /// Writes the lines of an incident.
    pub(crate) fn tell(&self, mut put: impl FnMut(String)) {
        if !self.hosts.is_empty() {
            put("Hosts".to_owned());
        }
        for host in &self.hosts {
            let HostStatus { name, state, .. } = host;
            let open = count(host.connections, "connection");
            let since = since(host.unchanged_for);
            put(format!("  {name}: {state}{since}, {open}"));
        }
        if !self.replicas.is_empty() {
            put(format!("Replicas. {}", self.primary_reads_text()));
        }
        for replica in &self.replicas {
            let state = replica_state(replica);
            let lag = replica.lag.map(|lag| format!(", lag {}", duration(lag)));
            put(format!(
                "  {}: {state}{}{}, reads: {}",
                replica.address,
                since(replica.unchanged_for),
                lag.unwrap_or_default(),
                thousands(replica.reads)
            ));
        }
        if let Some(shared) = &self.shared {
            put(format!("Shared: {}", shared_text(shared)));
        }
    }

    /// "Reads that the primary served instead: 12 (behind 10, failed 2)".
    fn primary_reads_text(&self) -> String {
        let reasons = || self.primary_reads.by_reason();
        let all: u64 = reasons().map(|(_, reads)| reads).sum();
        let named: Vec<_> = reasons()
            .filter(|(_, reads)| *reads > 0)
            .map(|(reason, reads)| format!("{} {}", reason.replace('_', " "), thousands(reads)))
            .collect();
        match all {
            0 => "Replicas served all reads.".to_owned(),
            _ => format!(
                "Reads that the primary served instead: {} ({})",
                thousands(all),
                named.join(", ")
            ),
        }
    }
}

impl Change {
    fn new(level: Level, text: String) -> Self {
        Change { level, text }
    }
}

fn host_changed(before: &HostStatus, now: &HostStatus) -> Option<Change> {
    let (from, to) = (before.state, now.state);
    // That hosts answer at the start is no news.
    let is_news = from != to && (from != HostState::Unknown || to == HostState::Silent);
    let text = match from {
        HostState::Unknown => format!("Host {}: {to}", now.name),
        _ => format!("Host {}: {from} → {to}", now.name),
    };
    is_news.then(|| Change::new(host_level(now), text))
}

fn replica_changed(before: &ReplicaStatus, now: &ReplicaStatus) -> Option<Change> {
    let (from, to) = (before.problem, now.problem);
    if from == to {
        return None;
    }
    let address = &now.address;
    let lag = now.lag.map(|lag| format!(" by {}", duration(lag)));
    let change = match to {
        None => Change::new(Level::Ok, format!("Replica {address} gets reads")),
        // The first question is under way.
        Some(ReplicaProblem::NotAsked | ReplicaProblem::PrimaryUnknown) => return None,
        Some(why @ ReplicaProblem::Lagging) => {
            let lag = lag.unwrap_or_default();
            let text = format!("Replica {address} gets no reads: {why}{lag}");
            Change::new(Level::Warning, text)
        }
        Some(why) => {
            let text = format!("Replica {address} gets no reads: {why}");
            Change::new(replica_level(now), text)
        }
    };
    Some(change)
}

/// Returns the event of a primary that was replaced.
fn failover(before: &[HostStatus], now: &[HostStatus]) -> Option<Change> {
    let primary = |hosts: &[HostStatus]| hosts.iter().position(|host| host.is_primary);
    let (old, new) = (primary(before)?, primary(now)?);
    let timeline = |host: &HostStatus| Some(host.role?.history?.timeline);
    let (was, is) = (&before[old], &now[new]);
    let text = match old == new {
        false => format!("Failover: {} → {}", was.name, is.name),
        true if timeline(was)? < timeline(is)? => {
            format!(
                "Failover: {} is another server, which was promoted",
                is.name
            )
        }
        true => return None,
    };
    Some(Change::new(Level::Warning, text))
}

/// Returns whether something is wrong with a host. A standby that is not used is as it should be.
fn host_level(host: &HostStatus) -> Level {
    match host.state {
        HostState::Silent | HostState::NotReady | HostState::FormerPrimary => Level::Warning,
        _ => Level::Ok,
    }
}

/// Returns whether something is wrong with a replica. The list of replicas may name the primary, too.
fn replica_level(replica: &ReplicaStatus) -> Level {
    match replica.problem {
        None | Some(ReplicaProblem::NotAsked | ReplicaProblem::Primary) => Level::Ok,
        Some(_) => Level::Warning,
    }
}

/// The mark of a server: in use, as it should be without use, or not as it should be.
fn mark(level: Level, is_used: bool) -> &'static str {
    match (level, is_used) {
        (Level::Ok, true) => "ok",
        (Level::Ok, false) => "idle",
        _ => "warning",
    }
}

fn replica_state(replica: &ReplicaStatus) -> String {
    match replica.problem {
        None => "gets reads".to_owned(),
        Some(problem) => format!("no reads: {problem}"),
    }
}

/// " for 4 s", or nothing.
fn since(unchanged_for: Option<Duration>) -> String {
    let time = unchanged_for.map(|time| format!(" for {}", duration(time)));
    time.unwrap_or_default()
}

/// "3 connections, 14 reads in flight, 1,250 so far".
fn shared_text(shared: &SharedConnections) -> String {
    format!(
        "{}, {} in flight, {} so far",
        count(shared.connections, "connection"),
        count(shared.reads_in_flight, "read"),
        thousands(shared.reads)
    )
}

fn write_host(host: &HostStatus, o: &mut Object<'_>) {
    o.text("name", &host.name);
    o.text("role", &host.state.to_string());
    o.text("mark", mark(host_level(host), host.is_usable));
    o.flag("usable", host.is_usable);
    o.flag("primary", host.is_primary);
    o.whole("connections", whole(host.connections));
    o.whole("retired", host.retired);
    o.maybe_whole("since", host.unchanged_for.map(millis));
}

fn write_replica(replica: &ReplicaStatus, o: &mut Object<'_>) {
    o.text("name", &replica.address);
    o.text("state", &replica_state(replica));
    o.text("mark", mark(replica_level(replica), replica.is_usable));
    o.flag("usable", replica.is_usable);
    o.maybe_whole("lag", replica.lag.map(millis));
    o.whole("reads", replica.reads);
    o.whole("connections", whole(replica.connections));
    o.maybe_whole("since", replica.unchanged_for.map(millis));
}
