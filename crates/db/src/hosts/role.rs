//! What a host says it is, and what that makes of it.

use std::fmt;

/// What a host says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostRole {
    /// The host follows another one.
    pub standby: bool,
    /// Transactions are read-only by default.
    pub read_only: bool,
    /// The host accepts statements: not while a node of a Galera cluster is not synced with it.
    pub ready: bool,
    /// The history that a primary writes; `None` if the host does not say.
    pub history: Option<History>,
}

impl HostRole {
    /// Returns the role of a host whose history is unknown.
    pub fn new(standby: bool, read_only: bool) -> Self {
        HostRole {
            standby,
            read_only,
            ready: true,
            history: None,
        }
    }
}

/// The history that a primary writes. A promotion begins a new timeline of the same cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The number of the cluster, which all its hosts share.
    pub cluster: u64,
    /// The number of the timeline, which grows with each promotion.
    pub timeline: u32,
}

/// What a host is at the moment, as the handle sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostState {
    /// It has not been asked yet.
    Unknown,
    /// It did not answer when it was asked last.
    Silent,
    /// It answers, but accepts no statements: a node of a Galera cluster that is not synced.
    NotReady,
    /// It believes that it is the primary, but another host was promoted since.
    FormerPrimary,
    /// It follows another host.
    Standby,
    /// A primary whose transactions are read-only by default.
    ReadOnly,
    /// It accepts writes. Each synced node of a Galera cluster does.
    Primary,
}

impl fmt::Display for HostState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            HostState::Unknown => "unknown",
            HostState::Silent => "no answer",
            HostState::NotReady => "not ready",
            HostState::FormerPrimary => "former primary",
            HostState::Standby => "standby",
            HostState::ReadOnly => "read-only",
            HostState::Primary => "primary",
        })
    }
}
