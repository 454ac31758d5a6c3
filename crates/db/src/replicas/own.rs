//! What a coroutine has written, and from where its reads must see it.

use super::position::{LogPosition, Point, Position};

/// What a coroutine has written on one `Db`. Spawned coroutines begin with a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// The newest known position.
    reached: Option<LogPosition>,
    /// How many writes have ended at an unknown position.
    unknown: u64,
    /// Of these, how many had ended when a write began whose position is known.
    covered: u64,
    /// How many streams that write have not ended: each commits at its end, after any position that is known now.
    open: u64,
}

/// What a read of a coroutine has to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Nothing,
    /// Everything up to this position.
    Position(LogPosition),
    /// Something at an unknown position.
    Primary,
}

impl Own {
    /// Notes that a write begins. Returns what [`reach`](Own::reach) needs when it has ended.
    pub(crate) fn begin(&self) -> u64 {
        self.unknown
    }

    /// Notes that a write has ended at this position, which [covers](crate::driver::Connection::covers_earlier) earlier writes or not.
    pub(crate) fn reach(&mut self, begun: u64, position: LogPosition, covers_earlier: bool) {
        if covers_earlier {
            self.covered = self.covered.max(begun);
        } else if self
            .reached
            .is_some_and(|own| own.history != position.history)
        {
            // The earlier write is in another log, and only one position is kept.
            self.lose();
        }
        self.raise(position);
    }

    /// Notes that something was written at an unknown position, or that nobody knows whether it was.
    pub(crate) fn lose(&mut self) {
        self.unknown += 1;
    }

    /// Notes that a stream that writes has begun.
    pub(crate) fn open(&mut self) {
        self.open += 1;
    }

    /// Notes that a stream that writes has ended, at an unknown position.
    pub(crate) fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.lose();
    }

    /// Returns what a new coroutine begins with. Nobody will tell it that a stream has ended.
    pub(crate) fn inherited(&self) -> Self {
        Own {
            unknown: self.unknown + self.open,
            open: 0,
            ..*self
        }
    }

    /// Notes that reads have to see this position, too.
    pub(crate) fn read_after(&mut self, position: Position) {
        match position.0 {
            Point::Unknown => self.lose(),
            Point::At(position) => match self.reached {
                // Positions of two clusters cannot be compared.
                Some(own) if own.history.cluster != position.history.cluster => self.lose(),
                _ => self.raise(position),
            },
        }
    }

    /// Notes that reads have to see what another coroutine has written, too.
    pub(crate) fn see(&mut self, other: &Own) {
        if let Some(position) = other.position() {
            self.read_after(position);
        }
    }

    fn raise(&mut self, position: LogPosition) {
        let order = |it: LogPosition| (it.history.timeline, it.lsn);
        let is_older = |own: LogPosition| {
            own.history.cluster == position.history.cluster && order(own) > order(position)
        };
        if !self.reached.is_some_and(is_older) {
            self.reached = Some(position);
        }
    }

    pub(crate) fn needed(&self) -> Needed {
        match self.reached {
            _ if self.open > 0 || self.unknown > self.covered => Needed::Primary,
            Some(position) => Needed::Position(position),
            None => Needed::Nothing,
        }
    }

    /// Returns the position as the program gets it.
    pub(crate) fn position(&self) -> Option<Position> {
        match self.needed() {
            Needed::Nothing => None,
            Needed::Primary => Some(Position::unknown()),
            Needed::Position(position) => Some(Position(Point::At(position))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::History;

    fn at(cluster: u64, timeline: u32, lsn: u64) -> LogPosition {
        let history = History { cluster, timeline };
        LogPosition { history, lsn }
    }

    #[test]
    fn unknown_write_needs_the_primary_until_a_later_one() {
        let mut own = Own::default();
        let early = own.begin();
        own.lose();
        assert_eq!(own.needed(), Needed::Primary);
        // It began before the loss, so it may have ended before the lost write.
        own.reach(early, at(1, 1, 10), true);
        assert_eq!(own.needed(), Needed::Primary);
        let late = own.begin();
        own.reach(late, at(1, 1, 20), true);
        assert_eq!(own.needed(), Needed::Position(at(1, 1, 20)));
    }

    #[test]
    fn stream_that_writes_needs_the_primary_until_a_later_write() {
        let mut own = Own::default();
        own.open();
        own.reach(own.begin(), at(1, 1, 10), true);
        assert_eq!(own.needed(), Needed::Primary);
        let mut child = own.inherited();
        child.reach(child.begin(), at(1, 1, 15), true);
        assert_eq!(child.needed(), Needed::Position(at(1, 1, 15)));
        own.close();
        assert_eq!(own.needed(), Needed::Primary);
        own.reach(own.begin(), at(1, 1, 20), true);
        assert_eq!(own.needed(), Needed::Position(at(1, 1, 20)));
    }

    #[test]
    fn position_only_grows_within_a_cluster() {
        let mut own = Own::default();
        own.reach(own.begin(), at(1, 1, 20), true);
        own.reach(own.begin(), at(1, 1, 10), true);
        assert_eq!(own.needed(), Needed::Position(at(1, 1, 20)));
        own.reach(own.begin(), at(1, 2, 5), true);
        assert_eq!(own.needed(), Needed::Position(at(1, 2, 5)));
        own.read_after(Position(Point::At(at(1, 1, 90))));
        assert_eq!(own.needed(), Needed::Position(at(1, 2, 5)));
    }

    #[test]
    fn token_of_another_cluster_needs_the_primary() {
        let mut own = Own::default();
        own.reach(own.begin(), at(1, 1, 20), true);
        own.read_after(Position(Point::At(at(2, 1, 5))));
        assert_eq!(own.needed(), Needed::Primary);
    }

    #[test]
    fn position_in_one_of_several_logs_covers_no_other() {
        let mut own = Own::default();
        own.reach(own.begin(), at(1, 0, 20), false);
        own.reach(own.begin(), at(1, 0, 30), false);
        assert_eq!(own.needed(), Needed::Position(at(1, 0, 30)));
        let mut unknown = own;
        unknown.lose();
        unknown.reach(unknown.begin(), at(1, 0, 40), false);
        assert_eq!(unknown.needed(), Needed::Primary);
        own.reach(own.begin(), at(2, 0, 5), false);
        assert_eq!(own.needed(), Needed::Primary);
        own.reach(own.begin(), at(2, 0, 6), false);
        assert_eq!(own.needed(), Needed::Primary);
    }
}
