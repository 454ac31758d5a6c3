//! What is known about the hosts of a handle, and which of them fit: decides, and does no I/O.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::role::{History, HostRole, HostState};

/// How long calls on a demoted host may go on once a newer primary was seen.
pub(crate) const CUT_AFTER: Duration = Duration::from_secs(1);

/// The most clusters whose timelines are kept: a host may be replaced by one of another cluster.
const MOST_CLUSTERS: usize = 8;

/// Which roles a driver was told to accept.
pub(crate) type Fits = Arc<dyn Fn(HostRole) -> bool + Send + Sync>;

/// What was seen of a host last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    NoAnswer,
    Role(HostRole),
}

#[derive(Clone, Debug)]
struct Host {
    seen: Seen,
    /// What it was after the last change, and since when.
    state: HostState,
    since: Option<Instant>,
    /// A connection of an earlier generation is outdated.
    generation: u64,
    /// How often it has ceased to fit.
    retired: u64,
    /// It was retired and has not fitted since.
    is_retired: bool,
    /// When its outdated connections are cut.
    cut_at: Option<Instant>,
    /// The number of open connections.
    connections: usize,
    /// The number of searches that try this host first.
    searches: usize,
}

/// What follows from what was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The connections of these hosts are outdated.
    pub(crate) outdated: Vec<usize>,
    /// These hosts have ceased to fit.
    pub(crate) retired: Vec<usize>,
    /// These hosts have connections that are to be cut later.
    pub(crate) cut: Vec<usize>,
    /// A host fits that did not before.
    pub(crate) fits_now: bool,
    /// The hosts whose state changed, with the former state and the new one.
    pub(crate) states: Vec<(usize, HostState, HostState)>,
    /// Another host is the primary now, or a promoted server has taken over the name: the former primary, and the new one.
    pub(crate) failover: Option<(usize, usize)>,
}

pub(crate) struct State {
    hosts: Vec<Host>,
    /// The newest history seen of each cluster, the latest cluster last.
    newest: Vec<History>,
    /// The host that is the primary, or was it last. Only histories tell: each node of Galera is a primary.
    primary: Option<usize>,
    fits: Fits,
    /// Only a primary fits.
    writes: bool,
}

impl State {
    /// Knows nothing of `count` hosts. With `writes`, only a primary fits.
    pub(crate) fn new(count: usize, fits: Fits, writes: bool) -> Self {
        let host = Host {
            seen: Seen::Nothing,
            state: HostState::Unknown,
            since: None,
            generation: 0,
            retired: 0,
            is_retired: false,
            cut_at: None,
            connections: 0,
            searches: 0,
        };
        State {
            hosts: vec![host; count],
            newest: Vec::new(),
            primary: None,
            fits,
            writes,
        }
    }

    /// Notes what a host said, or that it did not answer.
    pub(crate) fn observe(&mut self, host: usize, role: Option<HostRole>, now: Instant) -> Change {
        let mut change = Change::default();
        match role {
            Some(role) => self.observe_role(host, role, now, &mut change),
            // Its connections end by themselves, or it comes back as it was.
            None => self.hosts[host].seen = Seen::NoAnswer,
        }
        self.note_states(now, &mut change);
        change
    }

    fn observe_role(&mut self, host: usize, role: HostRole, now: Instant, change: &mut Change) {
        let (did_fit, was_used) = (self.fits_now(host), self.did_fit(host));
        self.hosts[host].seen = Seen::Role(role);
        let is_promoted = self.note_history(role);
        self.note_primary(host, role, is_promoted, change);
        if is_promoted && self.writes {
            // This host as well: its name may have been another server's.
            for old in 0..self.hosts.len() {
                let ceased = old != host && self.did_fit(old);
                self.retire(old, ceased, change);
                self.hosts[old].cut_at = Some(now + CUT_AFTER);
                change.cut.push(old);
            }
        }
        match self.fits(role) {
            true => {
                self.hosts[host].is_retired = false;
                change.fits_now = !did_fit;
            }
            false => self.retire(host, was_used, change),
        }
    }

