//! Errors that raise the suspicion that the host no longer has the role that the program asked for. Suspicion only has the
//! host asked; see [`hosts`](crate::hosts) for what follows.

use super::connection::PostgresConnection;
use super::error;
use super::protocol::message::Report;
use crate::driver::Status;
use crate::{Error, Kind};

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
                let is_meant = self.begun_read_only && self.status != Status::Idle;
                if place.writes() && !is_meant {
                    // The name may be another server's by now: this one refuses, whatever that one says.
                    self.is_demoted = true;
                    place.suspect();
                }
            }
            "57P01" | "57P02" | "57P03" => place.suspect(),
            _ => {}
        }
    }

    /// Has the host of a lost connection asked, and says in the error if it is the reason.
    #[cold]
    pub(super) fn suspect_lost(&self, lost: Error) -> Error {
        let Some(place) = &self.place else {
            return lost;
        };
        place.suspect();
        match place.is_outdated() {
            true => {
                let message = format!("{}; {RETIRED}", lost.message());
                let was_never_sent = lost.was_never_sent();
                let lost = lost.wrapped(Kind::ConnectionLost, message);
                if was_never_sent {
                    lost.never_sent()
                } else {
                    lost
                }
            }
            false => lost,
        }
    }

    /// Returns the error of a call on a connection that was lost before.
    #[cold]
    pub(super) fn why_broken(&self) -> Error {
        match &self.place {
            Some(place) if place.is_outdated() => {
                let message = format!("the connection was closed before this call; {RETIRED}");
                Error::new(Kind::ConnectionLost, message).never_sent()
            }
            _ => self.farewell().unwrap_or_else(error::broken),
        }
    }
}

const RETIRED: &str = "its host no longer has the role that target_session_attrs demands";
