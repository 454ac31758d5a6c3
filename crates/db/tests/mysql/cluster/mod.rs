//! Several hosts: which one is used, and what happens when the primary changes.

mod failover;
mod galera;
mod host;
mod hung;
mod retired;
mod roles;
mod spread;
mod suspicion;

use crate::servers::WHO;

/// A DSN of servers of this machine that wants one to write to.
pub(crate) fn to_write(ports: &[u16]) -> String {
    of(ports, "target_session_attrs=read-write")
}

fn of(ports: &[u16], options: &str) -> String {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(",");
    format!("mysql:host={hosts};port={ports};{WHO};sslmode=disable;{options}")
}