    /// Notes which host is the primary.
    fn note_primary(
        &mut self,
        host: usize,
        role: HostRole,
        is_promoted: bool,
        change: &mut Change,
    ) {
        if role.standby || role.history.is_none() || self.is_old(role) {
            return;
        }
        let is_still = |before| before == host || self.state(before) == HostState::Primary;
        match self.primary {
            // Two names of one server, or two clusters.
            Some(before) if !is_promoted && is_still(before) => return,
            Some(before) => change.failover = Some((before, host)),
            None => {}
        }
        self.primary = Some(host);
    }

    /// Notes what has become of each host: a promotion makes a former primary of another one.
    fn note_states(&mut self, now: Instant, change: &mut Change) {
        for host in 0..self.hosts.len() {
            let state = self.state(host);
            let it = &mut self.hosts[host];
            if it.state != state {
                change.states.push((host, it.state, state));
                (it.state, it.since) = (state, Some(now));
            }
        }
    }

    pub(crate) fn state(&self, host: usize) -> HostState {
        match self.hosts[host].seen {
            Seen::Nothing => HostState::Unknown,
            Seen::NoAnswer => HostState::Silent,
            Seen::Role(role) if self.is_old(role) => HostState::FormerPrimary,
            Seen::Role(role) if !role.ready => HostState::NotReady,
            Seen::Role(role) if role.standby => HostState::Standby,
            Seen::Role(role) if role.read_only => HostState::ReadOnly,
            Seen::Role(_) => HostState::Primary,
        }
    }

    /// Returns since when the host has been in its state; `None` before it was asked.
    pub(crate) fn since(&self, host: usize) -> Option<Instant> {
        self.hosts[host].since
    }

    /// Returns the host that is the primary, or was it last.
    pub(crate) fn primary(&self) -> Option<usize> {
        self.primary
    }

    /// Notes the history of a primary. Returns whether it is newer than all of its cluster so far.
    fn note_history(&mut self, role: HostRole) -> bool {
        let Some(history) = role.history.filter(|_| !role.standby) else {
            return false;
        };
        let same = |known: &&mut History| known.cluster == history.cluster;
        match self.newest.iter_mut().find(same) {
            Some(known) if known.timeline >= history.timeline => false,
            Some(known) => {
                *known = history;
                true
            }
            None => {
                if self.newest.len() == MOST_CLUSTERS {
                    self.newest.remove(0);
                }
                self.newest.push(history);
                // Nothing says that another cluster is newer.
                false
            }
        }
    }

    /// Makes the connections of a host outdated. `ceased` if it fits no more, and did until now.
    fn retire(&mut self, host: usize, ceased: bool, change: &mut Change) {
        let it = &mut self.hosts[host];
        if it.is_retired {
            return;
        }
        it.is_retired = true;
        it.generation += 1;
        change.outdated.push(host);
        if ceased {
            it.retired += 1;
            change.retired.push(host);
        }
    }

    /// Returns whether a host of this role may be used: it has the right role, and no primary has begun a newer history.
    pub(crate) fn fits(&self, role: HostRole) -> bool {
        (self.fits)(role) && !self.is_old(role)
    }

    /// Returns whether the host is a primary that was replaced by a promoted one.
    pub(crate) fn is_old(&self, role: HostRole) -> bool {
        let Some(history) = role.history.filter(|_| !role.standby) else {
            return false;
        };
        self.newest
            .iter()
            .any(|known| known.cluster == history.cluster && known.timeline > history.timeline)
    }

    /// Returns whether the host fitted by its role when it was seen last, or has connections.
    fn did_fit(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        let has_role = matches!(host.seen, Seen::Role(role) if (self.fits)(role));
        has_role || host.connections > 0
    }

    /// Returns whether a host has answered that does not fit, and none that does.
    pub(crate) fn none_fits(&self) -> bool {
        let mut hosts = 0..self.hosts.len();
        let has_unfit = self
            .hosts
            .iter()
            .any(|host| matches!(host.seen, Seen::Role(_)));
        has_unfit && !hosts.any(|host| self.fits_now(host))
    }

