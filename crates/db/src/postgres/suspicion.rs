//! Why a connection was lost, and the errors that raise the suspicion that its host no longer has the role that the program
//! asked for. Suspicion only has the host asked; see [`hosts`](crate::hosts) for what follows.

use super::connection::PostgresConnection;
use super::error;
use super::protocol::answer::Answer;
use super::protocol::message::Report;
use crate::Error;
use crate::driver::Status;
use crate::hosts::Place;

impl PostgresConnection {
    /// Has the host asked what it is, if there is a choice of hosts.
    #[cold]
    pub(super) fn suspect_host(&self) {
        if let Some(place) = &self.place {
            place.suspect();
        }
    }

    /// Looks at the server's error: a refused write on a connection that was opened to write, or a server that shuts down
    /// or starts.
    pub(super) fn suspect_by(&mut self, report: Option<&Report>) {
        let (Some(report), Some(place)) = (report, &self.place) else {
            return;
        };
        match &*report.state {
            "25006" => {
                if !place.writes() || self.begun_read_only == Some(true) {
                    return;
                }
                place.suspect();
                // The name may be another server's by now: this one refuses, whatever that one says. But the program may have
                // forbidden it, by a setting or in the text that began the transaction.
                let begun_by_text = self.begun_read_only.is_none() && self.status != Status::Idle;
                self.is_demoted |= !begun_by_text && !self.cache.is_changed();
            }
            "57P01" | "57P02" | "57P03" => place.suspect(),
            _ => {}
        }
    }

    /// Returns the error of a lost connection: the server's reason, if it sent one.
    pub(super) fn why_lost(&self, lost: Error, answer: &mut Answer) -> Error {
        let lost = match &self.place {
            Some(place) => place.explain_lost(lost),
            None => lost,
        };
        let Some(report) = answer.report.take_if(|report| report.is_fatal()) else {
            return lost;
        };
        // The server closed the idle session while the call was on its way. It reads messages in
        // order: without BindComplete it has not begun to run anything.
        let has_begun = answer.bound > 0 || answer.complete || self.wire.is_query();
        match report.ends_session() && !has_begun {
            true => error::from_report(*report).never_sent(),
            false => self.wire.unless_sent(error::from_report(*report)),
        }
    }

    /// Breaks the connection for a message that no call asked for: the server's reason for closing it, or one that the next
    /// call would take for its answer.
    #[cold]
    pub(super) fn break_unasked(&mut self) {
        let frame = self.wire.frame().ok().flatten();
        let report = frame.filter(|frame| frame.tag == b'E');
        let report = report.and_then(|frame| Report::read(self.wire.body(frame)));
        match report {
            // The server's reason for closing the connection.
            Some(report) => {
                tracing::debug!(
                    message = report.message,
                    "the server closed an idle connection"
                );
                if report.is_fatal() {
                    self.suspect_host();
                    self.farewell = Some(error::from_report(report).never_sent());
                }
            }
            None => {
                tracing::warn!(
                    "closing a connection: the server sent a message that no call asked for"
                )
            }
        }
        self.wire.set_broken();
    }

    /// Returns the error of a call on a connection that was lost before.
    #[cold]
    pub(super) fn why_broken(&self) -> Error {
        match &self.place {
            Some(place) if place.is_outdated() => Place::why_closed(),
            _ => self.farewell.clone().unwrap_or_else(error::broken),
        }
    }
}
