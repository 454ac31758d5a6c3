//! The pools behind one trait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const NAMES: [&str; 3] = ["cenote-pool", "deadpool", "bb8"];

pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A lease, whose drop gives its resource back.
pub type Lease = Box<dyn Send>;

/// The settings of a pool.
#[derive(Clone)]
pub struct Setup {
    pub max: usize,
    /// How long an acquire may take.
    pub timeout: Duration,
    /// The creations from here on up to the second number hang.
    pub hangs: std::ops::Range<usize>,
    pub created: Arc<AtomicUsize>,
}

impl Setup {
    pub fn new(max: usize, timeout: Duration) -> Self {
        Setup {
            max,
            timeout,
            hangs: 0..0,
            created: Arc::default(),
        }
    }

    async fn create(&self) -> usize {
        // Relaxed: the counter guards no other data.
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        if self.hangs.contains(&number) {
            std::future::pending::<()>().await;
        }
        number
    }
}

/// A pool.
pub trait Subject: Send + Sync {
    /// Acquires within the pool's own time-out. The text says how it failed.
    fn get(&self) -> Boxed<Result<Lease, String>>;
}

/// Builds a pool. The caller has entered a Tokio runtime.
pub fn make(name: &str, setup: Setup) -> Arc<dyn Subject> {
    match name {
        "cenote-pool" => Arc::new(Cenote::new(setup)),
        "deadpool" => Arc::new(Deadpool::new(setup)),
        "bb8" => Arc::new(Bb8::new(setup)),
        _ => panic!("no such pool: {name}"),
    }
}

struct Cenote(cenote_pool::FnPool<usize, std::convert::Infallible>);

impl Cenote {
    fn new(setup: Setup) -> Self {
        let (max, timeout) = (setup.max, setup.timeout);
        let pool = cenote_pool::Pool::from_fn(move || {
            let setup = setup.clone();
            async move { Ok(setup.create().await) }
        });
        let pool = pool.max(max).acquire_timeout(timeout).build();
        Cenote(pool.expect("the settings are valid"))
    }
}

impl Subject for Cenote {
    fn get(&self) -> Boxed<Result<Lease, String>> {
        let pool = self.0.clone();
        Box::pin(async move {
            match pool.acquire_owned().await {
                Ok(lease) => Ok(Box::new(lease) as Lease),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

struct Manager(Setup);

impl deadpool::managed::Manager for Manager {
    type Type = usize;
    type Error = std::convert::Infallible;

    async fn create(&self) -> Result<usize, Self::Error> {
        Ok(self.0.create().await)
    }

    async fn recycle(
        &self,
        _: &mut usize,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Self::Error> {
        Ok(())
    }
}

struct Deadpool(deadpool::managed::Pool<Manager>);

impl Deadpool {
    fn new(setup: Setup) -> Self {
        let (max, timeout) = (setup.max, Some(setup.timeout));
        let pool = deadpool::managed::Pool::builder(Manager(setup))
            .max_size(max)
            .wait_timeout(timeout)
            .create_timeout(timeout)
            .recycle_timeout(timeout)
            .runtime(deadpool::Runtime::Tokio1)
            .build();
        Deadpool(pool.expect("the settings are valid"))
    }
}

impl Subject for Deadpool {
    fn get(&self) -> Boxed<Result<Lease, String>> {
        let pool = self.0.clone();
        Box::pin(async move {
            match pool.get().await {
                Ok(lease) => Ok(Box::new(lease) as Lease),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = usize;
    type Error = std::convert::Infallible;

    async fn connect(&self) -> Result<usize, Self::Error> {
        Ok(self.0.create().await)
    }

    async fn is_valid(&self, _: &mut usize) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut usize) -> bool {
        false
    }
}

struct Bb8(bb8::Pool<Manager>);

impl Bb8 {
    fn new(setup: Setup) -> Self {
        let max = u32::try_from(setup.max).expect("a small number");
        let pool = bb8::Pool::builder()
            .max_size(max)
            .connection_timeout(setup.timeout)
            .build_unchecked(Manager(setup));
        Bb8(pool)
    }
}

impl Subject for Bb8 {
    fn get(&self) -> Boxed<Result<Lease, String>> {
        let pool = self.0.clone();
        Box::pin(async move {
            match pool.get_owned().await {
                Ok(lease) => Ok(Box::new(lease) as Lease),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}