    /// Returns whether the host fitted when it was seen last.
    pub(crate) fn fits_now(&self, host: usize) -> bool {
        match self.hosts[host].seen {
            Seen::Role(role) => self.fits(role),
            Seen::Nothing | Seen::NoAnswer => false,
        }
    }

    /// Returns the hosts in the order in which a connection should try them: those that fit `wanted`, those of unknown
    /// role, those that did not answer, the others. With `spread`, the least used of equals comes first; a search under way
    /// counts as the connection that it will open.
    pub(crate) fn order(&self, wanted: impl Fn(HostRole) -> bool, spread: bool) -> Vec<usize> {
        let rank = |host: &Host| match host.seen {
            Seen::Role(role) if wanted(role) && !self.is_old(role) => 0,
            Seen::Nothing => 1,
            Seen::NoAnswer => 2,
            Seen::Role(_) => 3,
        };
        let used = |host: &Host| match spread {
            true => host.connections + host.searches,
            false => 0,
        };
        let mut order: Vec<usize> = (0..self.hosts.len()).collect();
        order.sort_by_key(|&index| {
            let host = &self.hosts[index];
            (rank(host), used(host), index)
        });
        order
    }

    pub(crate) fn search_begins(&mut self, host: usize) {
        self.hosts[host].searches += 1;
    }

    pub(crate) fn search_ends(&mut self, host: usize) {
        self.hosts[host].searches -= 1;
    }

    pub(crate) fn opened(&mut self, host: usize) {
        self.hosts[host].connections += 1;
    }

    pub(crate) fn closed(&mut self, host: usize) {
        self.hosts[host].connections -= 1;
    }

    pub(crate) fn connections(&self, host: usize) -> usize {
        self.hosts[host].connections
    }

    pub(crate) fn generation(&self, host: usize) -> u64 {
        self.hosts[host].generation
    }

    /// Returns how often the host has ceased to fit.
    pub(crate) fn retired(&self, host: usize) -> u64 {
        self.hosts[host].retired
    }

    pub(crate) fn seen(&self, host: usize) -> Seen {
        self.hosts[host].seen
    }

    /// Returns when the outdated connections of a host are to be cut.
    pub(crate) fn cut_at(&self, host: usize) -> Option<Instant> {
        self.hosts[host].cut_at
    }

    /// Returns whether the outdated connections of a host are to be cut now. Says so once.
    pub(crate) fn take_cut(&mut self, host: usize, now: Instant) -> bool {
        let is_due = self.hosts[host].cut_at.is_some_and(|at| at <= now);
        if is_due {
            self.hosts[host].cut_at = None;
        }
        is_due
    }
}

