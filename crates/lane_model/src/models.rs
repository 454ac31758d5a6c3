//! The models. Each runs in every order of steps within the preemption bound.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::driver::{Request, SharedAnswer};
use crate::lane::{Join, Lanes, Member, Read};
use crate::pooled::handle::Handle;
use crate::stand_ins::{Executor, Pool, Spawner, Spawning, block_on, poll_and_drop, poll_once};

/// What a read got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    /// Its own answer, from a lane.
    Shared,
    /// It ran on a connection for itself.
    Alone,
    /// It has to run again.
    Again,
    Lost,
}

struct World {
    lanes: Arc<Lanes>,
    pool: Arc<Pool>,
    executor: Arc<Executor>,
}

fn describe(number: &u32) -> Read<'_> {
    Read {
        request: Request(number),
        text: 1,
        site: Location::caller(),
    }
}

impl World {
    fn new() -> Arc<Self> {
        Self::with(Executor::default(), Pool::default())
    }

    fn with(executor: Executor, pool: Pool) -> Arc<Self> {
        let executor = Arc::new(executor);
        Arc::new(World {
            lanes: Lanes::new(Arc::new(Spawner(Arc::clone(&executor)))),
            pool: Arc::new(pool),
            executor,
        })
    }

    /// Opens a lane with the connection, which is idle.
    fn open(&self, number: u32) -> Member {
        let lease = self.pool.lease().unwrap();
        self.lanes.open(lease, &describe(&number)).ok().unwrap()
    }

    /// Joins the lane, which has room.
    fn join(&self, number: u32) -> Member {
        match self.lanes.join(&Handle, &describe(&number)) {
            Join::Member(member) => member,
            Join::Full | Join::Refused => panic!("the lane has room"),
        }
    }

    /// Takes a place as `call/shared.rs` does: on the idle connection, in a lane, or on what the queue of the pool gives. `None`
    /// if it has the connection for itself.
    async fn place(&self, number: u32) -> Option<Member> {
        if self.pool.lease().is_some() {
            return None;
        }
        let read = describe(&number);
        if let Join::Member(member) = self.lanes.join(&Handle, &read) {
            return Some(member);
        }
        let acquiring = self.pool.acquire();
        match self.lanes.join_or(&Handle, &read, acquiring).await {
            Ok(member) => Some(member),
            Err((lease, may_share)) if may_share && self.lanes.has_queue() => {
                self.lanes.open(lease, &read).ok()
            }
            Err(_) => None,
        }
    }

    async fn read(&self, number: u32) -> Got {
        match self.place(number).await {
            Some(member) => answer(member, number).await,
            None => Got::Alone,
        }
    }

    /// Checks that nothing is left when all have ended.
    fn assert_at_rest(&self) {
        self.executor.join();
        assert!(self.pool.is_idle(), "the connection was not given back");
        assert!(self.lanes.loads().is_empty(), "a lane is left");
        assert_eq!(self.lanes.expected_waiters(None), 0, "a counter is wrong");
        assert!(!self.lanes.has_queue());
    }
}

async fn answer(member: Member, number: u32) -> Got {
    match member.await {
        SharedAnswer::Answered(Ok(answer)) => {
            assert_eq!(answer.0, number, "the answer of another read");
            Got::Shared
        }
        SharedAnswer::Answered(Err(_)) => Got::Lost,
        SharedAnswer::Again => Got::Again,
    }
}

fn spawn<T: 'static>(world: &Arc<World>, run: impl FnOnce(&World) -> T + 'static) -> Running<T> {
    let world = Arc::clone(world);
    Running(thread::spawn(move || run(&world)))
}

struct Running<T>(thread::JoinHandle<T>);

impl<T> Running<T> {
    fn end(self) -> T {
        self.0.join().unwrap()
    }
}

/// A model that has too many orders of steps for the usual bound.
fn large_model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound - 1);
    builder.check(run);
}

#[test]
fn read_that_joins_gets_its_own_answer() {
    loom::model(|| {
        let world = World::new();
        let first = world.open(1);
        let second = spawn(&world, |world| block_on(world.read(2)));
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        assert!([Got::Shared, Got::Alone].contains(&second.end()));
        world.assert_at_rest();
    });
}

#[test]
fn dropped_read_keeps_no_answer_and_no_place() {
    for polls in 0..2 {
        loom::model(move || {
            let world = World::new();
            let first = world.open(1);
            let second = spawn(&world, move |world| poll_and_drop(polls, world.read(2)));
            assert_eq!(block_on(answer(first, 1)), Got::Shared);
            second.end();
            world.assert_at_rest();
        });
    }
}

#[test]
fn drop_of_the_oldest_read_leaves_the_others_alone() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let second = spawn(&world, |world| {
            world.pool.answer();
            block_on(answer(second, 2))
        });
        drop(first);
        assert_eq!(second.end(), Got::Shared);
        world.assert_at_rest();
    });
}

/// The server never answers.
#[test]
fn lane_that_all_have_left_gives_its_connection_back() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let second = spawn(&world, |_| poll_and_drop(1, second));
        poll_and_drop(1, first);
        assert!(second.end().is_none());
        world.assert_at_rest();
    });
}

