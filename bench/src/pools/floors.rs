//! Lower bounds for a pool: containers of resources without hooks, limits, counters
//! or timeouts.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::hint::black_box;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::ArrayQueue;

use super::{Kind, Patience, Resource, Subject};

/// Where leases come from and go back to.
pub trait Shelf: Sized + Send + Sync + 'static {
    fn put_back(&self, resource: Resource);
}

/// A resource taken from a lower bound.
pub struct Loan<S: Shelf> {
    shelf: &'static S,
    resource: Resource,
}

impl<S: Shelf> Deref for Loan<S> {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        &self.resource
    }
}

impl<S: Shelf> DerefMut for Loan<S> {
    fn deref_mut(&mut self) -> &mut Resource {
        &mut self.resource
    }
}

impl<S: Shelf> Drop for Loan<S> {
    fn drop(&mut self) {
        self.shelf.put_back(self.resource);
    }
}

fn use_it<S: Shelf>(loan: &mut Loan<S>) {
    **loan = loan.wrapping_add(1);
    black_box(&mut **loan);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a lower bound that is empty and cannot wait.
#[derive(Debug)]
pub struct Empty;

/// A mutex round a ring buffer.
pub struct MutexRing(Mutex<VecDeque<Resource>>);

impl Shelf for MutexRing {
    fn put_back(&self, resource: Resource) {
        lock(&self.0).push_back(resource);
    }
}

impl Subject for MutexRing {
    const NAME: &'static str = "floor-mutex-ring";
    const KIND: Kind = Kind::Floor;
    const WAITS: bool = false;

    type Lease = Loan<Self>;
    type Error = Empty;

    async fn open(max: usize, _: Patience) -> Option<Self> {
        Some(MutexRing(Mutex::new((0..max as u64).collect())))
    }

    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
        let resource = lock(&self.0).pop_front().ok_or(Empty);
        ready(resource.map(|resource| Loan {
            shelf: self,
            resource,
        }))
    }

    fn touch(lease: &mut Self::Lease) {
        use_it(lease);
    }
}

/// A lock-free queue of fixed size.
pub struct LockFree(ArrayQueue<Resource>);

impl Shelf for LockFree {
    fn put_back(&self, resource: Resource) {
        // There is room for everything that came out of it.
        let _ = self.0.push(resource);
    }
}

impl Subject for LockFree {
    const NAME: &'static str = "floor-array-queue";
    const KIND: Kind = Kind::Floor;
    const WAITS: bool = false;

    type Lease = Loan<Self>;
    type Error = Empty;

    async fn open(max: usize, _: Patience) -> Option<Self> {
        let queue = ArrayQueue::new(max);
        for resource in 0..max as u64 {
            let _ = queue.push(resource);
        }
        Some(LockFree(queue))
    }

    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
        let resource = self.0.pop().ok_or(Empty);
        ready(resource.map(|resource| Loan {
            shelf: self,
            resource,
        }))
    }

    fn touch(lease: &mut Self::Lease) {
        use_it(lease);
    }
}

/// A mutex around the idle resources and the queue. A released resource goes
/// straight to the oldest waiter, so no acquire overtakes another: the lower
/// bound for a fair pool when there are more tasks than resources.
pub struct HandOver(Mutex<Desk>);

struct Desk {
    idle: VecDeque<Resource>,
    queue: VecDeque<Arc<Mutex<Waiter>>>,
}

/// One waiter's place in the queue, shared by the waiter and the queue.
enum Waiter {
    Waiting(Waker),
    Given(Resource),
    /// The waiter was dropped, or has got its resource.
    Left,
}

impl Shelf for HandOver {
    fn put_back(&self, resource: Resource) {
        let mut desk = lock(&self.0);
        let waker = loop {
            let Some(first) = desk.queue.pop_front() else {
                desk.idle.push_back(resource);
                return;
            };
            let mut waiter = lock(&first);
            if let Waiter::Waiting(_) = &*waiter
                && let Waiter::Waiting(waker) =
                    std::mem::replace(&mut *waiter, Waiter::Given(resource))
            {
                break waker;
            }
        };
        drop(desk);
        waker.wake();
    }
}

struct HandOverAcquire {
    shelf: &'static HandOver,
    waiter: Option<Arc<Mutex<Waiter>>>,
}

impl Future for HandOverAcquire {
    type Output = Result<Loan<HandOver>, Empty>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shelf = self.shelf;
        let loan = |resource| Poll::Ready(Ok(Loan { shelf, resource }));
        if let Some(waiter) = &self.waiter {
            let mut waiter = lock(waiter);
            return match &mut *waiter {
                Waiter::Given(resource) => {
                    let resource = *resource;
                    *waiter = Waiter::Left;
                    loan(resource)
                }
                Waiter::Waiting(waker) => {
                    waker.clone_from(cx.waker());
                    Poll::Pending
                }
                Waiter::Left => Poll::Ready(Err(Empty)),
            };
        }
        let mut desk = lock(&shelf.0);
        // Nothing is idle while a task waits, so this overtakes no waiter.
        if let Some(resource) = desk.idle.pop_front() {
            return loan(resource);
        }
        let waiter = Arc::new(Mutex::new(Waiter::Waiting(cx.waker().clone())));
        desk.queue.push_back(Arc::clone(&waiter));
        drop(desk);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for HandOverAcquire {
    fn drop(&mut self) {
        let Some(waiter) = &self.waiter else { return };
        let left = std::mem::replace(&mut *lock(waiter), Waiter::Left);
        // The resource was given and not collected: it goes to the next waiter.
        if let Waiter::Given(resource) = left {
            self.shelf.put_back(resource);
        }
    }
}

impl Subject for HandOver {
    const NAME: &'static str = "floor-hand-over";
    const KIND: Kind = Kind::Floor;

    type Lease = Loan<Self>;
    type Error = Empty;

    async fn open(max: usize, patience: Patience) -> Option<Self> {
        if let Patience::Within(_) = patience {
            return None;
        }
        Some(HandOver(Mutex::new(Desk {
            idle: (0..max as u64).collect(),
            queue: VecDeque::new(),
        })))
    }

    fn acquire(
        &'static self,
    ) -> impl Future<Output = Result<Self::Lease, Self::Error>> + Send + 'static {
        HandOverAcquire {
            shelf: self,
            waiter: None,
        }
    }

    fn touch(lease: &mut Self::Lease) {
        use_it(lease);
    }
}
