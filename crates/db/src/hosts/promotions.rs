//! Numbers the promotions that a handle has seen, for servers that do not number them themselves.
//!
//! A server that was seen read-only and then writable has been promoted: it begins a new timeline of this handle. Every other
//! server has the timeline in which it was last seen to become writable, until it was seen read-only. So a former primary that wakes
//! up is older than the promoted one. Servers are told apart by what they say of themselves, because a name may move.
//!
//! Several sessions ask a server at the same time, and their answers may be noted in another order. An answer from before a
//! promotion that is noted after it would look like a demotion, and the next answer like another promotion. So questions are
//! numbered, and an answer to an older question than the last one answered changes nothing.

use super::{History, HostRole};

/// The most servers that are remembered: names may move to new servers for ever.
const MOST_SERVERS: usize = 64;

/// The promotions that were seen. Decides, and does no I/O.
#[derive(Debug, Default)]
pub(crate) struct Promotions {
    servers: Vec<Known>,
    /// The number of promotions so far.
    latest: u32,
    /// The number of questions so far.
    questions: u64,
}

/// A question to a server, by its place in the order of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question(u64);

#[derive(Debug)]
struct Known {
    server: String,
    /// What it said last, with the history that it writes: `None` after it was seen read-only.
    role: HostRole,
    question: Question,
}

impl Promotions {
    /// Begins a question to a server.
    pub(crate) fn ask(&mut self) -> Question {
        self.questions += 1;
        Question(self.questions)
    }

    /// Notes what a server has answered. Returns its role with the history that it writes, if it is a primary.
    pub(crate) fn note(
        &mut self,
        server: &str,
        mut role: HostRole,
        question: Question,
    ) -> HostRole {
        let known = self.servers.iter().position(|known| known.server == server);
        let before = known.map(|known| self.servers.remove(known));
        if let Some(newer) = before.as_ref().filter(|known| known.question > question) {
            role = newer.role;
            self.servers.extend(before);
            return role;
        }
        let is_writable = !role.standby && !role.read_only;
        let timeline = match before.map(|known| known.role.history) {
            // It was seen read-only.
            Some(None) if is_writable => {
                self.latest += 1;
                self.latest
            }
            Some(Some(history)) => history.timeline,
            // Nothing says that another primary is newer or older.
            _ => self.latest,
        };
        role.history = is_writable.then_some(History {
            cluster: 0,
            timeline,
        });
        if self.servers.len() == MOST_SERVERS {
            self.servers.remove(0);
        }
        // The one seen last is forgotten last.
        self.servers.push(Known {
            server: server.to_owned(),
            role,
            question,
        });
        role
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(promotions: &mut Promotions, server: &str, writable: bool) -> Option<u32> {
        let question = promotions.ask();
        answered(promotions, server, writable, question)
    }

    fn answered(
        promotions: &mut Promotions,
        server: &str,
        writable: bool,
        question: Question,
    ) -> Option<u32> {
        let role = HostRole::new(!writable, !writable);
        let history = promotions.note(server, role, question).history;
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
    fn late_answer_to_an_older_question_changes_nothing() {
        let mut all = Promotions::default();
        seen(&mut all, "a", false);
        let (older, newer) = (all.ask(), all.ask());
        assert_eq!(answered(&mut all, "a", true, newer), Some(1));
        // From before the promotion.
        assert_eq!(answered(&mut all, "a", false, older), Some(1));
        assert_eq!(seen(&mut all, "a", true), Some(1), "no other promotion");
        // Another server has answers of its own.
        assert_eq!(answered(&mut all, "b", false, older), None);
        assert_eq!(seen(&mut all, "b", true), Some(2));
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
