//! One task checks out and returns, over and over. It is a spawned task of a
//! multi-thread runtime, as in a server; the main task of a runtime is polled
//! differently.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::threads::{BATCH, WARM_UP};
use super::{GRACE, end, runtime};
use crate::pools::{self, Subject};
use crate::stats::Sample;

pub fn run<P: Subject>(time: Duration) -> Sample {
    let runtime = runtime(2);
    let (done, result) = mpsc::channel();
    runtime.spawn(async move {
        let pool = pools::open::<P>(10).await;
        for _ in 0..WARM_UP {
            checkout(pool).await;
        }
        let begin = Instant::now();
        let mut checkouts = 0;
        let wall = loop {
            for _ in 0..BATCH {
                checkout(pool).await;
            }
            checkouts += BATCH;
            let wall = begin.elapsed();
            if wall >= time {
                break wall;
            }
        };
        pool.close().await;
        let _ = done.send(Sample::new(wall, checkouts));
    });
    let sample = result.recv_timeout(time + GRACE);
    end(runtime, sample.is_err());
    sample.unwrap_or_else(|_| Sample::hung())
}

/// One checkout and return of a resource that is used meanwhile.
#[inline]
pub async fn checkout<P: Subject>(pool: &'static P) {
    let mut lease = pool.acquire().await.expect("a resource");
    P::touch(&mut lease);
}
