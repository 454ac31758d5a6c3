//! Numbers the promotions that a handle has seen, for servers that do not number them themselves.
//!
//! A server that was seen read-only and then writable has been promoted: it begins a new timeline of this handle. Every other
//! server has the timeline in which it was last seen to become writable, until it was seen read-only. So a former primary that wakes
//! up is older than the promoted one. Servers are told apart by what they say of themselves, because a name may move.

use super::{History, HostRole};

/// The most servers that are remembered: names may move to new servers for ever.
const MOST_SERVERS: usize = 64;

/// The promotions that were seen. Decides, and does no I/O.
#[derive(Debug, Default)]
pub(crate) struct Promotions {
    servers: Vec<Known>,
    /// The number of promotions so far.
    latest: u32,
}

#[derive(Debug)]
struct Known {
    server: String,
    /// `None` after it was seen read-only.
    timeline: Option<u32>,
}

impl Promotions {
    /// Notes what a server is. Returns the history that it writes, if it is a primary.
    pub(crate) fn note(&mut self, server: &str, role: HostRole) -> Option<History> {
        let known = self.servers.iter().position(|known| known.server == server);
        let before = known.map(|known| self.servers.remove(known).timeline);
        let timeline = match before {
            _ if role.standby || role.read_only => None,
            // It was seen read-only.
            Some(None) => {
                self.latest += 1;
                Some(self.latest)
            }
            Some(timeline) => timeline,
            // Nothing says that another primary is newer or older.
            None => Some(self.latest),
        };
        if self.servers.len() == MOST_SERVERS {
            self.servers.remove(0);
        }
        let server = server.to_owned();
        // The one seen last is forgotten last.
        self.servers.push(Known { server, timeline });
        timeline.map(|timeline| History {
            cluster: 0,
            timeline,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(promotions: &mut Promotions, server: &str, writable: bool) -> Option<u32> {
        let role = HostRole::new(!writable, !writable);
        let history = promotions.note(server, role);
        history.map(|history| history.timeline)
    }

    #[test]
    fn former_primary_is_older_until_it_was_read_only() {
        let mut all = Promotions::default();
        assert_eq!(seen(&mut all, "a", true), Some(0));
        assert_eq!(seen(&mut all, "b", false), None);
        // It hangs, and the other one is promoted.
        assert_eq!(seen(&mut all, "b", true), Some(1));
        assert_eq!(seen(&mut all, "a", true), Some(0), "it wakes up");
        assert_eq!(seen(&mut all, "b", true), Some(1));
        // It follows, and is promoted in turn.
        assert_eq!(seen(&mut all, "a", false), None);
        assert_eq!(seen(&mut all, "a", true), Some(2));
    }

    #[test]
    fn servers_that_were_always_writable_are_equals() {
        let mut all = Promotions::default();
        for server in ["a", "b", "c", "a"] {
            assert_eq!(seen(&mut all, server, true), Some(0));
        }
    }

    #[test]
    fn new_server_is_no_older_than_the_last_promotion() {
        let mut all = Promotions::default();
        seen(&mut all, "a", false);
        assert_eq!(seen(&mut all, "a", true), Some(1));
        assert_eq!(seen(&mut all, "new", true), Some(1));
    }

    #[test]
    fn servers_without_end_take_bounded_room() {
        let mut all = Promotions::default();
        for server in 0..1000 {
            seen(&mut all, &server.to_string(), true);
        }
        assert_eq!(all.servers.len(), MOST_SERVERS);
    }

    proptest! {
        #[test]
        fn timeline_grows_only_by_a_promotion(
            story in prop::collection::vec((0_usize..4, any::<bool>()), 1..60),
        ) {
            let names = ["a", "b", "c", "d"];
            let mut all = Promotions::default();
            let mut was_read_only = [false; 4];
            for (server, writable) in story {
                let before = all.latest;
                let timeline = seen(&mut all, names[server], writable);
                let is_promotion = writable && was_read_only[server];
                prop_assert_eq!(all.latest - before, u32::from(is_promotion));
                prop_assert_eq!(timeline.is_some(), writable);
                if is_promotion {
                    prop_assert_eq!(timeline, Some(all.latest));
                }
                was_read_only[server] = !writable;
            }
        }
    }
}
