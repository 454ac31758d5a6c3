//! Thousands of coroutines that end in every possible way, and what is left of them: nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cenote::{Db, Error, Result, Statement};
use cenote_testkit::Fake;
use cenote_testkit::poll::{drop_after, yield_now};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Counts the bytes that are allocated now.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The bytes of a layout.
fn size_of(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

#[allow(unsafe_code, reason = "an allocator can be written in no other way")]
// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(size_of(layout), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(size_of(layout), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// The tests of this file count the same bytes: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What grows with every coroutine grows beyond this.
const BOUND: isize = 64 * 1024;

/// How many coroutines run at once, and how many connections they have.
const AT_ONCE: usize = 32;
const CONNECTIONS: usize = 8;

/// Statements that have left their coroutines: each keeps a connection.
const ESCAPED: usize = 3;

/// Writes nothing on the fake, and the same value each time on SQLite.
const WRITE: &str = "UPDATE t SET n = 1";

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end).expect("usize is no wider than u64");
        usize::try_from((self.0 >> 11) % end).expect("it is below a usize")
    }
}

/// In how many ways a coroutine ends.
const ENDINGS: usize = 12;

/// Statements that have left their coroutines; only so many are kept, and for a while.
#[derive(Clone, Default)]
struct Escaped {
    kept: Arc<Mutex<VecDeque<Statement>>>,
}

impl Escaped {
    fn keep(&self, statement: Statement) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(statement);
        let gone = match kept.len() > ESCAPED {
            true => kept.pop_front(),
            false => None,
        };
        drop(kept);
        drop(gone);
    }
}

/// Does something and ends; `session` changes the session.
async fn end(way: usize, db: Db, session: &'static str, escaped: Escaped) -> Result<()> {
    match way {
        0 => drop(db.exec(WRITE, ()).await?),
        1 => {
            let failed: Result<()> = db
                .transaction(async || {
                    db.exec(WRITE, ()).await?;
                    Err(Error::other("no"))
                })
                .await;
            failed?;
        }
        2 => {
            let tx = db.begin().await?;
            tx.after_commit(|| ());
            tx.exec(WRITE, ()).await?;
            panics();
        }
        3 => {
            let nested = db.transaction(async || {
                db.exec(WRITE, ()).await?;
                db.transaction(async || {
                    db.exec(WRITE, ()).await?;
                    panics();
                    Ok(())
                })
                .await
            });
            nested.await?;
        }
        4 => {
            let nested = db.transaction(async || {
                db.after_commit(|| ());
                db.transaction(async || db.exec(WRITE, ()).await).await?;
                yield_now().await;
                Ok(())
            });
            nested.await?;
        }
        5 => {
            let mut tx = db.begin().await?;
            let savepoint = tx.savepoint().await?;
            savepoint.exec(WRITE, ()).await?;
            yield_now().await;
            savepoint.commit().await?;
            tx.rollback().await?;
        }
        6 => {
            let statement = db.prepare("SELECT 1").await?;
            statement.query(()).await?;
            // A task that holds one connection and waits for another may wait for ever.
            drop(statement);
            let mut rows = db.stream("SELECT 1", ()).await?;
            rows.try_next().await?;
        }
        7 => {
            db.exec("BEGIN", ()).await?;
            db.after_commit(|| ());
            db.exec(WRITE, ()).await?;
        }
        8 => {
            db.exec(session, ()).await?;
            yield_now().await;
        }
        9 => escaped.keep(db.prepare("SELECT 1").await?),
        10 => {
            drop(db.pin().await?);
            let mut connection = db.connection().await?;
            let tx = connection.begin().await?;
            tx.exec(WRITE, ()).await?;
        }
        _ => drop(db.exec("nonsense that SQLite refuses", ()).await?),
    }
    Ok(())
}

/// Unwinds without telling anybody: thousands of messages would hide the one that matters.
fn panics() {
    resume_unwind(Box::new("a panic of the test's own"));
}

/// What the coroutines of one run have in common.
struct Crowd<'d> {
    db: &'d Db,
    session: &'static str,
    escaped: Escaped,
    /// Every coroutine has two of these until it has ended.
    token: Arc<()>,
}

impl Crowd<'_> {
    /// Spawns a coroutine that ends in one of the ways, or is dropped before that.
    fn spawn(&self, dice: &mut Dice) -> JoinHandle<Option<()>> {
        let way = dice.below(ENDINGS);
        let polls = match dice.below(3) {
            0 => dice.below(20),
            _ => usize::MAX,
        };
        let (inside, ended) = (Arc::clone(&self.token), Arc::clone(&self.token));
        let (db, session, escaped) = (self.db.clone(), self.session, self.escaped.clone());
        let scope = cenote::scope(async move {
            let _inside = inside;
            // How it ends is not promised: they are in each other's way.
            drop(end(way, db, session, escaped).await);
        });
        let scope = scope.on_end(move || drop(ended));
        tokio::runtime::Handle::current().spawn(drop_after(polls, scope))
    }
}

