//! r2d2 blocks the thread that waits, so it runs on plain threads, and only
//! where no acquire waits: a thousand tasks would need a thousand threads.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use r2d2::{ManageConnection, Pool};

use super::{Entry, Kind, Resource};
use crate::scenarios::threads::{self, BATCH, Gate, Span, WARM_UP};
use crate::stats::Sample;

struct Plain;

impl ManageConnection for Plain {
    type Connection = Resource;
    type Error = Infallible;

    fn connect(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    fn is_valid(&self, _: &mut Resource) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Resource) -> bool {
        false
    }
}

pub fn entry() -> Entry {
    Entry {
        name: "r2d2",
        kind: Kind::Peer,
        in_hooks: false,
        in_others: true,
        one: |time| run(1, 10, time),
        threads: |threads, time| run(threads, 2 * threads, time),
        waiting: None,
    }
}

fn run(threads: usize, max: usize, time: Duration) -> Sample {
    let max = u32::try_from(max).expect("a small number");
    let pool = Pool::builder().max_size(max).build(Plain);
    let pool = pool.expect("the settings are valid");
    threads::drive(threads, time, move |gate| checkouts(&pool, gate))
}

fn checkouts(pool: &Pool<Plain>, gate: &Gate) -> Span {
    for _ in 0..WARM_UP {
        checkout(pool);
    }
    threads::own_runtime().block_on(gate.enter());
    let begin = Instant::now();
    let mut count = 0;
    while !gate.is_shut() {
        for _ in 0..BATCH {
            checkout(pool);
        }
        count += BATCH;
    }
    Span {
        begin,
        end: Instant::now(),
        count,
    }
}

fn checkout(pool: &Pool<Plain>) {
    let mut lease = pool.get().expect("a resource");
    *lease = lease.wrapping_add(1);
    black_box(&mut *lease);
}
