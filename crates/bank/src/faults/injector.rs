//! The injector: one fault after the other, each healed, and inspections at quiet moments.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cenote::{Db, Error, Result};
use cenote_testkit::proxy::{CutAfter, Direction, Network, OnConnect, Proxy};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout, timeout_at};

use super::fault::{Fault, Needs, Schedule};
use super::inspector::Inspector;
use super::report::{ChaosReport, FaultLog};
use super::testbed::Testbed;
use crate::workload::Monitor;

/// The time between two faults, in milliseconds.
const PAUSE: (u64, u64) = (20, 150);
/// How long a fault lasts, in milliseconds.
pub(super) const BRIEF: (u64, u64) = (20, 300);
/// The same for faults without answers from the server: some exceed the timeouts of statements
/// and connects.
pub(super) const SILENT: (u64, u64) = (100, 2_000);
/// The number of faults between two inspections.
const FAULTS_PER_INSPECTION: u32 = 6;
/// This many commits after a fault count as recovery,
const RECOVERED: u64 = 20;
/// and must come within this time.
pub(super) const RECOVERY: Duration = Duration::from_secs(20);
/// How long the clients may take to finish their visits.
const LAST_VISITS: Duration = Duration::from_secs(30);
/// How long locking all accounts may take.
const LOCKING: Duration = Duration::from_secs(2);
/// How long exhausting the pool may take.
const EXHAUSTING: Duration = Duration::from_secs(2);

/// Injects faults. Dropped, the server that it started ends, and so does the proxy.
pub(crate) struct Injector {
    stop: watch::Sender<bool>,
    state: State,
}

enum State {
    AtWork(Pin<Box<dyn Future<Output = Injection>>>),
    Done(Box<Injection>),
}

impl fmt::Debug for Injector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Injector").finish_non_exhaustive()
    }
}

impl Injector {
    /// Prepares to inject faults, in an order that follows from the seed.
    pub(crate) fn new(testbed: Testbed, monitor: Arc<Monitor>, seed: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let inspector = Inspector::new(
            Arc::clone(&monitor),
            testbed.dialect,
            testbed.server.is_some(),
            testbed.cluster.is_some(),
        );
        let log = FaultLog::new(
            testbed.left_out.clone(),
            testbed.dialect.has_server(),
            testbed.cluster.is_some(),
        );
        let injection = Injection {
            inspector,
            schedule: Schedule::new(testbed.faults()),
            log,
            rng: Rng::with_seed(seed),
            testbed,
            monitor,
            stopped,
        };
        Injector {
            stop,
            state: State::AtWork(Box::pin(injection.run())),
        }
    }

    /// Injects faults until [`end`](Injector::end), or until something is wrong. Needs Tokio.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it pauses; a later call continues.
    pub(crate) async fn work(&mut self) {
        if let State::AtWork(work) = &mut self.state {
            let done = work.as_mut().await;
            self.state = State::Done(Box::new(done));
        }
    }

    /// Heals the last fault.
    pub(crate) async fn end(mut self) -> Injection {
        self.stop.send_replace(true);
        self.work().await;
        match self.state {
            State::Done(work) => *work,
            State::AtWork(_) => unreachable!("work() leaves it done"),
        }
    }
}

/// The state of an injector.
#[derive(Debug)]
pub(crate) struct Injection {
    pub(super) testbed: Testbed,
    pub(super) monitor: Arc<Monitor>,
    inspector: Inspector,
    schedule: Schedule,
    pub(super) rng: Rng,
    stopped: watch::Receiver<bool>,
    pub(super) log: FaultLog,
}

impl Injection {
    /// # Cancel safety
    ///
    /// Dropped, the server and the proxy end.
    async fn run(mut self) -> Self {
        let mut since_inspection = 0;
        // The workload must have started.
        self.wait_for_commits().await;
        // Stops at the first contradiction, so that its cause can be found.
        while !self.log.has_errors()
            && self.wait(PAUSE).await
            && let Some(fault) = self.schedule.next(&mut self.rng)
        {
            let errors = self.monitor.errors();
            self.inject(fault).await;
            // Other faults may happen while the network is bad.
            let mut last = fault;
            if fault.is_lasting()
                && self.rng.bool()
                && let Some(another) = self.schedule.next(&mut self.rng)
            {
                self.inject(another).await;
                last = another;
            }
            self.heal().await;
            self.monitor.end_phases();
            self.recover(last).await;
            since_inspection += match fault.needs() {
                // What a failover has lost is found before the next one.
                Needs::Cluster => FAULTS_PER_INSPECTION,
                _ => 1,
            };
            if since_inspection >= FAULTS_PER_INSPECTION {
                since_inspection = 0;
                self.inspect().await;
            }
            if fault == Fault::Roll {
                self.log.rolled(&self.monitor.errors().since(&errors));
            }
        }
        self
    }

