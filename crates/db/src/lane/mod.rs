//! Lanes: connections that short reads of several tasks share, each read with a Sync of its own.
//!
//! ```text
//!   read ──idle connection──> alone on it, as without lanes
//!     │ none idle, or enough lanes
//!     ├──lane with room──> Member ──push──> State { lease, queue } <──drives── Drainer (a task)
//!     └──else──> the pool's queue ──lease, and other reads wait──> opens a lane
//! ```
//!
//! 1. Only reads whose every function is known to change nothing, and whose text is proven to be short (`short`).
//! 2. Each answer belongs to one read. The session never changes: an answer that says so closes the lane.
//! 3. Nobody depends on another's future: the drainer sends and receives. A member that is dropped or never polled is only
//!    not woken.
//! 4. If the oldest read takes longer than 10 ms, those behind it leave, and run again with connections for themselves.
//! 5. The lease is one of the pool's. A lane that is wanted elsewhere closes to newcomers, and gives its lease back when it
//!    is drained. If nobody waits for what is in flight, it does so at once, and the pool settles the connection.
//! 6. Nothing is awaited, woken or dropped under a lock.

mod drainer;
pub(crate) mod eager;
mod queue;
mod reply;
mod short;
mod state;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use cenote_pool::{ResourceId, Runtime};

use self::drainer::Drainer;
pub(crate) use self::reply::Member;
use self::reply::Reply;
use self::short::{TextId, Texts, is_long};
use self::state::{Deferred, MOST, Push, State};
use crate::binding::Lease;
use crate::driver::Request;
use crate::pooled::handle::Handle;
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, MutexGuard};

/// Two, so that one sends while the other one waits for its server process.
const LANES_PER_PROCESSOR: usize = 2;

/// The lanes of a handle.
pub(crate) struct Lanes {
    runtime: Arc<dyn Runtime>,
    /// How many open lanes keep the processors of this program busy.
    enough: usize,
    /// In tests: shares whatever may be shared.
    is_eager: bool,
    /// How many lanes are open or draining.
    count: AtomicUsize,
    /// How many of them let no more reads in, and are about to give their connections back.
    closing: AtomicUsize,
    /// How many reads that may join a lane wait in the pool's queue.
    queued: AtomicUsize,
    /// Whether connections can be shared: see [`Sharing`].
    sharing: AtomicU8,
    /// The least time of a round trip, in nanoseconds.
    least_round_trip: AtomicU64,
    /// How many reads have run in lanes.
    reads: AtomicU64,
    all: Mutex<All>,
    texts: Mutex<Texts>,
    hasher: RandomState,
}

#[derive(Default)]
struct All {
    lanes: Vec<Arc<Lane>>,
    /// Reads in the pool's queue that want to know when a lane has room, in the order of their tickets.
    waiting: VecDeque<Waiting>,
    /// How many reads wait in the pool's queue, by the executor that they run on.
    queued: Vec<(Domain, usize)>,
    next: u64,
}

/// The executor that a task runs on.
type Domain = Option<u64>;

struct Waiting {
    ticket: u64,
    domain: Domain,
    waker: Waker,
}

/// Whether the connections of a handle can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sharing {
    Unknown,
    Possible,
    /// The driver does not support it, or a pooler is in between.
    Impossible,
}

/// One shared connection.
pub(crate) struct Lane {
    lanes: Arc<Lanes>,
    /// The executor that its drainer runs on.
    domain: Domain,
    /// How many reads are in flight, for the choice of a lane.
    load: AtomicUsize,
    is_closed: AtomicBool,
    /// Where the times of its reads are recorded.
    timings_shard: usize,
    state: Mutex<State>,
}

/// A read that may share a connection.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) text: TextId,
    pub(crate) site: &'static Location<'static>,
}

/// What has come of an attempt to join a lane.
pub(crate) enum Join {
    Member(Member),
    /// No lane has room.
    Full,
    /// The read needs a connection for itself.
    Refused,
}

