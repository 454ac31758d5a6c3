//! The actor: one fault after the other, each healed, and now and then a quiet moment.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cenote::{Db, Error, Result};
use cenote_testkit::proxy::{CutAfter, Direction, Doors, Proxy, Weather};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout, timeout_at};

use super::fault::{Deck, Fault};
use super::inspect::Inspector;
use super::report::{ChaosReport, Log};
use super::stage::Stage;
use crate::shift::Desk;

/// How long all is well between two faults.
const CALM: (u64, u64) = (20, 150);
/// How long a fault lasts, in milliseconds.
const BRIEF: (u64, u64) = (20, 300);
/// The same for those that take the server's answers away: some are longer than statements and
/// connects are waited for.
const SILENT: (u64, u64) = (100, 2_000);
/// How many faults there are between two quiet moments.
const BETWEEN: u32 = 6;
/// So many commits after a fault show that all is well again,
const RECOVERED: u64 = 20;
/// and that has to be within this time.
const RECOVERY: Duration = Duration::from_secs(20);
/// How long the clients may take to finish what they do.
const QUIET: Duration = Duration::from_secs(30);
/// How long it is tried to take all connections of a pool that is to be exhausted.
const GRAB: Duration = Duration::from_secs(2);

/// An actor at work. Dropped, the server that it has started ends, and the network is gone.
pub(crate) struct Actor {
    stop: watch::Sender<bool>,
    state: State,
}

enum State {
    AtWork(Pin<Box<dyn Future<Output = Work>>>),
    Done(Box<Work>),
}

impl Actor {
    /// Prepares to work on a shift, by a plan that follows from the seed.
    pub(crate) fn new(stage: Stage, desk: Arc<Desk>, seed: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let alone = stage.server.is_some();
        let work = Work {
            inspector: Inspector::new(Arc::clone(&desk), stage.dialect, alone),
            deck: Deck::new(stage.faults()),
            log: Log::new(&stage),
            rng: Rng::with_seed(seed),
            stage,
            desk,
            stopped,
        };
        Actor {
            stop,
            state: State::AtWork(Box::pin(work.perform())),
        }
    }

    /// Works until it is told to stop, or something is found that should not be. Needs Tokio.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it rests, and can be called again.
    pub(crate) async fn work(&mut self) {
        if let State::AtWork(work) = &mut self.state {
            let done = work.as_mut().await;
            self.state = State::Done(Box::new(done));
        }
    }

    /// Heals what it has done, and is finished.
    pub(crate) async fn end(mut self) -> Work {
        self.stop.send_replace(true);
        self.work().await;
        match self.state {
            State::Done(work) => *work,
            State::AtWork(_) => unreachable!("it has just been done"),
        }
    }
}

/// What the actor has in its hands; and after it, all that is left to do.
#[derive(Debug)]
pub(crate) struct Work {
    stage: Stage,
    desk: Arc<Desk>,
    inspector: Inspector,
    deck: Deck,
    rng: Rng,
    stopped: watch::Receiver<bool>,
    log: Log,
}

impl Work {
    /// # Cancel safety
    ///
    /// Dropped, the server ends and the network is gone.
    async fn perform(mut self) -> Self {
        let mut since_quiet = 0;
        // Not before the bank has got going.
        self.wait_for_commits().await;
        // What is wrong is not made worse: it is to be looked into.
        while !self.log.is_wrong()
            && self.calm(CALM).await
            && let Some(fault) = self.deck.draw(&mut self.rng)
        {
            self.suffer(fault).await;
            // Bad weather is nothing to wait for: something else may well happen in it.
            let mut last = fault;
            if fault.is_weather()
                && self.rng.bool()
                && let Some(another) = self.deck.draw(&mut self.rng)
            {
                self.suffer(another).await;
                last = another;
            }
            self.heal().await;
            self.desk.tell("");
            self.recover(last).await;
            since_quiet += 1;
            if since_quiet == BETWEEN {
                since_quiet = 0;
                self.be_quiet().await;
            }
        }
        self
    }

