//! Point reads, one after the other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::engine::{Engine, Session};
use crate::{Ids, report};

const WARM_UP: usize = 2_000;
/// Reads between two looks at the clock.
const BATCH: u64 = 64;

/// One task reads one row after the other.
pub(crate) async fn one_task<E: Engine>(engine: &E, time: Duration) {
    let mut session = engine.reader().await;
    let mut ids = Ids::new(1);
    for _ in 0..WARM_UP {
        read(&mut session, &mut ids).await;
    }
    let began = Instant::now();
    let mut reads = 0_u64;
    let mut took = Duration::ZERO;
    while took < time {
        for _ in 0..BATCH {
            read(&mut session, &mut ids).await;
        }
        reads += BATCH;
        took = began.elapsed();
    }
    report("ns", took.as_nanos() / u128::from(reads));
}

/// Reads a row and checks that it is the right one.
pub(crate) async fn read(session: &mut impl Session, ids: &mut Ids) {
    let id = ids.next();
    let account = black_box(session.read(id).await);
    assert_eq!(account.id, id, "a read gave another row");
}
