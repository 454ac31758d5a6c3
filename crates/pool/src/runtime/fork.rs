//! `fork`: the child has a copy of its parent's memory and one of its threads.
//!
//! The built-in thread is not among them, so the child starts another one when it needs it. A pool
//! that the child inherits is closed there: its resources are the parent's connections, files and locks, and
//! the tasks that hold the others or maintain the pool do not exist. The child neither returns nor
//! destroys any of them: acquires fail with [`AcquireError::Forked`](crate::AcquireError::Forked), and leases are forgotten.
//!
//! The thread that forks holds every pool's lock meanwhile, so that the child finds none that is taken for
//! ever. (`posix_spawn`, and so most of `std::process::Command`, does not come here.)

#[cfg(all(unix, not(loom), not(miri)))]
pub(crate) use self::unix::{register, unregister, watch};

#[cfg(all(unix, not(loom), not(miri)))]
mod unix {
    use std::cell::UnsafeCell;
    use std::collections::BTreeMap;
    use std::mem;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

    use crate::breaker::PoolId;
    use crate::core::state::{Clock, Deferred, Locked};
    use crate::core::{Core, PoolState};
    use crate::manager::Manager;
    use crate::runtime::forget_thread;

    /// The pools of this process.
    static POOLS: Mutex<BTreeMap<u64, Weak<dyn Pausable>>> = Mutex::new(BTreeMap::new());

    fn pools() -> MutexGuard<'static, BTreeMap<u64, Weak<dyn Pausable>>> {
        POOLS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register<M: Manager>(core: &Arc<Core<M>>) {
        watch();
        let weak: Weak<Core<M>> = Arc::downgrade(core);
        pools().insert(core.id.0, weak);
    }

    pub(crate) fn unregister(id: PoolId) {
        let gone = pools().remove(&id.0);
        drop(gone);
    }

    /// Makes sure that a fork comes by here.
    pub(crate) fn watch() {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        // Relaxed: one caller registers; the others need not wait for it.
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the three functions live as long as the process. If there is no memory
            // for them, a fork does what it does without them.
            unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(inherit)) };
        }
    }

    /// A pool that can be held still.
    trait Pausable: Send + Sync {
        fn pause(self: Arc<Self>) -> Box<dyn Paused>;
    }

    /// A pool that stands still: its lock is taken.
    trait Paused {
        /// In the parent: unlocks.
        fn resume(self: Box<Self>) -> Arc<dyn Pausable>;
        /// In the child: closes the pool and unlocks.
        fn inherit(self: Box<Self>);
    }

    struct HeldLock<M: Manager> {
        state: MutexGuard<'static, PoolState<M>>,
        core: Arc<Core<M>>,
    }

    impl<M: Manager> Pausable for Core<M> {
        fn pause(self: Arc<Self>) -> Box<dyn Paused> {
            // SAFETY: `core` keeps the lock alive for longer than the guard, which is dropped first.
            let core: &'static Core<M> = unsafe { &*Arc::as_ptr(&self) };
            Box::new(HeldLock {
                state: core.state(),
                core: self,
            })
        }
    }

    impl<M: Manager> Paused for HeldLock<M> {
        fn resume(self: Box<Self>) -> Arc<dyn Pausable> {
            let HeldLock { state, core } = *self;
            drop(state);
            core
        }

        fn inherit(self: Box<Self>) {
            let HeldLock { mut state, core } = *self;
            let mut deferred = Deferred::default();
            Locked {
                state: &mut state,
                slots: &core.slots,
                clock: Clock::new(&**core.runtime),
                deferred: &mut deferred,
            }
            .close();
            // Wakers, resources and handles of the pool are left as they are: what would follow is
            // the parent's business.
            mem::forget((deferred, core.spare.lock().take()));
            core.note_inherited(&mut state);
            drop(state);
            mem::forget(core);
        }
    }

    /// What the thread that forks holds meanwhile.
    struct Fork {
        paused: Vec<Box<dyn Paused>>,
        pools: MutexGuard<'static, BTreeMap<u64, Weak<dyn Pausable>>>,
    }

    struct UnderWay(UnsafeCell<Option<Fork>>);

    // SAFETY: only the thread that forks uses it, in the handlers below. A second one that
    // forks waits for `POOLS`, which the first one holds from `prepare` on.
    unsafe impl Sync for UnderWay {}

    static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

    extern "C" fn prepare() {
        let pools = pools();
        let living = pools.values().filter_map(Weak::upgrade);
        let paused = living.map(Pausable::pause).collect();
        // SAFETY: see `UnderWay`.
        unsafe { *UNDER_WAY.0.get() = Some(Fork { paused, pools }) };
    }

    extern "C" fn resume() {
        // SAFETY: see `UnderWay`.
        let Some(fork) = (unsafe { (*UNDER_WAY.0.get()).take() }) else {
            return;
        };
        let paused = fork.paused.into_iter();
        let cores: Vec<_> = paused.map(Paused::resume).collect();
        drop(fork.pools);
        // Unregisters a pool if this was the last hold on it.
        drop(cores);
    }

    extern "C" fn inherit() {
        forget_thread();
        // SAFETY: see `UnderWay`.
        let Some(fork) = (unsafe { (*UNDER_WAY.0.get()).take() }) else {
            return;
        };
        fork.paused.into_iter().for_each(Paused::inherit);
    }
}

#[cfg(not(all(unix, not(loom), not(miri))))]
pub(crate) use self::none::{register, unregister, watch};

#[cfg(not(all(unix, not(loom), not(miri))))]
mod none {
    use std::sync::Arc;

    use crate::breaker::PoolId;
    use crate::core::Core;
    use crate::manager::Manager;

    pub(crate) fn register<M: Manager>(_: &Arc<Core<M>>) {}
    pub(crate) fn unregister(_: PoolId) {}
    pub(crate) fn watch() {}
}
