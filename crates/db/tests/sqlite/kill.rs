//! A process is killed while hundreds of its tasks move money: what it said was committed is
//! there, and nothing is there by halves.
//!
//! The test starts itself once more: in that process the same test is the bank, which tells of
//! every commit on its standard output until it is killed. So the kill strikes a real process with
//! real connections, at whatever it is doing just then.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cenote::{Db, Result};

const ACCOUNTS: i64 = 50;
const OPENING_BALANCE: i64 = 1_000;
const TASKS: i64 = 200;
const SIGKILL: i32 = 9;

/// Where the bank finds its file; not set in the process that kills it.
const FILE: &str = "CENOTE_TEST_KILLED_FILE";
const ROUND: &str = "CENOTE_TEST_KILLED_ROUND";

#[test]
fn killed_process_keeps_acknowledged_commits_in_wal_full_sync() {
    let name = "killed_process_keeps_acknowledged_commits_in_wal_full_sync";
    killed_again_and_again(name, "wal", "full", 0x5eed);
}

#[test]
fn killed_process_keeps_acknowledged_commits_in_wal_normal_sync() {
    let name = "killed_process_keeps_acknowledged_commits_in_wal_normal_sync";
    killed_again_and_again(name, "wal", "normal", 0xacc0);
}

#[test]
fn killed_process_keeps_acknowledged_commits_with_a_journal() {
    let name = "killed_process_keeps_acknowledged_commits_with_a_journal";
    killed_again_and_again(name, "delete", "full", 0xba2c);
}

fn killed_again_and_again(test: &str, journal_mode: &str, synchronous: &str, seed: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    if let Some(file) = std::env::var_os(FILE) {
        let round = std::env::var(ROUND).unwrap().parse().unwrap();
        return runtime.block_on(bank(file.as_ref(), journal_mode, synchronous, round));
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.db");
    runtime.block_on(opened(&file, journal_mode, synchronous));
    let mut acknowledged = HashSet::new();
    let mut random = seed;
    for round in 0..6 {
        // The first is killed at its first commit, the others at any of some hundred.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let commits = if round == 0 {
            1
        } else {
            (random >> 33) % 300 + 1
        };
        acknowledged.extend(killed_after(commits, test, &file, round));
        runtime.block_on(inspected(&file, journal_mode, synchronous, &acknowledged));
    }
}

async fn open(file: &Path, journal_mode: &str, synchronous: &str) -> Db {
    Db::builder(&format!("sqlite:{}", file.display()))
        .option("journal_mode", journal_mode)
        .option("synchronous", synchronous)
        .open()
        .await
        .unwrap()
}

/// Makes the file. A crash is not what is looked at here, so all is closed in order.
async fn opened(file: &Path, journal_mode: &str, synchronous: &str) {
    let db = open(file, journal_mode, synchronous).await;
    let tables = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
                  CREATE TABLE ledger (
                      id INTEGER PRIMARY KEY, payer INTEGER NOT NULL REFERENCES account,
                      payee INTEGER NOT NULL REFERENCES account, amount INTEGER NOT NULL)";
    db.exec(tables, ()).await.unwrap();
    let accounts = (0..ACCOUNTS).map(|id| (id, OPENING_BALANCE));
    let insert = "INSERT INTO account VALUES (?, ?)";
    db.exec_many(insert, accounts).await.unwrap();
    db.close().await.unwrap();
}

