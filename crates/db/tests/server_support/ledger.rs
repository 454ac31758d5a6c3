//! Tasks that move money all the time and note each transfer by a number, whatever happens to their servers meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cenote::{Db, Error, Kind, Result};
use tokio::task::JoinSet;

use super::{soon, until};

const ACCOUNTS: i64 = 10;
const EACH: i64 = 100;
const TASKS: i64 = 8;

/// How the tasks run their transactions.
#[derive(Clone, Copy)]
pub(crate) enum Conflicts {
    /// None: each takes the accounts in the same order.
    None,
    /// Transfers of the same accounts meet on different servers, and are repeated.
    Repeated,
}

/// The tasks at work.
pub(crate) struct Ledger {
    record: Arc<Record>,
    tasks: JoinSet<()>,
}

/// What the tasks have come to. Relaxed: every number stands for itself.
#[derive(Default)]
pub(crate) struct Record {
    next: AtomicI64,
    stored: Mutex<BTreeSet<i64>>,
    unknown: Mutex<BTreeSet<i64>>,
    errors: Mutex<Vec<Error>>,
    repeats: AtomicUsize,
    is_over: AtomicBool,
}

/// Creates the accounts and the list of transfers.
pub(crate) async fn create(admin: &Db) {
    let account = "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)";
    admin.exec(account, ()).await.unwrap();
    let paid = "CREATE TABLE paid (id BIGINT PRIMARY KEY)";
    admin.exec(paid, ()).await.unwrap();
    let rows = (0..ACCOUNTS).map(|id| (id, EACH));
    let fill = "INSERT INTO account VALUES (?, ?)";
    admin.exec_many(fill, rows).await.unwrap();
}

impl Ledger {
    pub(crate) fn start(db: &Db, conflicts: Conflicts) -> Self {
        let (record, mut tasks) = (Arc::new(Record::default()), JoinSet::new());
        for task in 0..TASKS {
            let (db, record) = (db.clone(), Arc::clone(&record));
            tasks.spawn(cenote::scope(async move {
                while !record.is_over.load(Ordering::Relaxed) {
                    let id = record.next.fetch_add(1, Ordering::Relaxed);
                    let done = match task % 2 {
                        0 => record.transfer(&db, id, conflicts).await,
                        _ => note(&db, id).await,
                    };
                    record.add(id, done);
                }
            }));
        }
        Ledger { record, tasks }
    }

    pub(crate) fn stored(&self) -> usize {
        self.record.stored.lock().unwrap().len()
    }

    pub(crate) async fn stores_more(&self) {
        let before = self.stored();
        until("more is stored", async || self.stored() > before + 20).await;
    }

    pub(crate) async fn end(mut self) -> Arc<Record> {
        self.record.is_over.store(true, Ordering::Relaxed);
        soon("the tasks end", async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        })
        .await;
        self.record
    }
}

async fn note(db: &Db, id: i64) -> Result<()> {
    let noted = db.exec("INSERT INTO paid VALUES (?)", (id,)).await;
    noted.map(drop)
}

impl Record {
    async fn transfer(&self, db: &Db, id: i64, conflicts: Conflicts) -> Result<()> {
        let attempts = AtomicUsize::new(0);
        let (from, to) = (id % ACCOUNTS, (id * 7 + 3) % ACCOUNTS);
        let run = async || {
            if attempts.fetch_add(1, Ordering::Relaxed) > 0 {
                self.repeats.fetch_add(1, Ordering::Relaxed);
            }
            let mut moves = [(from, -1_i64), (to, 1)];
            if matches!(conflicts, Conflicts::None) {
                moves.sort_unstable();
            }
            for (account, change) in moves {
                let sql = "UPDATE account SET balance = balance + ? WHERE id = ?";
                let changed = db.exec(sql, (change, account)).await?;
                assert_eq!(changed.rows_affected, 1);
            }
            note(db, id).await
        };
        match conflicts {
            Conflicts::None => db.transaction(run).await,
            Conflicts::Repeated => db.transaction_options().retries(50).retry(run).await,
        }
    }

    fn add(&self, id: i64, done: Result<()>) {
        let Err(error) = done else {
            self.stored.lock().unwrap().insert(id);
            return;
        };
        // Outside of a transaction, a lost call may have run.
        if matches!(error.kind(), Kind::OutcomeUnknown | Kind::ConnectionLost) {
            self.unknown.lock().unwrap().insert(id);
        }
        self.errors.lock().unwrap().push(error);
    }

    /// How often a transfer was repeated.
    pub(crate) fn repeats(&self) -> usize {
        self.repeats.load(Ordering::Relaxed)
    }

    /// Everything that was acknowledged is there, and nothing else but what is said to be unknown. Each error is an expected one.
    pub(crate) async fn check(&self, admin: &Db, is_expected: impl Fn(&Error) -> bool) {
        let ids: Vec<i64> = admin.query_as("SELECT id FROM paid", ()).await.unwrap();
        let there: BTreeSet<i64> = ids.into_iter().collect();
        let sql = "SELECT balance FROM account";
        let balances: Vec<i64> = admin.query_as(sql, ()).await.unwrap();
        assert_eq!(balances.iter().sum::<i64>(), ACCOUNTS * EACH);
        let (stored, unknown) = (self.stored.lock().unwrap(), self.unknown.lock().unwrap());
        let errors = self.errors.lock().unwrap();
        println!(
            "{} stored, {} unknown, {} failed in all, {} repeats",
            stored.len(),
            unknown.len(),
            errors.len(),
            self.repeats()
        );
        let lost: Vec<_> = stored.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let known: BTreeSet<_> = stored.union(&unknown).copied().collect();
        let invented: Vec<_> = there.difference(&known).collect();
        assert!(invented.is_empty(), "failed and there: {invented:?}");
        for error in errors.iter() {
            assert!(is_expected(error), "{error:?}");
        }
    }
}
