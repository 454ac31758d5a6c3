//! What programs see of replicas and positions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Position, ReplicaProblem};
use crate::Db;
use crate::coroutine::call_context;
use crate::hosts::distinct;

/// A replica of a handle, as [`Db::replicas`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// The address, without credentials. One that the builder has twice gets a number: `db2/shop #2`.
    pub address: String,
    /// Whether it gets reads: it answers, follows the primary of this handle and is not too far behind.
    pub is_usable: bool,
    /// Why it gets no reads; `None` if it does.
    pub problem: Option<ReplicaProblem>,
    /// How long it has been usable, or has had this problem, as the handle has seen it. `None` before it was asked.
    pub unchanged_for: Option<Duration>,
    /// Whether it answered when it was asked last. `false` also before it was asked.
    pub is_reachable: bool,
    /// Whether it follows another server. `false` after its promotion.
    pub is_standby: bool,
    /// How far it is behind the primary, to about a tenth of [`max_replica_lag`](crate::Builder::max_replica_lag). `None` if it does
    /// not answer, or follows no other server.
    pub lag: Option<Duration>,
    /// The number of open connections, without the one that asks for the lag.
    pub connections: usize,
    /// How many reads and transactions it has served.
    pub reads: u64,
}

/// How many reads of [`Db::reading`] the primary has served, by the reason: see [`Db::primary_reads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrimaryReads {
    /// What the coroutine has to see is unknown, of another cluster or timeline, or ahead of the primary.
    pub unknown_position: u64,
    /// No replica was usable.
    pub no_replica: u64,
    /// No replica had replayed enough within [`replica_wait`](crate::Builder::replica_wait).
    pub behind: u64,
    /// All connections to the replica were in use or being opened for that long.
    pub busy: u64,
    /// The replica failed, or the read failed on it.
    pub failed: u64,
}

impl PrimaryReads {
    /// Returns each reason with its count. The words are those of the metrics.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("unknown_position", self.unknown_position),
            ("no_replica", self.no_replica),
            ("behind", self.behind),
            ("busy", self.busy),
            ("failed", self.failed),
        ]
        .into_iter()
    }
}

impl Db {
    /// Returns the same handle for calls whose reads a replica may answer: see [`Builder::replica`](crate::Builder::replica).
    ///
    /// A read sees everything that its coroutine has written before. If no replica has that within
    /// [`replica_wait`](crate::Builder::replica_wait), the primary answers, as it does if no replica can be used. Outside of
    /// coroutines a read may miss what the program has just written. The [guide](crate::guide::outgrowing) has the details.
    ///
    /// These go to a replica:
    ///
    /// - a single statement, or a stream of rows, that is [proven](crate::sql::Class::pure_read) to read only;
    /// - a transaction with [`read_only`](crate::TransactionOptions::read_only) that is not SERIALIZABLE.
    ///
    /// Everything else runs as on the handle itself: writes, scripts, batches, statements with unknown functions, prepared
    /// statements, COPY, and every call while the coroutine has a transaction, a live statement or a changed session.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(db: cenote::Db) -> cenote::Result<()> {
    /// cenote::scope(async {
    ///     db.exec("UPDATE account SET balance = balance + ? WHERE id = ?", (30, 1)).await?;
    ///     // On a replica that has the update, or on the primary.
    ///     let balance: i64 = db
    ///         .reading()
    ///         .query_scalar_one("SELECT balance FROM account WHERE id = ?", (1,))
    ///         .await?;
    /// #   assert_eq!(balance, 30);
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    #[must_use]
    pub fn reading(&self) -> Db {
        self.as_reading()
    }

    /// Returns what is known about the replicas, in the order of the builder. Empty without replicas.
    ///
    /// Replicas are asked twice a second, from the first call of [`reading`](Db::reading) on.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let Some(replicas) = &self.handle().replicas else {
            return Vec::new();
        };
        let now = self.handle().shared.runtime.now();
        let names = replicas.all.iter().map(|replica| replica.name()).collect();
        let named = replicas.all.iter().zip(distinct(names));
        let status = named.map(|(replica, address)| {
            let seen = *replica.seen();
            let standby = seen.answer.filter(|answer| answer.is_standby);
            ReplicaStatus {
                address,
                is_usable: seen.problem.is_none(),
                problem: seen.problem,
                unchanged_for: seen.since.map(|since| now.saturating_duration_since(since)),
                is_reachable: seen.answer.is_some(),
                is_standby: standby.is_some(),
                lag: standby.map(|_| seen.lag),
                connections: replica.handle.pool.status().total,
                reads: replica.reads.load(Ordering::Relaxed),
            }
        });
        status.collect()
    }

    /// Returns how many reads of [`reading`](Db::reading) the primary has served because no replica could, by the reason. A
    /// transaction, or a stream, counts as one. What [always](Db::reading) runs on the primary is not counted.
    pub fn primary_reads(&self) -> PrimaryReads {
        let replicas = self.handle().replicas.as_ref();
        replicas.map_or_else(PrimaryReads::default, |replicas| replicas.left.counts())
    }

    /// Returns the position of what this coroutine has written, for another coroutine, process or request: see
    /// [`read_after`](Db::read_after). `None` if the coroutine has written nothing, outside of coroutines, and without replicas.
    ///
    /// It is [unknown](Position::is_unknown) after a write whose outcome is unknown. Pass it on nevertheless: reads after it go to the
    /// primary.
    pub fn position(&self) -> Option<Position> {
        let context = call_context();
        let tracker = self.handle().pool.manager().tracker.as_ref()?;
        context.frame()?.own(tracker.db()).position()
    }

    /// Has the reads of this coroutine see everything up to a [`position`](Db::position) of another coroutine, process or request.
    ///
    /// The position may come from anywhere. One of another cluster or timeline, or ahead of the primary, sends the reads of the
    /// coroutine to the primary, without a wait. Does nothing outside of coroutines, and without replicas.
    pub fn read_after(&self, position: Position) {
        let context = call_context();
        let tracker = self.handle().pool.manager().tracker.as_ref();
        if let (Some(tracker), Some(frame)) = (tracker, context.frame()) {
            frame.with_own(tracker.db(), |own| own.read_after(position));
        }
    }
}