    /// The last look, when all clients are gone, and what is to be told; and the stage, whose server
    /// may still be needed.
    pub(crate) async fn report(mut self) -> (ChaosReport, Stage) {
        for (name, wrong) in self.inspector.look_at_all().await {
            self.log.wrong(name, format!("at the end: {wrong}"));
        }
        (self.log.report(&self.desk), self.stage)
    }

    fn db(&self) -> &Db {
        self.desk.db()
    }

    fn time(&mut self, (least, most): (u64, u64)) -> Duration {
        Duration::from_millis(self.rng.u64(least..=most))
    }

    /// Lets some time pass; `false` if it is all over.
    async fn calm(&mut self, range: (u64, u64)) -> bool {
        let until = Instant::now() + self.time(range);
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.stopped.wait_for(|stopped| *stopped) => {}
        }
        !*self.stopped.borrow()
    }

    async fn suffer(&mut self, fault: Fault) {
        self.desk.tell(fault.name());
        self.log.count(fault);
        if let Err(error) = self.inflict(fault).await
            && !is_own_doing(&error)
        {
            let text = format!("{}: {error}", fault.name());
            self.log.wrong("actor", text);
        }
    }

    async fn inflict(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillBackends => {
                // At least the first, and any of the others.
                let picks = self.rng.u64(..) | 1;
                let picked = |at: usize| picks >> (at % 64) & 1 == 1;
                let killed = self.stage.dialect.kill(self.desk.office(), picked).await;
                self.log.killed(killed?);
            }
            Fault::Cut => self.network(Proxy::cut),
            Fault::Reset => self.network(Proxy::reset),
            Fault::CutAtByte => {
                let cut_after = Some(CutAfter {
                    direction: self.direction(),
                    bytes: self.rng.u64(..8_000),
                });
                self.weather(Weather {
                    cut_after,
                    ..Weather::fair()
                })
                .await;
            }
            Fault::Delay => {
                let weather = Weather {
                    delay: self.time((1, 20)),
                    jitter: self.time((1, 20)),
                    ..Weather::fair()
                };
                self.weather(weather).await;
            }
            Fault::Throttle => {
                let bandwidth = Some(self.rng.u64(5_000..200_000));
                self.weather(Weather {
                    bandwidth,
                    ..Weather::fair()
                })
                .await;
            }
            Fault::SingleBytes => {
                self.weather(Weather {
                    slice: Some(1),
                    ..Weather::fair()
                })
                .await;
            }
            Fault::BlackHole => {
                let black_hole = Some(self.direction());
                self.network(|proxy| {
                    proxy.set(Weather {
                        black_hole,
                        ..Weather::fair()
                    });
                });
                self.calm(SILENT).await;
            }
            Fault::Mute | Fault::Refuse => {
                let doors = match fault {
                    Fault::Mute => Doors::Mute,
                    _ => Doors::Refusing,
                };
                self.network(|proxy| {
                    proxy.doors(doors);
                    proxy.reset();
                });
                self.calm(SILENT).await;
            }
            Fault::Restart | Fault::Crash => {
                if let Some(server) = &mut self.stage.server {
                    match fault {
                        Fault::Crash => server.crash().await,
                        _ => server.stop().await,
                    }
                }
                self.calm(BRIEF).await;
            }
            Fault::Freeze => {
                if let Some(server) = &self.stage.server {
                    server.freeze();
                }
                self.calm(SILENT).await;
            }
            Fault::ExhaustPool => self.exhaust().await,
            Fault::OpenBreaker => {
                self.pool(cenote::pool::Pool::deactivate);
                self.calm(BRIEF).await;
                self.pool(cenote::pool::Pool::recover);
                self.calm(BRIEF).await;
            }
            Fault::Resize => {
                let max = self.desk.max();
                let other = self.rng.usize(1..=2 * max);
                self.resize(other)?;
                self.calm(BRIEF).await;
            }
            Fault::Recycle => self.db().replace_all(),
            Fault::LockAll => self.lock_all().await?,
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
        if let Some(proxy) = &self.stage.proxy {
            order(proxy);
        }
    }

    async fn weather(&mut self, weather: Weather) {
        self.network(|proxy| proxy.set(weather));
        self.calm(BRIEF).await;
    }

    fn pool(&self, order: impl FnOnce(&cenote::pool::Pool<cenote::Connections>)) {
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

    /// Takes every connection there is, and sits on them.
    async fn exhaust(&mut self) {
        let until = Instant::now() + GRAB;
        let mut held = Vec::new();
        for _ in 0..self.desk.max() {
            if let Ok(Ok(connection)) = timeout_at(until, self.db().connection()).await {
                held.push(connection);
            }
        }
        self.calm(BRIEF).await;
    }

    /// Holds every account for a while, in a transaction that comes to nothing.
    async fn lock_all(&mut self) -> Result<()> {
        let office = self.desk.office().clone();
        let mut connection = office.connection().await?;
        let transaction = connection.begin().await?;
        transaction
            .exec("UPDATE cenote_bank_account SET moves = moves", ())
            .await?;
        self.calm(BRIEF).await;
        transaction.rollback().await
    }

    /// Makes all well again that a fault has left.
    async fn heal(&mut self) {
        self.network(Proxy::heal);
        if let Some(server) = &mut self.stage.server {
            server.thaw();
            if !server.is_running()
                && let Err(error) = server.start_again()
            {
                self.log
                    .wrong("actor", format!("it cannot start the server: {error}"));
            }
        }
        self.pool(cenote::pool::Pool::activate);
        if let Err(error) = self.resize(self.desk.max()) {
            self.log.wrong("actor", error.to_string());
        }
        let office = self.desk.office().clone();
        if self.stage.server.is_some()
            && let Err(failure) = self.stage.is_there(&office).await
        {
            self.log.wrong("actor", failure.to_string());
        }
    }

    /// Waits until there are commits again, and notes how long that took.
    async fn recover(&mut self, fault: Fault) {
        let begun = Instant::now();
        if self.wait_for_commits().await {
            self.log.recovered(fault, begun.elapsed());
        }
    }

    /// Waits for some commits; `false` if there are none, or it is all over.
    async fn wait_for_commits(&mut self) -> bool {
        let before = self.desk.committed();
        let desk = Arc::clone(&self.desk);
        let mut looks = interval(Duration::from_millis(2));
        let commits = async move {
            while desk.committed() < before + RECOVERED {
                looks.tick().await;
            }
        };
        let come = tokio::select! {
            come = timeout(RECOVERY, commits) => come.is_ok(),
            // What is over need not go on.
            _ = self.stopped.wait_for(|stopped| *stopped) => return false,
        };
        if !come {
            let text = format!("no {RECOVERED} commits in {RECOVERY:?}, though all is well");
            self.log.wrong("recovery", text);
        }
        come
    }

    /// Waits until nobody is at work, and looks at everything.
    async fn be_quiet(&mut self) {
        self.desk.tell("quiet");
        let desk = Arc::clone(&self.desk);
        match timeout(QUIET, desk.all_outside()).await {
            Ok(_nobody_inside) => {
                for (name, wrong) in self.inspector.look().await {
                    self.log.wrong(name, wrong);
                }
                self.log.quiet();
            }
            Err(_) => {
                let text = format!("clients are still at work after {QUIET:?}");
                self.log.wrong("clients", text);
            }
        }
        self.desk.tell("");
    }
}

/// The actor's own calls suffer from what it does, and may lose against those of the clients.
fn is_own_doing(error: &Error) -> bool {
    error.is_retryable() || error.is_connection_lost()
}