impl fmt::Debug for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("State")
            .field("hosts", &self.hosts)
            .field("newest", &self.newest)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: u64 = 7;

    fn primary(timeline: u32) -> HostRole {
        let mut role = HostRole::new(false, false);
        role.history = Some(History {
            cluster: CLUSTER,
            timeline,
        });
        role
    }

    fn standby() -> HostRole {
        HostRole::new(true, true)
    }

    fn for_writes(count: usize) -> State {
        State::new(count, Arc::new(|role| !role.standby), true)
    }

    fn start() -> Instant {
        cenote_pool::Runtime::now(&cenote_pool::TokioRuntime::new())
    }

    #[test]
    fn promotion_retires_the_old_primary_and_cuts_it_later() {
        let (mut state, now) = (for_writes(2), start());
        assert!(state.observe(0, Some(primary(1)), now).fits_now);
        let change = state.observe(1, Some(standby()), now);
        assert_eq!((change.outdated, change.retired), (vec![1], vec![]));
        // It hangs, which alone ends nothing.
        let silent = Change {
            states: vec![(0, HostState::Primary, HostState::Silent)],
            ..Change::default()
        };
        assert_eq!(state.observe(0, None, now), silent);
        let change = state.observe(1, Some(primary(2)), now);
        assert_eq!((change.outdated, change.fits_now), (vec![0], true));
        assert_eq!(change.cut, [0, 1]);
        assert_eq!(change.failover, Some((0, 1)));
        assert_eq!(state.order(|role| !role.standby, false), [1, 0]);
        let before = now + CUT_AFTER - Duration::from_millis(1);
        assert!(!state.take_cut(0, before) && !state.take_cut(1, before));
        assert!(state.take_cut(0, now + CUT_AFTER));
        assert!(state.take_cut(1, now + CUT_AFTER));
        assert!(!state.take_cut(0, now + CUT_AFTER), "once");
        // It comes back and believes that it is the primary.
        assert!(!state.fits(primary(1)));
        assert!(!state.observe(0, Some(primary(1)), now).fits_now);
    }

    #[test]
    fn name_that_moves_to_the_new_primary_is_retired_once() {
        let (mut state, now) = (for_writes(1), start());
        state.observe(0, Some(primary(1)), now);
        let change = state.observe(0, Some(primary(2)), now);
        assert_eq!((change.outdated, change.cut), (vec![0], vec![0]));
        assert!(change.retired.is_empty(), "the name still fits");
        assert_eq!((state.generation(0), state.retired(0)), (1, 0));
        assert_eq!(state.observe(0, Some(primary(2)), now), Change::default());
        assert_eq!(state.generation(0), 1, "its new connections stay");
    }

    #[test]
    fn connections_of_before_a_promotion_are_cut_at_any_host() {
        let (mut state, now) = (for_writes(1), start());
        state.observe(0, Some(primary(1)), now);
        state.observe(0, Some(standby()), now);
        let change = state.observe(0, Some(primary(2)), now);
        assert_eq!((change.outdated, change.cut), (vec![], vec![0]));
        assert_eq!((state.generation(0), state.retired(0)), (1, 1));
    }

    #[test]
    fn demoted_host_is_retired_before_there_is_a_new_primary() {
        let (mut state, now) = (for_writes(2), start());
        state.observe(0, Some(primary(1)), now);
        let change = state.observe(0, Some(standby()), now);
        assert_eq!(change.retired, [0]);
        assert_eq!(state.cut_at(0), None, "running calls may end");
        assert_eq!(state.observe(0, Some(standby()), now), Change::default());
        let change = state.observe(0, Some(primary(1)), now);
        assert!(
            change.fits_now,
            "a proxy in front of it was wrong for a moment"
        );
    }

    #[test]
    fn state_of_a_host_tells_since_when_it_is_so() {
        let (mut state, now) = (for_writes(2), start());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!((state.state(0), state.since(0)), (HostState::Unknown, None));
        let change = state.observe(0, Some(primary(1)), now);
        assert_eq!(change.states, [(0, HostState::Unknown, HostState::Primary)]);
        assert_eq!(change.failover, None, "the first primary");
        assert!(
            state
                .observe(0, Some(primary(1)), later(1))
                .states
                .is_empty()
        );
        assert_eq!(
            (state.state(0), state.since(0)),
            (HostState::Primary, Some(now))
        );
        state.observe(1, Some(standby()), later(2));
        let change = state.observe(1, Some(primary(2)), later(3));
        let both = [
            (0, HostState::Primary, HostState::FormerPrimary),
            (1, HostState::Standby, HostState::Primary),
        ];
        assert_eq!(
            change.states, both,
            "a promotion changes the other one, too"
        );
        assert_eq!(state.state(0), HostState::FormerPrimary);
        assert_eq!(state.since(0), Some(later(3)));
        let mut joining = HostRole::new(false, false);
        joining.ready = false;
        state.observe(0, Some(joining), later(4));
        assert_eq!(state.state(0), HostState::NotReady);
        state.observe(0, Some(HostRole::new(false, true)), later(5));
        assert_eq!(state.state(0), HostState::ReadOnly);
    }

    #[test]
    fn failover_is_a_move_of_the_primary() {
        let (mut state, now) = (for_writes(3), start());
        let mut failover = |host, role| state.observe(host, role, now).failover;
        assert_eq!(failover(0, Some(primary(1))), None);
        // Another name of the same server.
        assert_eq!(failover(1, Some(primary(1))), None);
        assert_eq!(failover(0, None), None);
        assert_eq!(failover(2, Some(standby())), None);
        assert_eq!(failover(1, Some(primary(1))), Some((0, 1)));
        assert_eq!(failover(0, Some(primary(1))), None, "both are names of it");
        assert_eq!(failover(2, Some(primary(2))), Some((1, 2)));
        assert_eq!(failover(0, Some(primary(1))), None, "a former primary");
        assert_eq!(
            failover(2, Some(primary(3))),
            Some((2, 2)),
            "its name has moved"
        );
        let galera = HostRole::new(false, false);
        assert_eq!(failover(1, Some(galera)), None);
    }

    #[test]
    fn another_cluster_is_not_older() {
        let (mut state, now) = (for_writes(1), start());
        state.observe(0, Some(primary(5)), now);
        let mut upgraded = primary(1);
        upgraded.history = Some(History {
            cluster: CLUSTER + 1,
            timeline: 1,
        });
        assert!(state.observe(0, Some(upgraded), now).retired.is_empty());
        assert!(state.fits(upgraded) && !state.fits(primary(4)));
    }

    #[test]
    fn clusters_without_end_take_bounded_room() {
        let (mut state, now) = (for_writes(1), start());
        for cluster in 0..1000 {
            let mut role = primary(1);
            role.history = Some(History {
                cluster,
                timeline: 1,
            });
            state.observe(0, Some(role), now);
        }
        assert_eq!(state.newest.len(), MOST_CLUSTERS);
    }

    #[test]
    fn equal_hosts_are_used_evenly() {
        let (mut state, now) = (State::new(3, Arc::new(|_| true), false), start());
        for host in 0..3 {
            state.observe(host, Some(standby()), now);
        }
        for _ in 0..10 {
            let first = state.order(|_| true, true)[0];
            state.opened(first);
        }
        let used: Vec<_> = (0..3).map(|host| state.connections(host)).collect();
        assert_eq!(used, [4, 3, 3]);
        assert_eq!(state.order(|_| true, false), [0, 1, 2]);
    }

    #[test]
    fn searches_under_way_count_as_connections() {
        let mut state = State::new(3, Arc::new(|_| true), false);
        let firsts: Vec<_> = (0..4)
            .map(|_| {
                let first = state.order(|_| true, true)[0];
                state.search_begins(first);
                first
            })
            .collect();
        assert_eq!(firsts, [0, 1, 2, 0]);
        state.search_ends(1);
        assert_eq!(state.order(|_| true, true), [1, 2, 0]);
        assert_eq!(state.order(|_| true, false), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn no_older_timeline_ever_fits_again(
            seen in prop::collection::vec((0_usize..4, 0_u32..8), 1..60),
        ) {
            let (mut state, start) = (for_writes(4), start());
            let mut newest = 0;
            let mut generations = [0; 4];
            for (n, (host, what)) in seen.into_iter().enumerate() {
                let now = start + Duration::from_millis(300 * n as u64);
                let role = match what {
                    0 => None,
                    1 => Some(standby()),
                    timeline => Some(primary(timeline)),
                };
                let change = state.observe(host, role, now);
                if what > 1 {
                    newest = newest.max(what);
                }
                for timeline in 2..8 {
                    prop_assert_eq!(state.fits(primary(timeline)), timeline >= newest);
                }
                for (host, before) in generations.iter_mut().enumerate() {
                    let after = state.generation(host);
                    prop_assert_eq!(after - *before, u64::from(change.outdated.contains(&host)));
                    *before = after;
                    if state.take_cut(host, now) {
                        prop_assert!(state.cut_at(host).is_none());
                    }
                }
                let order = state.order(|role| !role.standby, true);
                let fits: Vec<_> = order.iter().map(|&host| state.fits_now(host)).collect();
                prop_assert!(fits.is_sorted_by(|a, b| a >= b), "the fitting ones come first");
                let mut all = order;
                all.sort_unstable();
                prop_assert_eq!(all, vec![0, 1, 2, 3]);
            }
        }
    }
}
