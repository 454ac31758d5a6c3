//! The pools under test, one adapter a file, and the table of all of them.
//!
//! Every pool has its builder's defaults, except for the maximum. The resource
//! is one word that costs nothing to make, check or drop (sqlx alone has a real
//! connection, because its pool takes nothing else).

mod bb8;
mod cenote;
mod deadpool;
mod fast_pool;
mod floors;
mod mobc;
mod r2d2;
mod sqlx;

use std::fmt::Debug;
use std::future::{Future, ready};
use std::time::Duration;

use crate::scenarios::crowd::Load;
use crate::scenarios::{crowd, one, threads, waiting};
use crate::stats::Sample;

/// What all pools but sqlx's hold.
pub type Resource = u64;

/// Whose pool it is; the chart colours by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Ours,
    Peer,
    Floor,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ours => "ours",
            Kind::Peer => "peer",
            Kind::Floor => "floor",
        }
    }
}

/// How long an acquire waits at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// The pool's default.
    Default,
    Forever,
    Within(Duration),
}

/// A pool under test.
///
/// Scenarios are generic over it, so that every pool is compiled into its own
/// loop, without a call through a pointer. Pools live for ever: then leases and
/// futures that borrow them can move to any task. Leaking the few bytes does not matter.
pub trait Subject: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    const KIND: Kind;
    /// Whether an acquire waits for a resource. Two of the floors cannot.
    const WAITS: bool = true;

    type Lease: Send + 'static;
    type Error: Debug + Send + 'static;

    /// `None` if the pool has no such setting.
    fn open(max: usize, patience: Patience) -> impl Future<Output = Option<Self>> + Send;

    /// The pool's own future, not wrapped, so that its size can be measured.
    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static;

    /// Uses the resource, through whatever the lease is.
    fn touch(lease: &mut Self::Lease);

    /// Ends what would outlive the measurement, such as threads.
    fn close(&'static self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// Opens a pool with its defaults, for ever.
pub async fn open<P: Subject>(max: usize) -> &'static P {
    let pool = P::open(max, Patience::Default).await;
    Box::leak(Box::new(pool.expect("defaults are always possible")))
}

/// One pool in every scenario it takes part in.
pub struct Entry {
    pub name: &'static str,
    pub kind: Kind,
    /// Stands in the scenario with hooks.
    pub in_hooks: bool,
    /// Stands in all other scenarios.
    pub in_others: bool,
    pub one: fn(Duration) -> Sample,
    pub threads: fn(usize, Duration) -> Sample,
    /// `None` for pools that cannot wait, or only by blocking a thread.
    pub waiting: Option<Waiting>,
}

/// The scenarios in which acquires wait.
#[derive(Clone, Copy)]
pub struct Waiting {
    pub crowd: fn(Load, Duration) -> Sample,
    pub memory: fn(usize, Patience) -> Option<waiting::Memory>,
}

impl Entry {
    fn of<P: Subject>() -> Entry {
        Entry {
            name: P::NAME,
            kind: P::KIND,
            in_hooks: false,
            in_others: true,
            one: one::run::<P>,
            threads: threads::run::<P>,
            waiting: P::WAITS.then_some(Waiting {
                crowd: crowd::run::<P>,
                memory: waiting::run::<P>,
            }),
        }
    }

    fn also_with_hooks(self) -> Entry {
        Entry {
            in_hooks: true,
            ..self
        }
    }

    fn only_with_hooks(self) -> Entry {
        Entry {
            in_hooks: true,
            in_others: false,
            ..self
        }
    }
}

/// All pools, in the order of the tables.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::of::<cenote::Static>(),
        Entry::of::<cenote::Closures>(),
        Entry::of::<cenote::Owned>(),
        Entry::of::<cenote::Hooks>().also_with_hooks(),
        Entry::of::<cenote::HookClosures>().only_with_hooks(),
        Entry::of::<cenote::Fifo>(),
        Entry::of::<deadpool::Deadpool>().also_with_hooks(),
        Entry::of::<deadpool::DeadpoolHooks>().only_with_hooks(),
        Entry::of::<bb8::Bb8>(),
        Entry::of::<mobc::Mobc>(),
        Entry::of::<fast_pool::FastPool>(),
        Entry::of::<sqlx::Sqlx>(),
        r2d2::entry(),
        Entry::of::<floors::MutexRing>(),
        Entry::of::<floors::LockFree>(),
        Entry::of::<floors::HandOver>(),
    ]
}