/// Starts the bank, kills it when it has told of so many commits, and gives the numbers of all
/// that it told of.
fn killed_after(commits: u64, test: &str, file: &Path, round: i64) -> Vec<i64> {
    let mut bank = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("kill::{test}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FILE, file)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(bank.stdout.take().unwrap());
    let mut ids = Vec::new();
    let mut line = String::new();
    let mut killed = false;
    while told.read_line(&mut line).unwrap() > 0 {
        if let Some(id) = line.strip_suffix('\n').and_then(acknowledged) {
            ids.push(id);
        }
        line.clear();
        if !killed && ids.len() as u64 == commits {
            bank.kill().unwrap();
            killed = true;
        }
    }
    let status = bank.wait().unwrap();
    assert!(
        killed,
        "the bank ended by itself after {} commits: {status}",
        ids.len()
    );
    assert_eq!(status.signal(), Some(SIGKILL));
    ids
}

/// The number in a line that tells of a commit. The test harness writes lines of its own, and
/// the first of ours may stand behind what it began.
fn acknowledged(line: &str) -> Option<i64> {
    let (_, id) = line.split_once("committed ")?;
    Some(id.parse().unwrap())
}

/// The bank: never ends of its own will, unless something goes wrong.
async fn bank(file: &Path, journal_mode: &str, synchronous: &str, round: i64) {
    let db = open(file, journal_mode, synchronous).await;
    let tellers: Vec<_> = (0..TASKS)
        .map(|task| cenote::spawn(teller(db.clone(), round, task)))
        .collect();
    let all = async {
        for teller in tellers {
            teller.await.unwrap();
        }
    };
    // Nobody came to kill it: somebody waits for it in vain.
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, all).await.unwrap();
}

/// Moves money again and again; every fourth only takes notes, each a statement by itself.
async fn teller(db: Db, round: i64, task: i64) {
    for turn in 0.. {
        let id = (round * TASKS + task) * 1_000_000 + turn;
        let payer = (id * 7 + task) % ACCOUNTS;
        let payee = (payer + 1 + id % (ACCOUNTS - 1)) % ACCOUNTS;
        let done = match task % 4 {
            0 => noted(&db, id, payer, payee, 0).await,
            _ => transferred(&db, id, payer, payee, 1 + turn % 9).await,
        };
        if let Err(error) = done {
            // The whole process, so that the one that waits for it sees it.
            eprintln!("the bank failed: {error}");
            std::process::exit(1);
        }
        // One write per line: the pipe keeps what was written, however the process ends.
        let line = format!("committed {id}\n");
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

async fn noted(db: &Db, id: i64, payer: i64, payee: i64, amount: i64) -> Result<()> {
    let note = "INSERT INTO ledger VALUES (?, ?, ?, ?)";
    db.exec(note, (id, payer, payee, amount)).await?;
    Ok(())
}

async fn transferred(db: &Db, id: i64, payer: i64, payee: i64, amount: i64) -> Result<()> {
    db.transaction(async || {
        let take = "UPDATE account SET balance = balance - ? WHERE id = ?";
        db.exec(take, (amount, payer)).await?;
        noted(db, id, payer, payee, amount).await?;
        let give = "UPDATE account SET balance = balance + ? WHERE id = ?";
        db.exec(give, (amount, payee)).await?;
        Ok(())
    })
    .await
}

/// Opens what the killed process left, and looks at all of it.
async fn inspected(file: &Path, journal_mode: &str, synchronous: &str, told: &HashSet<i64>) {
    let db = open(file, journal_mode, synchronous).await;
    let verdict: String = db.query_as_one("PRAGMA integrity_check", ()).await.unwrap();
    assert_eq!(verdict, "ok");

    let ledger: Vec<(i64, i64, i64, i64)> = db
        .query_as("SELECT id, payer, payee, amount FROM ledger", ())
        .await
        .unwrap();
    let kept: HashSet<i64> = ledger.iter().map(|(id, ..)| *id).collect();
    let lost: Vec<&i64> = told.difference(&kept).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");

    let mut expected: HashMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, OPENING_BALANCE)).collect();
    for (_, payer, payee, amount) in ledger {
        *expected.get_mut(&payer).unwrap() -= amount;
        *expected.get_mut(&payee).unwrap() += amount;
    }
    let balances: Vec<(i64, i64)> = db
        .query_as("SELECT id, balance FROM account", ())
        .await
        .unwrap();
    let balances: HashMap<i64, i64> = balances.into_iter().collect();
    assert_eq!(balances, expected, "the ledger and the balances disagree");
    let total: i64 = balances.values().sum();
    assert_eq!(total, ACCOUNTS * OPENING_BALANCE);
    db.close().await.unwrap();
}
