//! What the contract does by default: one call after the other.

use super::{Batch, Begin, CommitOutcome, Connection, Outcome, Param, Request, Status};
use crate::{Error, Result};

/// Runs a statement with one set after the other, in a transaction of its own if none is open. Returns the affected rows
/// of all sets, and their rows if they are wanted.
///
/// # Cancel safety
///
/// Dropped, its own transaction may still be open.
pub(super) async fn one_by_one<C: Connection + ?Sized>(
    connection: &mut C,
    sql: &str,
    sets: &[Vec<Param<'_>>],
    wants_rows: bool,
) -> Result<(Outcome, Vec<Batch>)> {
    let mut all = Outcome::default();
    let mut rows = Vec::new();
    let own = connection.status() == Status::Idle && !sets.is_empty();
    if own {
        connection.begin_with(&Begin::default(), None).await?;
    }
    for (n, params) in sets.iter().enumerate() {
        let mut request = Request::new(sql, params);
        request.rows = wants_rows;
        match connection.run(request).await {
            Ok(outcome) => {
                all.rows_affected += outcome.rows_affected;
                rows.extend(outcome.rows);
            }
            Err(error) => {
                if own && !connection.is_broken() {
                    connection.rollback().await?;
                }
                return Err(error.in_set(n as u64));
            }
        }
    }
    if own && connection.commit().await? == CommitOutcome::RolledBack {
        let message = "the server answered the commit with a rollback";
        return Err(Error::new(crate::Kind::RolledBack, message));
    }
    Ok((all, rows))
}

/// Runs statements one after the other.
///
/// # Cancel safety
///
/// Dropped, one of them is unanswered, and those behind it have not run.
pub(super) async fn one_after_the_other<C: Connection + ?Sized>(
    connection: &mut C,
    requests: &[Request<'_>],
    stops_at_error: bool,
) -> Result<Vec<Result<Outcome>>> {
    let mut results = Vec::with_capacity(requests.len());
    let is_open =
        |connection: &C| matches!(connection.status(), Status::InTransaction | Status::Failed);
    let was_open = is_open(connection);
    for request in requests {
        let result = connection.run(*request).await;
        if let (Err(lost), true, true) = (&result, results.is_empty(), connection.is_broken()) {
            return Err(lost.clone());
        }
        let has_failed = result.is_err();
        results.push(result);
        // The layer rolls back what a statement has begun behind its back: nothing else may run in it. And nothing may
        // run outside of a transaction that a statement has ended, by an implicit commit.
        let has_changed = is_open(connection) != was_open;
        if connection.is_broken() || has_changed || stops_at_error && has_failed {
            break;
        }
    }
    Ok(results)
}
