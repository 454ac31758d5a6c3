//! The same manager on its own pool and on cenote-pool: the time of a checkout, with one task and with a
//! queue. For `bench/adapters.sh`, which also counts instructions.
//!
//! ```text
//! adapters-bench                     a table of times
//! adapters-bench CASE CHECKOUTS      so many checkouts of one case, polled by hand
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cenote_bb8::FromBb8;
use cenote_deadpool::FromDeadpool;
use cenote_pool::Pool;

/// Rounds of each pair; the table shows medians.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);
const TASKS: usize = 64;
const RESOURCES: usize = 8;
/// What a manager on cenote-pool may cost, as a share of its own pool.
const GOAL: f64 = 0.5;

struct Plain;

impl deadpool::managed::Manager for Plain {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        resource: &mut u64,
        metrics: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        black_box((resource, metrics));
        Ok(())
    }
}

impl bb8::ManageConnection for Plain {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, resource: &mut u64) -> Result<(), Infallible> {
        black_box(resource);
        Ok(())
    }

    fn has_broken(&self, resource: &mut u64) -> bool {
        *black_box(resource) == u64::MAX
    }
}

/// Defines how a pool checks a resource out, uses it and returns it.
macro_rules! case {
    ($case:ident, $pool:ty, $new:expr, $get:ident) => {
        #[derive(Clone)]
        struct $case($pool);

        impl Case for $case {
            fn new(max: usize) -> impl Future<Output = Self> + Send {
                #[allow(clippy::redundant_closure_call)]
                async move {
                    $case(($new)(max).await)
                }
            }

            async fn checkout(&self) {
                let mut resource = self.0.$get().await.expect("a resource");
                *resource = resource.wrapping_add(1);
                black_box(&mut *resource);
            }
        }
    };
}

trait Case: Clone + Send + Sync + 'static {
    fn new(max: usize) -> impl Future<Output = Self> + Send;
    fn checkout(&self) -> impl Future<Output = ()> + Send;
}

case!(
    Deadpool,
    deadpool::managed::Pool<Plain>,
    async |max| deadpool::managed::Pool::builder(Plain)
        .max_size(max)
        .build()
        .expect("valid"),
    get
);
case!(
    DeadpoolOnCenote,
    Pool<FromDeadpool<Plain>>,
    async |max| Pool::builder(FromDeadpool::new(Plain))
        .max(max)
        .build()
        .expect("valid"),
    acquire
);
case!(
    Bb8,
    bb8::Pool<Plain>,
    async |max| {
        let max = u32::try_from(max).expect("a small number");
        bb8::Pool::builder()
            .max_size(max)
            .build(Plain)
            .await
            .expect("valid")
    },
    get
);
case!(
    Bb8OnCenote,
    Pool<FromBb8<Plain>>,
    async |max| Pool::builder(FromBb8::new(Plain))
        .max(max)
        .build()
        .expect("valid"),
    acquire
);

/// Nanoseconds of one checkout, in a spawned task of a multi-thread runtime.
async fn alone<C: Case>() -> f64 {
    let case = C::new(RESOURCES).await;
    let measured = tokio::spawn(async move {
        for _ in 0..1000 {
            case.checkout().await;
        }
        let (begin, mut count) = (Instant::now(), 0_u32);
        while begin.elapsed() < ROUND {
            for _ in 0..1000 {
                case.checkout().await;
            }
            count += 1000;
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    });
    measured.await.expect("no panic")
}

/// Nanoseconds per checkout while 64 tasks share 8 resources; each holder yields once.
async fn queued<C: Case>() -> f64 {
    let case = C::new(RESOURCES).await;
    let barrier = Arc::new(tokio::sync::Barrier::new(TASKS));
    let begin = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let (case, barrier) = (case.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            let begin = Instant::now();
            let mut count = 0_u32;
            while begin.elapsed() < ROUND {
                for _ in 0..100 {
                    case.checkout().await;
                    tokio::task::yield_now().await;
                }
                count += 100;
            }
            count
        })
    });
    let mut count = 0_u32;
    for task in tasks.collect::<Vec<_>>() {
        count += task.await.expect("no panic");
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Measures a pair in alternating rounds and prints its row. Returns whether the goal is met.
async fn pair<Own: Case, Ours: Case>(name: &str) -> bool {
    let (mut own, mut ours) = (Vec::new(), Vec::new());
    let (mut own_queued, mut ours_queued) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(alone::<Own>().await);
        ours.push(alone::<Ours>().await);
        own_queued.push(queued::<Own>().await);
        ours_queued.push(queued::<Ours>().await);
    }
    let (own, ours) = (median(own), median(ours));
    println!(
        "| {name}, one task | {own:.0} ns | {ours:.0} ns | {:.2} |",
        ours / own
    );
    let (own_queued, ours_queued) = (median(own_queued), median(ours_queued));
    let share = ours_queued / own_queued;
    println!(
        "| {name}, {TASKS} tasks on {RESOURCES} | {own_queued:.0} ns | {ours_queued:.0} ns | {share:.2} |"
    );
    ours <= GOAL * own
}

/// Polls a checkout by hand, so that no runtime adds instructions.
fn by_hand<C: Case>(count: u64) {
    let mut cx = Context::from_waker(Waker::noop());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    // The first checkout creates the resource; bb8 does that in a task of its own.
    let case = runtime.block_on(async {
        let case = C::new(1).await;
        case.checkout().await;
        case
    });
    for _ in 0..count {
        let checkout = pin!(case.checkout());
        assert!(matches!(checkout.poll(&mut cx), Poll::Ready(())));
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [case, count] = &words[..] {
        let count = count.parse().expect("a number");
        match case.as_str() {
            "deadpool" => by_hand::<Deadpool>(count),
            "deadpool-on-cenote" => by_hand::<DeadpoolOnCenote>(count),
            "bb8" => by_hand::<Bb8>(count),
            "bb8-on-cenote" => by_hand::<Bb8OnCenote>(count),
            _ => return ExitCode::from(2),
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let met = runtime.block_on(async {
        println!("| manager | its own pool | cenote-pool | share |");
        println!("|---|---|---|---|");
        let deadpool = pair::<Deadpool, DeadpoolOnCenote>("deadpool").await;
        let bb8 = pair::<Bb8, Bb8OnCenote>("bb8").await;
        deadpool && bb8
    });
    if met {
        ExitCode::SUCCESS
    } else {
        eprintln!("with one task, a manager on cenote-pool costs more than {GOAL} of its own pool");
        ExitCode::FAILURE
    }
}
