//! The position at the end of a call, and reads on a replica that has reached one.
//!
//! | server | messages | round trips |
//! |---|---|---|
//! | primary | the call with its Sync, then the query for the position | 1 |
//! | replica | the question whether it has replayed enough with its Sync, then the read with its Sync | 1 |
//!
//! The position is where the server inserts into its log, not what it has flushed: with `synchronous_commit = off`, which a
//! transaction may set for itself, the commit is not flushed yet.

use std::future::poll_fn;
use std::task::Poll;

use super::connection::{InFlight, PostgresConnection};
use super::protocol::answer::Answer;
use super::protocol::frontend;
use crate::driver::{History, LogPosition, Outcome, Param, ReplicaAnswer, Request, Status, Value};
use crate::{Error, Kind, Result, Row};

/// The position at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndPosition {
    NotWanted,
    /// The next call asks for it.
    Wanted,
    /// The query for it is in flight, behind the call.
    Asked,
    /// The call is answered, and the query is not.
    Due,
    Known(LogPosition),
}

impl EndPosition {
    #[inline]
    pub(super) fn is_wanted(self) -> bool {
        self == EndPosition::Wanted
    }

    #[inline]
    pub(super) fn is_asked(self) -> bool {
        self == EndPosition::Asked
    }

    #[inline]
    pub(super) fn is_due(self) -> bool {
        self == EndPosition::Due
    }

    pub(super) fn take(&mut self) -> Option<LogPosition> {
        match std::mem::replace(self, EndPosition::NotWanted) {
            EndPosition::Known(position) => Some(position),
            _ => None,
        }
    }
}

/// Where the primary inserts, and its timeline.
const POSITION: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text || ' ' || \
                        pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)";

/// The same, with the cluster: once for each connection, because the server reads a file for it.
const POSITION_AND_CLUSTER: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text || ' ' || \
     pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) || ' ' || \
     system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()";

/// Whether a replica has replayed everything up to a position, and how far it is.
const REPLAYED: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
                        pg_catalog.pg_last_wal_replay_lsn() >= $1::pg_catalog.text::pg_catalog.pg_lsn, \
                        pg_catalog.pg_last_wal_replay_lsn()::pg_catalog.text";

/// The same, with the cluster and a timeline that the replica has certainly reached. The server tells the timeline that it
/// receives to privileged users only; the control file has that of the last restartpoint.
const REPLAYED_WHAT: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
     pg_catalog.pg_last_wal_replay_lsn() >= $1::pg_catalog.text::pg_catalog.pg_lsn, \
     pg_catalog.pg_last_wal_replay_lsn()::pg_catalog.text, \
     (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system()), \
     greatest((SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()), \
              (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()), \
              (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()))::pg_catalog.text";

/// A position at the end of a page of the log is reported behind the header of the next page, which no record has written yet. Pages
/// have 1 KiB at least.
const PAGE: u64 = 1024;
const PAGE_HEADER: u64 = 64;

impl PostgresConnection {
    /// Appends the query for the position to the outbox, behind the Sync of the call.
    pub(super) fn queue_position(&mut self) {
        let sql = match self.cluster {
            Some(_) => POSITION,
            None => POSITION_AND_CLUSTER,
        };
        let mark = self.wire.mark();
        if frontend::query(self.wire.outbox(), sql).is_err() {
            self.wire.undo(mark);
            return;
        }
        self.wire.note_query();
        self.position = EndPosition::Asked;
    }