impl Lanes {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Lanes {
            runtime,
            enough: LANES_PER_PROCESSOR * processors,
            is_eager: eager::is_on(),
            count: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            sharing: AtomicU8::new(Sharing::Unknown as u8),
            least_round_trip: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            all: Mutex::default(),
            texts: Mutex::default(),
            hasher: RandomState::new(),
        })
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Nothing that can panic runs under these locks.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn text(&self, sql: &str) -> TextId {
        self.hasher.hash_one(sql)
    }

    /// Returns whether a text is proven to be short.
    pub(crate) fn is_short(&self, text: TextId) -> bool {
        let now = || self.runtime.now();
        match self.is_eager {
            _ if self.sharing() == Sharing::Impossible => false,
            false => self.texts().is_short(text, now),
            true => !self.texts().is_barred(text, now),
        }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match self.sharing.load(Ordering::Relaxed) {
            0 => Sharing::Unknown,
            1 => Sharing::Possible,
            _ => Sharing::Impossible,
        }
    }

    /// Returns whether a connection is to be asked if it can be shared. The question is repeated now and then, because the server
    /// answers it at once: a handle whose statements are all slow learns the round trip by it.
    pub(crate) fn is_question_due(&self) -> bool {
        match self.sharing() {
            Sharing::Unknown => true,
            Sharing::Possible => self.texts().is_round_trip_unsure(self.runtime.now()),
            Sharing::Impossible => false,
        }
    }

    /// Notes whether connections can be shared, and how long the answer took.
    pub(crate) fn set_sharing(&self, is_possible: bool, took: Duration) {
        let sharing = match is_possible {
            true => Sharing::Possible,
            false => Sharing::Impossible,
        };
        self.sharing.store(sharing as u8, Ordering::Relaxed);
        let least = self.texts().note_question(took, self.runtime.now());
        self.set_least_round_trip(least);
    }

    fn set_least_round_trip(&self, least: Duration) {
        let nanos = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        self.least_round_trip.store(nanos, Ordering::Relaxed);
    }

    /// Returns the least time of a round trip in the last minutes; zero while none was seen.
    fn least_round_trip(&self) -> Duration {
        Duration::from_nanos(self.least_round_trip.load(Ordering::Relaxed))
    }

    /// Begins to measure a run with a connection for itself.
    pub(crate) fn measure(&self, text: TextId) -> Measured<'_> {
        Measured {
            lanes: self,
            text,
            began: self.runtime.now(),
            is_answered: false,
        }
    }

    /// Notes a run with a connection for itself. One that failed or was dropped proves nothing but that it was long.
    fn note_alone(&self, text: TextId, began: Instant, is_answered: bool) {
        let now = self.runtime.now();
        let took = now.saturating_duration_since(began);
        let mut texts = self.texts();
        if is_answered {
            self.set_least_round_trip(texts.note_round_trip(took, now));
        }
        let least = self.least_round_trip();
        let service = took.saturating_sub(least);
        if is_answered || is_long(service, least) {
            texts.note(text, service, now);
        }
    }

    /// Returns how many waiters of the pool need no connection for themselves, or get that of a lane that is draining.
    pub(crate) fn expected_waiters(&self, domain: Domain) -> usize {
        let closing = self.closing.load(Ordering::SeqCst);
        match self.queued.load(Ordering::SeqCst) {
            0 => closing,
            _ => closing + self.all().queued(domain),
        }
    }

    /// Returns whether an idle connection should be shared at once: the open lanes have two reads each.
    pub(crate) fn are_loaded(&self) -> bool {
        let all = self.all();
        let loads = all.lanes.iter().map(|lane| lane.load());
        !all.lanes.is_empty() && loads.sum::<usize>() >= 2 * all.lanes.len()
    }

    /// Returns whether more lanes would bring nothing: the program has too few processors to keep them busy. Then a read joins
    /// one rather than take an idle connection, so that each round trip carries more reads.
    pub(crate) fn are_enough(&self) -> bool {
        if self.is_eager || self.count.load(Ordering::SeqCst) < self.enough {
            return self.is_eager;
        }
        let domain = self.runtime.domain();
        let all = self.all();
        let open = all.lanes.iter().filter(|lane| lane.has_room(domain));
        let (count, load) = open.fold((0, 0), |(n, sum), lane| (n + 1, sum + lane.load()));
        count >= self.enough && load >= 2 * count
    }

    /// Returns whether reads wait in the pool's queue that could share a connection of this task's executor.
    pub(crate) fn has_queue(&self) -> bool {
        let has_some = || self.all().queued(self.runtime.domain()) > 0;
        self.is_eager || self.queued.load(Ordering::SeqCst) > 0 && has_some()
    }

    /// Joins the lane with the fewest reads, unless others wait for one.
    pub(crate) fn join(&self, handle: &Handle, read: &Read<'_>) -> Join {
        let others_wait = self.all().is_waiting(self.runtime.domain());
        match others_wait {
            true => Join::Full,
            false => self.join_in_turn(handle, read),
        }
    }

    /// Joins the lane with the fewest reads.
    fn join_in_turn(&self, handle: &Handle, read: &Read<'_>) -> Join {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Join::Full;
        }
        let domain = self.runtime.domain();
        let mut reply = None;
        loop {
            let Some(lane) = self.all().with_room(domain) else {
                return Join::Full;
            };
            let reply = reply.get_or_insert_with(Arc::<Reply>::default);
            match lane.push(handle, read, reply) {
                Push::Done { wake } => {
                    if let Some(waker) = wake {
                        waker.wake();
                    }
                    return Join::Member(Member {
                        lane,
                        reply: Arc::clone(reply),
                        is_answered: false,
                    });
                }
                Push::Closed => {}
                Push::Refused => return Join::Refused,
            }
        }
    }

    /// Opens a lane with this connection, which has nothing in flight. Its first read is this one; if that cannot share,
    /// returns the connection.
    pub(crate) fn open(
        self: &Arc<Self>,
        mut lease: Lease,
        read: &Read<'_>,
    ) -> Result<Member, Lease> {
        let now = self.runtime.now();
        // After an error, the run on this connection returns it.
        if !matches!(lease.push_shared(&read.request, read.site), Ok(true)) {
            return Err(lease);
        }
        let (timings_shard, domain) = (lease.timings_shard(), self.runtime.domain());
        let reply = Arc::<Reply>::default();
        let mut state = State::new(lease, now);
        state.enter(&reply, read.text, now);
        let lane = Arc::new(Lane {
            lanes: Arc::clone(self),
            domain,
            load: AtomicUsize::new(1),
            is_closed: AtomicBool::new(false),
            timings_shard,
            state: Mutex::new(state),
        });
        let drainer = Drainer::new(Arc::clone(&lane));
        let woken = {
            let mut all = self.all();
            all.lanes.push(Arc::clone(&lane));
            self.count.store(all.lanes.len(), Ordering::SeqCst);
            all.take_waiting(domain, MOST - 1)
        };
        self.runtime.spawn(Box::pin(drainer));
        woken.into_iter().for_each(Waker::wake);
        Ok(Member {
            lane,
            reply,
            is_answered: false,
        })
    }

    /// Gives the connections of empty lanes back: their drainers may run on an executor that nobody drives.
    pub(crate) fn release_empty(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let lanes = self.all().lanes.clone();
        for lane in &lanes {
            let mut deferred = Deferred::default();
            let mut state = lane.lock();
            if state.is_over() {
                state.end(self.runtime.now(), self.least_round_trip(), &mut deferred);
            }
            drop(state);
            lane.finish(&mut deferred);
        }
    }

    /// Returns how many reads have run in lanes.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the shared connections, each with how many reads are in flight.
    pub(crate) fn loads(&self) -> Vec<(ResourceId, usize)> {
        let lanes = self.all().lanes.clone();
        let load = |lane: &Arc<Lane>| {
            let state = lane.lock();
            Some((Lease::id(state.lease()?), state.in_flight()))
        };
        lanes.iter().filter_map(load).collect()
    }

    fn remove(&self, lane: &Lane) {
        let mut all = self.all();
        if let Some(at) = all.lanes.iter().position(|it| std::ptr::eq(&**it, lane)) {
            let gone = all.lanes.swap_remove(at);
            self.count.store(all.lanes.len(), Ordering::SeqCst);
            drop(all);
            drop(gone);
        }
    }

    /// Wakes reads in the pool's queue: a lane has room.
    fn wake_waiting(&self, domain: Domain, most: usize) {
        let woken = self.all().take_waiting(domain, most);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl All {
    fn queued(&self, domain: Domain) -> usize {
        let mut queued = self.queued.iter();
        queued
            .find(|(of, _)| *of == domain)
            .map_or(0, |(_, count)| *count)
    }

    /// Returns whether reads of this executor wait for a lane.
    fn is_waiting(&self, domain: Domain) -> bool {
        self.waiting.iter().any(|it| it.domain == domain)
    }

    fn with_room(&self, domain: Domain) -> Option<Arc<Lane>> {
        let open = self.lanes.iter().filter(|lane| lane.has_room(domain));
        open.min_by_key(|lane| lane.load()).cloned()
    }

    fn position(&self, ticket: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&ticket, |it| it.ticket)
    }

    /// Takes the oldest reads that wait for a lane of this executor.
    fn take_waiting(&mut self, domain: Domain, most: usize) -> Vec<Waker> {
        let mut woken = Vec::new();
        let mut at = 0;
        while woken.len() < most
            && let Some(waiting) = self.waiting.get(at)
        {
            match waiting.domain == domain {
                true => woken.extend(self.waiting.remove(at).map(|it| it.waker)),
                false => at += 1,
            }
        }
        woken
    }
}