/// Runs so many coroutines, some at a time.
async fn run(db: &Db, coroutines: usize, dice: &mut Dice, session: &'static str) {
    let crowd = Crowd {
        db,
        session,
        escaped: Escaped::default(),
        token: Arc::new(()),
    };
    let mut left = coroutines;
    while left > 0 {
        let now = left.min(AT_ONCE);
        left -= now;
        let tasks: Vec<_> = (0..now).map(|_| crowd.spawn(dice)).collect();
        for task in tasks {
            if dice.below(8) == 0 {
                task.abort();
            }
            // One that was aborted or has panicked gives an error.
            drop(task.await);
        }
    }
    let Crowd { escaped, token, .. } = crowd;
    drop(escaped);
    quiet(db).await;
    assert_eq!(Arc::strong_count(&token), 1, "a coroutine is still there");
}

/// Lets others run until no connection is in use any more.
async fn quiet(db: &Db) {
    let is_whole = || {
        let status = db.status();
        status.active + status.creating + status.waiting == 0 && status.total == status.idle
    };
    for _ in 0..1_000_000 {
        if is_whole() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the pool is not whole: {:?}", db.status());
}

/// Runs coroutines; then so many more, which must leave nothing.
async fn measure(
    db: &Db,
    coroutines: usize,
    session: &'static str,
    forget: impl Fn(),
) -> (isize, isize) {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    run_and_forget(db, coroutines / 5, &mut dice, session, &forget).await;
    let before = live();
    run_and_forget(db, coroutines - coroutines / 5, &mut dice, session, &forget).await;
    (before, live())
}

/// In portions, because what the fake remembers of them is not to be counted.
async fn run_and_forget(
    db: &Db,
    coroutines: usize,
    dice: &mut Dice,
    session: &'static str,
    forget: &impl Fn(),
) {
    let mut left = coroutines;
    while left > 0 {
        let now = left.min(2000);
        run(db, now, dice, session).await;
        forget();
        left -= now;
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// Returns the number of coroutines: the usual one, or `CENOTE_LEAK_COROUTINES`.
fn coroutines(usual: usize) -> usize {
    let asked = std::env::var("CENOTE_LEAK_COROUTINES");
    asked.map_or(usual, |asked| asked.parse().expect("it is a number"))
}

fn alone<T>(test: impl Future<Output = T>) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(test)
}

#[test]
fn coroutines_that_end_in_every_way_leave_nothing_behind() -> Result<()> {
    alone(async {
        let fake = Fake::new();
        let db = fake.builder().max(CONNECTIONS).open().await?;
        fake.poll_pending(1);
        let forget = || drop(fake.take_log());
        let (before, after) = measure(&db, coroutines(100_000), "SET a = 1", forget).await;
        assert!(
            after - before < BOUND,
            "{before} bytes before, {after} after"
        );
        assert_eq!(fake.open_transactions(), [0; 0]);
        assert_eq!(fake.violations(), [] as [&str; 0]);
        Ok(())
    })
}

#[test]
fn on_sqlite_coroutines_that_end_in_every_way_leave_nothing() -> Result<()> {
    alone(async {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let dsn = format!("sqlite:{}", folder.path().join("leaks.db").display());
        let db = Db::builder(&dsn).max(CONNECTIONS).open().await?;
        db.exec("CREATE TABLE t (n); INSERT INTO t VALUES (1)", ())
            .await?;
        let pragma = "PRAGMA cache_size = 77";
        let (before, after) = measure(&db, coroutines(2000), pragma, || ()).await;
        assert!(
            after - before < BOUND,
            "{before} bytes before, {after} after"
        );
        let now = Db::builder(&dsn).max(1).option("busy_timeout", "0");
        let now = now.open().await?;
        now.exec("BEGIN IMMEDIATE; ROLLBACK", ()).await?;
        Ok(())
    })
}

/// A guard that is forgotten costs the memory that it was made of, and no connection.
#[test]
fn forgotten_guards_keep_no_connection_and_little_memory() -> Result<()> {
    const GUARDS: isize = 1000;
    alone(async {
        let fake = Fake::new();
        let db = fake.builder().max(2).open().await?;
        let mut before = 0;
        for guard in 0..=GUARDS {
            cenote::scope(async {
                std::mem::forget(db.begin().await?);
                db.exec(WRITE, ()).await
            })
            .await?;
            quiet(&db).await;
            drop(fake.take_log());
            if guard == 0 {
                before = live();
            }
        }
        let each = (live() - before) / GUARDS;
        assert!(each < 4096, "{each} bytes for each guard");
        assert_eq!(fake.open_transactions(), [0; 0]);
        Ok(())
    })
}