    /// Receives the answer of a call that the query for the position is behind.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call is unsettled; `settle_all` ends it.
    pub(super) async fn receive_before_position(&mut self, answer: &mut Answer) -> Result<()> {
        self.position = EndPosition::NotWanted;
        let batches = self.wire.unanswered_batches();
        poll_fn(|cx| {
            loop {
                while self.wire.unanswered_batches() == batches {
                    let Some(frame) = self.wire.frame()? else {
                        break;
                    };
                    self.take(frame, answer)?;
                }
                if self.wire.unanswered_batches() < batches {
                    return Poll::Ready(Ok(()));
                }
                match self.wire.poll_fill(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(lost)) => return Poll::Ready(Err(self.why_lost(lost, answer))),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await?;
        self.position = EndPosition::Due;
        Ok(())
    }

    /// Returns the position at the end of the last call, if the call asked for it and the server sent it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the query is unsettled; `settle_all` ends it.
    pub(super) async fn told_position(&mut self) -> Option<LogPosition> {
        if self.position.is_due() {
            self.receive_position().await;
            // A missing position does not concern the call.
            let _ = self.finish_call(Ok(()));
        }
        self.position.take()
    }

    /// Receives the position that is due, in the middle of a call.
    pub(super) async fn receive_position(&mut self) {
        let warnings = self.warnings_so_far();
        let mut told = Answer::new(true);
        let received = self.receive(&mut told).await;
        self.position = EndPosition::NotWanted;
        if received.is_ok()
            && let Some(position) = told
                .outcome(warnings)
                .ok()
                .and_then(|told| self.read_position(told))
        {
            self.position = EndPosition::Known(position);
        }
    }

    /// Asks again: the call runs a second time, and the position so far is from before its effect.
    pub(super) async fn ask_position_again(&mut self) {
        if self.position.is_due() {
            self.receive_position().await;
        }
        self.position = EndPosition::Wanted;
    }

    /// Runs a short command of the driver's own, and asks for the position at its end.
    pub(super) async fn command_with_position(&mut self, sql: &str) -> Result<Answer> {
        self.begin_call(InFlight::Brief)?;
        let mark = self.wire.mark();
        if let Err(wrong) = frontend::query(self.wire.outbox(), sql) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.wire.note_query();
        self.queue_position();
        let mut answer = Answer::new(false);
        let done = self.receive_before_position(&mut answer).await;
        self.finish_call(done)?;
        match answer.error() {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    /// Asks for the position alone.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the query is unsettled; `settle_all` ends it.
    pub(super) async fn ask_for_position(&mut self) -> Result<LogPosition> {
        if self.status != Status::Idle {
            let message = "the position is asked for between transactions only";
            return Err(Error::new(Kind::Busy, message));
        }
        self.begin_call(InFlight::Brief)?;
        let mark = self.wire.mark();
        if let Err(wrong) = frontend::query(self.wire.outbox(), POSITION_AND_CLUSTER) {
            self.wire.undo(mark);
            return self.finish_call(Err(wrong));
        }
        self.wire.note_query();
        self.position = EndPosition::Due;
        let mut told = Answer::new(true);
        let received = self.receive(&mut told).await;
        self.position = EndPosition::NotWanted;
        self.finish_call(received)?;
        let told = told.outcome(0)?;
        self.read_position(told).ok_or_else(|| {
            let message = "the server does not tell its position in the log";
            Error::new(Kind::Unsupported, message)
        })
    }

    /// Reads `16/B374D848 00000001`, perhaps with the number of the cluster.
    fn read_position(&mut self, told: Outcome) -> Option<LogPosition> {
        let row = told.into_rows().into_iter().next()?;
        let text = row.get::<String>(0).ok()?;
        let mut parts = text.split(' ');
        let lsn = read_lsn(parts.next()?)?;
        let timeline = u32::from_str_radix(parts.next()?, 16).ok()?;
        if let Some(cluster) = parts.next() {
            self.cluster = Some(cluster.parse().ok()?);
        }
        let history = History {
            cluster: self.cluster?,
            timeline,
        };
        Some(LogPosition { history, lsn })
    }

    /// Asks whether the server is a replica that has replayed everything up to a position, and runs a read behind that, each
    /// with a Sync of its own.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call is unsettled; `settle_all` ends it.
    ///
    /// # Errors
    ///
    /// The connection is lost before the question was answered, or the server refuses the question.
    pub(super) async fn read_where_replayed(
        &mut self,
        wanted: Option<LogPosition>,
        verify: bool,
        read: Option<Request<'_>>,
    ) -> Result<(ReplicaAnswer, Option<Result<Outcome>>)> {
        let lsn = wanted.map_or(0, |wanted| wanted.lsn);
        let params = [Param::Value(Value::Text(lsn_text(lsn).into()))];
        let sql = if verify { REPLAYED_WHAT } else { REPLAYED };
        let question = Request::new(sql, &params);
        let mut results = match read {
            None => self.execute_pipeline(None, &[question], false).await?,
            Some(read) => {
                self.execute_pipeline(None, &[question, read], false)
                    .await?
            }
        }
        .into_iter();
        let told = results
            .next()
            .unwrap_or_else(|| Err(super::error::broken()))?;
        Ok((read_answer(told), results.next()))
    }
}

fn read_answer(told: Outcome) -> ReplicaAnswer {
    let row = told.into_rows().into_iter().next();
    let told = |row: &Row| {
        let is = |column: usize| row.get::<Option<bool>>(column).ok().flatten() == Some(true);
        let text = |column: usize| row.get::<Option<String>>(column).ok().flatten();
        let cluster = text(3).and_then(|cluster| cluster.parse().ok());
        let timeline = text(4).and_then(|timeline| timeline.parse().ok());
        ReplicaAnswer {
            is_standby: is(0),
            has_reached: is(0) && is(1),
            replayed: text(2)
                .and_then(|lsn| read_lsn(&lsn))
                .map(lacks_nothing_before),
            history: cluster
                .zip(timeline)
                .map(|(cluster, timeline)| History { cluster, timeline }),
        }
    };
    row.as_ref().map_or(ReplicaAnswer::default(), told)
}

/// Reads an LSN: `16/B374D848`.
fn read_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |digits: &str| u32::from_str_radix(digits, 16).ok();
    Some(u64::from(half(high)?) << 32 | u64::from(half(low)?))
}

/// Returns up to where a replica lacks nothing that has replayed up to here.
fn lacks_nothing_before(replayed: u64) -> u64 {
    match replayed.is_multiple_of(PAGE) {
        true => replayed.saturating_add(PAGE_HEADER),
        false => replayed,
    }
}

fn lsn_text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_reads_as_it_is_written() {
        for lsn in [0, 1, 0x16_B374_D848, u64::MAX] {
            assert_eq!(read_lsn(&lsn_text(lsn)), Some(lsn));
        }
        assert_eq!(lsn_text(0x16_B374_D848), "16/B374D848");
        assert_eq!(read_lsn("16-B374D848"), None);
    }

    #[test]
    fn end_of_a_page_is_no_lag() {
        assert!(lacks_nothing_before(8192) > 8192 + 24);
        assert_eq!(lacks_nothing_before(8192 + 8), 8192 + 8);
        assert_eq!(lacks_nothing_before(u64::MAX), u64::MAX);
    }
}
