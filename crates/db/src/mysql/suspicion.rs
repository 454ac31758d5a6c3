//! The errors that raise the suspicion that a host no longer has the role that the program asked for. Suspicion only has the
//! host asked; see [`hosts`](crate::hosts) for what follows.

use super::connection::MysqlConnection;
use crate::{Error, Kind};

/// An option of the server prevents the statement: `--read-only`, and others.
const OPTION_PREVENTS: i64 = 1290;
/// The storage engine is read-only.
const READ_ONLY_MODE: i64 = 1836;
/// InnoDB is read-only.
const INNODB_READ_ONLY: i64 = 1874;
/// The transaction is read-only.
const READ_ONLY_TRANSACTION: i64 = 1792;
/// Galera: the node is not synced. Other servers: an unknown command.
const NOT_PREPARED: i64 = 1047;
/// The server shuts down.
const SHUTDOWN: i64 = 1053;

/// Returns whether the server says that it shuts down, or that it is a node that is not synced with its cluster.
pub(super) fn is_passing(error: &Error) -> bool {
    match error.code() {
        Some(SHUTDOWN) => true,
        Some(NOT_PREPARED) => error.message().contains("WSREP"),
        _ => false,
    }
}

/// Returns whether the server refuses every write.
fn is_refused_write(error: &Error) -> bool {
    match error.code() {
        Some(READ_ONLY_MODE | INNODB_READ_ONLY) => true,
        Some(OPTION_PREVENTS) => error.message().contains("read-only"),
        _ => false,
    }
}

impl MysqlConnection {
    /// Looks at the server's error: a refused write on a connection that was opened to write, a server that shuts down, or a
    /// node that has left its cluster.
    #[cold]
    pub(super) fn suspect_by(&mut self, said: &Error) {
        let is_read_only = self.begun_read_only;
        let Some(host) = &mut self.host else {
            return;
        };
        if is_passing(said) {
            host.place.suspect();
            // Its name may be another node's by now, behind a balancer: this one serves nobody.
            host.is_demoted |= said.code() == Some(NOT_PREPARED);
        }
        if !host.place.writes() || is_read_only {
            return;
        }
        if is_refused_write(said) {
            host.place.suspect();
            host.is_demoted = true;
        } else if said.code() == Some(READ_ONLY_TRANSACTION) {
            // The program may have forbidden it.
            host.place.suspect();
        }
    }

    /// Marks the connection as lost by this error, and has its host asked.
    #[cold]
    pub(super) fn lose(&mut self, lost: Error) -> Error {
        self.mark_lost();
        match &self.host {
            Some(host) if lost.kind() == Kind::ConnectionLost => host.place.explain_lost(lost),
            _ => lost,
        }
    }
}
