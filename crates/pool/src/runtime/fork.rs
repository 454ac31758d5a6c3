//! `fork`: the child has a copy of its parent's memory, but only one of its threads.
//!
//! The child starts a built-in thread of its own when it needs one. A pool that the child inherits is closed
//! there: its resources belong to the parent, and the tasks that hold or maintain them do not exist in the
//! child. The child neither releases nor destroys these resources: acquires fail with
//! [`AcquireError::Forked`](crate::AcquireError::Forked), and leases are forgotten.
//!
//! The thread that forks holds every pool's lock meanwhile, so that no lock is taken for ever in the child.
//! (`posix_spawn`, and so most of `std::process::Command`, does not run these handlers.)

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

    /// Registers the fork handlers.
    pub(crate) fn watch() {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        // Relaxed: one caller registers; the others need not wait for it.
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the three functions live as long as the process. If the registration fails for
            // want of memory, a fork works as without it.
            unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(inherit)) };
        }
    }

    /// A pool whose lock can be taken for a fork.
    trait Pausable: Send + Sync {
        fn pause(self: Arc<Self>) -> Box<dyn Paused>;
    }

    /// A pool whose lock is taken.
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
            // Wakers, resources and handles belong to the parent, so they are forgotten.
            mem::forget((deferred, core.spare.lock().take()));
            core.note_inherited(&mut state);
            drop(state);
            mem::forget(core);
        }
    }

    /// What the thread that forks holds during the fork.
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
        // Unregisters a pool if this was its last reference.
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