/// A run with a connection for itself, while it is measured. Dropped, it counts if it was long.
pub(crate) struct Measured<'l> {
    lanes: &'l Lanes,
    text: TextId,
    began: Instant,
    is_answered: bool,
}

impl Measured<'_> {
    pub(crate) fn end<T>(mut self, answer: &crate::Result<T>) {
        self.is_answered = answer.is_ok();
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.lanes
            .note_alone(self.text, self.began, self.is_answered);
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock but the driver, which then leaves the lane unusable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> usize {
        // SeqCst, as the count of reads in the queue: a read that finds no room is seen by the lane that gets room.
        self.load.load(Ordering::SeqCst)
    }

    fn has_room(&self, domain: Option<u64>) -> bool {
        !self.is_closed.load(Ordering::SeqCst) && self.load() < MOST && self.domain == domain
    }

    fn push(&self, handle: &Handle, read: &Read<'_>, reply: &Arc<Reply>) -> Push {
        let now = self.lanes.runtime.now();
        let mut state = self.lock();
        let is_fit = state.lease().is_some_and(|lease| handle.may_share(lease));
        if !is_fit {
            state.close();
        }
        let pushed = state.push(&read.request, read.site, reply, read.text, now);
        self.note(&mut state);
        pushed
    }

    /// Ends the wait for an answer.
    fn leave(&self, reply: &Reply) {
        let mut state = self.lock();
        let (was_in_flight, unread) = reply.abandon();
        let waker = state.leave(was_in_flight);
        self.note(&mut state);
        drop(state);
        drop(unread);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the lane: its reads run elsewhere.
    fn end(&self) {
        let mut deferred = Deferred::default();
        let (now, least) = (self.lanes.runtime.now(), self.lanes.least_round_trip());
        self.lock().end(now, least, &mut deferred);
        self.finish(&mut deferred);
        self.lanes.remove(self);
    }

    /// Notes what the choice of a lane needs to know.
    fn note(&self, state: &mut State) {
        self.load.store(state.in_flight(), Ordering::SeqCst);
        if state.is_closed() {
            self.is_closed.store(true, Ordering::SeqCst);
            if state.begins_closing() {
                self.lanes.closing.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Notes that nobody knows when a closed lane gives its connection back: its oldest read is blocked.
    fn note_blocked(&self, state: &mut State) {
        if state.ends_closing() {
            self.lanes.closing.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Does what follows when the lock is released.
    fn finish(&self, deferred: &mut Deferred) {
        if let Some(lease) = deferred.lease.take() {
            self.is_closed.store(true, Ordering::SeqCst);
            self.lanes.remove(self);
            match self.state.is_poisoned() {
                false => drop(lease),
                // The driver has panicked in the middle of a message.
                true => Lease::discard(lease),
            }
        }
        if std::mem::take(&mut deferred.was_closing) {
            self.lanes.closing.fetch_sub(1, Ordering::SeqCst);
        }
        let answered = std::mem::take(&mut deferred.answered);
        self.lanes.reads.fetch_add(answered, Ordering::Relaxed);
        if self.lanes.is_eager {
            eager::note(answered);
        }
        if !deferred.runs.is_empty() || !deferred.barred.is_empty() {
            let now = self.lanes.runtime.now();
            let mut texts = self.lanes.texts();
            for (text, service) in deferred.runs.drain(..) {
                texts.note(text, service, now);
            }
            for text in deferred.barred.drain(..) {
                texts.bar(text, now);
            }
        }
        deferred.drop_unread();
        deferred.wakers.drain(..).for_each(Waker::wake);
        let has_queue = self.lanes.queued.load(Ordering::SeqCst) > 0;
        if has_queue && !self.is_closed.load(Ordering::SeqCst) {
            let room = MOST.saturating_sub(self.load());
            self.lanes.wake_waiting(self.domain, room);
        }
    }
}
