//! One checkout and return of a resource that costs nothing, by one task, on
//! each pool's default settings. All pools run in turn in every round, and the
//! medians over the rounds are compared: ratios survive a noisy machine.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cenote_pool::{FnPool, Manager, Pool, Verdict};

const ROUNDS: usize = 15;
const CHECKOUTS: u32 = 200_000;

/// The resource: one word.
type Resource = u64;

struct Plain;

impl Manager for Plain {
    type Resource = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }
}

/// All hooks set and ready at once.
struct Hooked;

impl Manager for Hooked {
    type Resource = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn before_acquire(&self, resource: &mut Resource) -> Result<bool, Infallible> {
        Ok(black_box(*resource) < u64::MAX)
    }

    fn before_release(&self, resource: &mut Resource) -> Verdict {
        black_box(*resource);
        Verdict::Keep
    }

    async fn healthcheck(&self, resource: &mut Resource) -> Result<bool, Infallible> {
        Ok(black_box(*resource) < u64::MAX)
    }

    async fn destroy(&self, resource: Resource) -> Result<(), Infallible> {
        black_box(resource);
        Ok(())
    }
}

impl deadpool::managed::Manager for Plain {
    type Type = Resource;
    type Error = Infallible;

    async fn create(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        _: &mut Resource,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl bb8::ManageConnection for Plain {
    type Connection = Resource;
    type Error = Infallible;

    async fn connect(&self) -> Result<Resource, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _: &mut Resource) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Resource) -> bool {
        false
    }
}

fn closures() -> FnPool<Resource, Infallible> {
    let pool = Pool::from_fn(|| async { Ok(0) })
        .before_acquire(|resource: &mut Resource| black_box(*resource) < u64::MAX)
        .before_release(|resource: &mut Resource| black_box(*resource) < u64::MAX);
    pool.build().expect("the defaults are valid")
}

/// Nanoseconds for one checkout, by one task.
macro_rules! measure {
    ($get:expr) => {{
        let begin = Instant::now();
        for _ in 0..CHECKOUTS {
            let mut lease = $get;
            *lease = lease.wrapping_add(1);
            black_box(&*lease);
        }
        nanos(begin.elapsed())
    }};
}

fn nanos(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e9 / f64::from(CHECKOUTS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    // In a task of its own: the main task of a runtime is polled differently.
    tokio::spawn(run()).await.expect("the benchmark ran");
}

async fn run() {
    let plain = Pool::builder(Plain).build().expect("valid");
    let hooked = Pool::builder(Hooked).build().expect("valid");
    let closures = closures();
    let deadpool = deadpool::managed::Pool::<Plain>::builder(Plain).build().expect("valid");
    let bb8 = bb8::Pool::builder().build(Plain).await.expect("valid");

    let names = [
        "cenote, manager, no hooks",
        "cenote, manager, owned lease",
        "cenote, manager, all hooks",
        "cenote, closures as hooks",
        "deadpool 0.13",
        "bb8 0.9",
    ];
    let mut results = vec![Vec::new(); names.len()];
    for _ in 0..ROUNDS {
        results[0].push(measure!(plain.acquire().await.expect("idle")));
        results[1].push(measure!(plain.acquire_owned().await.expect("idle")));
        results[2].push(measure!(hooked.acquire().await.expect("idle")));
        results[3].push(measure!(closures.acquire().await.expect("idle")));
        results[4].push(measure!(deadpool.get().await.expect("idle")));
        results[5].push(measure!(bb8.get().await.expect("idle")));
        tokio::task::yield_now().await;
    }
    let medians: Vec<f64> = results.into_iter().map(median).collect();
    let deadpool = medians[4];
    println!("one task, ns a checkout, median of {ROUNDS} rounds of {CHECKOUTS}:\n");
    for (name, median) in names.iter().zip(&medians) {
        println!("{name:32} {median:8.1}   {:5.2} x deadpool", median / deadpool);
    }
}