#[test]
fn queued_read_is_woken_when_a_lane_has_room() {
    large_model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let third = spawn(&world, |world| block_on(world.read(3)));
        world.pool.answer();
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        assert_eq!(block_on(answer(second, 2)), Got::Shared);
        assert!([Got::Shared, Got::Alone].contains(&third.end()));
        world.assert_at_rest();
    });
}

/// The lane cannot end, because the server does not answer its last read.
#[test]
fn queued_read_joins_a_lane_that_does_not_end() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        world.pool.answer_only(1);
        let third = block_on(world.place(3)).unwrap();
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        world.pool.answer_only(1);
        assert_eq!(block_on(answer(second, 2)), Got::Shared);
        // The place of the third read in the pool's queue has closed no lane.
        let fourth = block_on(world.place(4)).unwrap();
        world.pool.answer();
        assert_eq!(block_on(answer(third, 3)), Got::Shared);
        assert_eq!(block_on(answer(fourth, 4)), Got::Shared);
        world.assert_at_rest();
    });
}

#[test]
fn woken_read_that_is_dropped_passes_its_room_on() {
    large_model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let mut leaving = Box::pin(world.read(3));
        assert!(poll_once(&mut leaving).is_none());
        let staying = spawn(&world, |world| block_on(world.place(4)));
        world.pool.answer_only(1);
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        drop(leaving);
        let fourth = staying.end().unwrap();
        world.pool.answer();
        assert_eq!(block_on(answer(second, 2)), Got::Shared);
        assert_eq!(block_on(answer(fourth, 4)), Got::Shared);
        world.assert_at_rest();
    });
}

#[test]
fn queued_read_that_is_dropped_passes_its_room_on() {
    large_model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let leaving = spawn(&world, |world| poll_and_drop(2, world.read(3)));
        let staying = spawn(&world, |world| block_on(world.read(4)));
        world.pool.answer();
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        drop(second);
        leaving.end();
        assert!([Got::Shared, Got::Alone].contains(&staying.end()));
        world.assert_at_rest();
    });
}

#[test]
fn answer_and_expulsion_at_once_end_one_wait_once() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let server = spawn(&world, |world| world.pool.answer());
        world.executor.advance(Duration::from_millis(11));
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        assert!([Got::Shared, Got::Again].contains(&block_on(answer(second, 2))));
        server.end();
        world.assert_at_rest();
    });
}

#[test]
fn read_that_is_dropped_while_it_is_expelled_leaves_nothing() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let leaving = spawn(&world, |_| poll_and_drop(1, second));
        world.executor.advance(Duration::from_millis(11));
        world.pool.answer();
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        leaving.end();
        world.assert_at_rest();
    });
}

/// The server answers the oldest read when the other one has left.
#[test]
fn expelled_read_waits_for_no_answer() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let (first, second) = (world.open(1), world.join(2));
        let behind = spawn(&world, |_| block_on(answer(second, 2)));
        world.executor.advance(Duration::from_millis(11));
        assert_eq!(behind.end(), Got::Again);
        world.pool.answer();
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        world.assert_at_rest();
    });
}

#[test]
fn executor_that_shuts_down_sends_its_reads_elsewhere() {
    loom::model(|| {
        let world = World::with(Executor::new(Spawning::Keeps), Pool::default());
        let first = world.open(1);
        let drainer = world.executor.take_kept();
        let shutdown = spawn(&world, |_| drop(drainer));
        let second = spawn(&world, |world| block_on(world.read(2)));
        assert_eq!(block_on(answer(first, 1)), Got::Again);
        shutdown.end();
        assert!([Got::Again, Got::Alone].contains(&second.end()));
        world.assert_at_rest();
    });
}

#[test]
fn executor_that_drops_the_task_at_once_loses_no_read() {
    loom::model(|| {
        let world = World::with(Executor::new(Spawning::Drops), Pool::default());
        let first = world.open(1);
        let second = spawn(&world, |world| block_on(world.read(2)));
        assert_eq!(block_on(answer(first, 1)), Got::Again);
        assert_eq!(second.end(), Got::Alone);
        world.assert_at_rest();
    });
}

#[test]
fn lost_connection_fails_its_oldest_read_alone() {
    loom::model(|| {
        let world = World::new();
        world.pool.hold_answers();
        let first = world.open(1);
        let second = spawn(&world, |world| block_on(world.read(2)));
        world.pool.lose();
        assert_eq!(block_on(answer(first, 1)), Got::Lost);
        assert!([Got::Again, Got::Alone].contains(&second.end()));
        world.assert_at_rest();
    });
}

#[test]
fn reads_behind_a_session_change_run_elsewhere() {
    loom::model(|| {
        let pool = Pool::of_a_session_changed_by(1);
        let world = World::with(Executor::default(), pool);
        let first = world.open(1);
        let second = spawn(&world, |world| block_on(world.read(2)));
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        assert!([Got::Again, Got::Alone].contains(&second.end()));
        world.assert_at_rest();
    });
}

#[test]
fn waiter_for_a_whole_connection_gets_that_of_the_lane() {
    large_model(|| {
        let world = World::new();
        let first = world.open(1);
        let waiter = spawn(&world, |world| drop(block_on(world.pool.acquire())));
        let second = spawn(&world, |world| block_on(world.read(2)));
        assert_eq!(block_on(answer(first, 1)), Got::Shared);
        assert!([Got::Shared, Got::Alone].contains(&second.end()));
        waiter.end();
        world.assert_at_rest();
    });
}