    /// Inspects once more, after the clients have ended. Returns the testbed as well, because the
    /// caller may need its server.
    pub(crate) async fn report(mut self) -> (ChaosReport, Testbed) {
        for (name, wrong) in self.inspector.inspect_all().await {
            self.log.wrong(name, format!("at the end: {wrong}"));
        }
        (self.log.report(&self.monitor), self.testbed)
    }

    fn db(&self) -> &Db {
        self.monitor.db()
    }

    fn time(&mut self, (least, most): (u64, u64)) -> Duration {
        Duration::from_millis(self.rng.u64(least..=most))
    }

    /// Waits for a random time; `false` if the run is over.
    pub(super) async fn wait(&mut self, range: (u64, u64)) -> bool {
        let until = Instant::now() + self.time(range);
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.stopped.wait_for(|stopped| *stopped) => {}
        }
        !*self.stopped.borrow()
    }

    async fn inject(&mut self, fault: Fault) {
        self.monitor.begin_phase(fault.name());
        self.log.count(fault);
        if let Err(error) = self.apply(fault).await
            && !is_own_fault(&error)
        {
            let text = format!("{}: {error}", fault.name());
            self.log.wrong("faults", text);
        }
    }

    async fn apply(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillBackends => {
                // The first, and any of the others.
                let picks = self.rng.u64(..) | 1;
                let picked = |at: usize| picks >> (at % 64) & 1 == 1;
                let killed = self
                    .testbed
                    .dialect
                    .kill(self.monitor.observer(), picked)
                    .await;
                self.log.killed(killed?);
            }
            Fault::Cut => self.network(Proxy::cut),
            Fault::Reset => self.network(Proxy::reset),
            Fault::CutAtByte => {
                let cut_after = Some(CutAfter {
                    direction: self.direction(),
                    bytes: self.rng.u64(..8_000),
                });
                self.degrade_network(Network {
                    cut_after,
                    ..Network::ideal()
                })
                .await;
            }
            Fault::Delay => {
                let network = Network {
                    delay: self.time((1, 20)),
                    jitter: self.time((1, 20)),
                    ..Network::ideal()
                };
                self.degrade_network(network).await;
            }
            Fault::Throttle => {
                let bandwidth = Some(self.rng.u64(5_000..200_000));
                self.degrade_network(Network {
                    bandwidth,
                    ..Network::ideal()
                })
                .await;
            }
            Fault::SingleBytes => {
                self.degrade_network(Network {
                    slice: Some(1),
                    ..Network::ideal()
                })
                .await;
            }
            Fault::BlackHole => {
                let black_hole = Some(self.direction());
                self.network(|proxy| {
                    proxy.set(Network {
                        black_hole,
                        ..Network::ideal()
                    });
                });
                self.wait(SILENT).await;
            }
            Fault::Mute | Fault::Refuse => {
                let on_connect = match fault {
                    Fault::Mute => OnConnect::Ignore,
                    _ => OnConnect::Reset,
                };
                self.network(|proxy| {
                    proxy.on_connect(on_connect);
                    proxy.reset();
                });
                self.wait(SILENT).await;
            }
            Fault::Restart | Fault::Crash => {
                if let Some(server) = &mut self.testbed.server {
                    match fault {
                        Fault::Crash => server.crash().await,
                        _ => server.stop().await,
                    }
                }
                self.wait(BRIEF).await;
            }
            Fault::Freeze => {
                if let Some(server) = &self.testbed.server {
                    server.freeze();
                }
                self.wait(SILENT).await;
            }
            Fault::ExhaustPool => self.exhaust().await,
            Fault::OpenBreaker => {
                self.pool(cenote::pool::Pool::open_breaker);
                self.wait(BRIEF).await;
                self.pool(cenote::pool::Pool::half_open_breaker);
                self.wait(BRIEF).await;
            }
            Fault::Resize => {
                let max = self.monitor.max();
                let other = self.rng.usize(1..=2 * max);
                self.resize(other)?;
                self.wait(BRIEF).await;
            }
            Fault::ReplaceAll => self.db().replace_all(),
            Fault::LockAll => self.lock_all().await?,
            Fault::KillPrimary
            | Fault::FreezePrimary
            | Fault::SwitchOver
            | Fault::KillStandby
            | Fault::Roll => self.break_cluster(fault).await,
        }
        Ok(())
    }

    fn direction(&mut self) -> Direction {
        match self.rng.bool() {
            true => Direction::ToServer,
            false => Direction::ToClient,
        }
    }

    fn network(&self, order: impl FnOnce(&Proxy)) {
        if let Some(proxy) = &self.testbed.proxy {
            order(proxy);
        }
    }

    async fn degrade_network(&mut self, network: Network) {
        self.network(|proxy| proxy.set(network));
        self.wait(BRIEF).await;
    }

    fn pool(&self, order: impl FnOnce(&cenote::pool::Pool<cenote::ConnectionManager>)) {
        if let Some(pool) = self.db().pool() {
            order(pool);
        }
    }

    fn resize(&self, max: usize) -> Result<()> {
        self.db().pool().map_or(Ok(()), |pool| {
            pool.resize(max)
                .map_err(|error| Error::other(error.to_string()))
        })
    }

    /// Takes every connection and holds it for a while.
    async fn exhaust(&mut self) {
        let until = Instant::now() + EXHAUSTING;
        let mut held = Vec::new();
        for _ in 0..self.monitor.max() {
            if let Ok(Ok(connection)) = timeout_at(until, self.db().connection()).await {
                held.push(connection);
            }
        }
        self.wait(BRIEF).await;
    }

    /// Locks every account for a while, in a transaction that rolls back.
    async fn lock_all(&mut self) -> Result<()> {
        let observer = self.monitor.observer().clone();
        let mut connection = observer.connection().await?;
        let transaction = connection.begin().await?;
        let lock = transaction.exec("UPDATE cenote_bank_account SET moves = moves", ());
        // The server may keep a lock of a client that it cannot reach, until the network heals.
        // Dropped, the statement is cancelled, and the transaction rolls back.
        if let Ok(locked) = timeout(LOCKING, lock).await {
            locked?;
            self.wait(BRIEF).await;
        }
        transaction.rollback().await
    }

    /// Undoes what faults have left.
    async fn heal(&mut self) {
        self.network(Proxy::heal);
        if let Some(server) = &mut self.testbed.server {
            server.thaw();
            if !server.is_running()
                && let Err(error) = server.restart()
            {
                self.log
                    .wrong("faults", format!("the server cannot start: {error}"));
            }
        }
        self.pool(cenote::pool::Pool::close_breaker);
        if let Err(error) = self.resize(self.monitor.max()) {
            self.log.wrong("faults", error.to_string());
        }
        self.heal_cluster().await;
        let observer = self.monitor.observer().clone();
        if self.testbed.server.is_some()
            && let Err(error) = self.testbed.wait_until_ready(&observer).await
        {
            self.log.wrong("faults", error.to_string());
        }
    }

    /// Waits for commits, and records how long that took.
    async fn recover(&mut self, fault: Fault) {
        let begun = Instant::now();
        if self.wait_for_commits().await {
            self.log.recovered(fault, begun.elapsed());
        }
    }

    /// Waits for some commits; `false` if none came, or the run is over.
    async fn wait_for_commits(&mut self) -> bool {
        let before = self.monitor.committed();
        let monitor = Arc::clone(&self.monitor);
        let mut ticks = interval(Duration::from_millis(2));
        let commits = async move {
            while monitor.committed() < before + RECOVERED {
                ticks.tick().await;
            }
        };
        let recovered = tokio::select! {
            done = timeout(RECOVERY, commits) => done.is_ok(),
            _ = self.stopped.wait_for(|stopped| *stopped) => return false,
        };
        if !recovered {
            let text = format!("no {RECOVERED} commits in {RECOVERY:?}, though all is well");
            self.log.wrong("recovery", text);
        }
        recovered
    }

    /// Pauses the clients and inspects everything.
    async fn inspect(&mut self) {
        self.monitor.begin_phase("quiet moment");
        let monitor = Arc::clone(&self.monitor);
        match timeout(LAST_VISITS, monitor.pause_visits()).await {
            Ok(_paused) => {
                for (name, wrong) in self.inspector.inspect().await {
                    self.log.wrong(name, wrong);
                }
                self.log.quiet();
            }
            Err(_) => {
                let text = format!("clients are still at work after {LAST_VISITS:?}");
                self.log.wrong("clients", text);
            }
        }
        self.monitor.end_phases();
    }
}

/// Whether a fault also hit the injector's own call, or a client won a conflict with it.
fn is_own_fault(error: &Error) -> bool {
    error.is_retryable() || error.is_connection_lost()
}
