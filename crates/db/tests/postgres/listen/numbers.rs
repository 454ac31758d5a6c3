//! The property: where a number is missing, a Gap stands; and what is sent after a Gap was read arrives.
//!
//! A writer sends numbers on several channels, in transactions of random sizes. Meanwhile the
//! network is cut, reset, silent or slow, connects are reset, backends are killed, and listeners with small buffers read slowly.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote::Db;
use cenote::listen::{Event, Listener};
use cenote_testkit::proxy::{Network, OnConnect, Proxy};

use super::support::*;
use crate::servers::network::{choppy, dsn_through, proxy_with, silent};
use crate::servers::{soon, until};

/// Numbers on each channel.
const LAST: u64 = 10_000;

/// A fault after about so many numbers.
const FAULT_EVERY: u64 = 250;

/// What the writer has begun to send on a channel.
#[derive(Default)]
struct Sent(AtomicU64);

/// A generator that needs no crate: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

type Channels = Arc<HashMap<String, Sent>>;

/// What a listener saw of one channel.
#[derive(Clone, Copy)]
struct Seen {
    last: u64,
    /// A Gap was read since `last`; everything after this number has to come.
    complete_from: Option<u64>,
}

/// What a reader found.
#[derive(Debug, Default)]
struct Found {
    received: u64,
    missing: u64,
    gaps: u64,
}

/// Reads until the writer's last word has come on each channel.
async fn read(mut listener: Listener, sent: Channels, mut random: Option<Random>) -> Found {
    let mut seen: HashMap<String, Seen> = listener
        .channels()
        .map(|channel| {
            let nothing = Seen {
                last: 0,
                complete_from: None,
            };
            (channel.to_owned(), nothing)
        })
        .collect();
    let mut found = Found::default();
    let mut ended = HashSet::new();
    loop {
        match event(&mut listener).await {
            Event::Gap { .. } => {
                found.gaps += 1;
                for (channel, seen) in &mut seen {
                    // Relaxed: the number that was begun before this look is at least as old.
                    seen.complete_from = Some(sent[channel].0.load(Ordering::Relaxed) + 1);
                }
            }
            Event::Notification {
                channel, payload, ..
            } => {
                let seen = seen.get_mut(&*channel).expect("one of its own channels");
                if &*payload == "end" {
                    let is_complete = seen.last == LAST || seen.complete_from.is_some();
                    assert!(is_complete, "{} is the last without a Gap", seen.last);
                    found.missing += LAST - seen.last;
                    seen.last = LAST;
                    ended.insert(channel);
                    if ended.len() == listener.channels().len() {
                        return found;
                    }
                    continue;
                }
                let number: u64 = payload.parse().unwrap();
                let next = seen.last + 1;
                assert!(number >= next, "{number} came after {}", seen.last);
                if number > next {
                    let complete_from =
                        seen.complete_from.expect("a Gap where a number is missing");
                    assert!(
                        number <= complete_from.max(next),
                        "{number} came, but everything from {complete_from} on had to"
                    );
                }
                found.missing += number - next;
                found.received += 1;
                *seen = Seen {
                    last: number,
                    complete_from: None,
                };
            }
            other => panic!("{other:?}"),
        }
        if let Some(random) = &mut random {
            for _ in 0..random.below(30) {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Hurts the connection that listens, and says when the network is well again.
async fn fault(proxy: &Proxy, db: &Db, admin: &Db, random: &mut Random) {
    match random.below(7) {
        0 => proxy.cut(),
        1 => proxy.reset(),
        2 => proxy.set(choppy(1 + usize::try_from(random.below(40)).unwrap())),
        3 => {
            proxy.on_connect(OnConnect::Reset);
            proxy.reset();
            let before = proxy.traffic().accepted;
            until("it was refused", async || proxy.traffic().accepted > before).await;
        }
        4 => {
            proxy.set(silent());
            until("the silence is noticed", async || {
                !status(db).connected || proxy.traffic().open == 0
            })
            .await;
        }
        5 => proxy.heal(),
        _ => {
            let process = status(db).process_id;
            let sql = "SELECT pg_terminate_backend(?::int4)";
            if let Some(process) = process {
                admin.query(sql, (process,)).await.unwrap();
            }
        }
    }
    if random.below(4) > 0 {
        proxy.heal();
        until("it listens again", async || status(db).connected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_number_has_a_gap_under_random_faults() {
    let seed = std::env::var("CENOTE_TEST_SEED").map_or(7, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let proxy = proxy_with(Network::ideal()).await;
    let writer = open().await;
    let admin = open().await;
    let db = Db::builder(&dsn_through(&proxy))
        .healthcheck_interval(Duration::from_millis(50))
        .connect_timeout(Duration::from_millis(700))
        .open()
        .await
        .unwrap();
    let names: Vec<String> = (0..3).map(|_| channel()).collect();
    let sent: Channels = Arc::new(
        names
            .iter()
            .map(|name| (name.clone(), Sent::default()))
            .collect(),
    );
    let mut readers = Vec::new();
    for n in 0..9 {
        // Some have one channel, some two, some all; every third one has a small buffer and reads slowly.
        let own = names.iter().skip(n % 3).take(1 + n / 3);
        let slow = n % 3 == 2;
        let buffer = if slow { 16 } else { 100_000 };
        let listener = db.listen(own).buffer(buffer).await.unwrap();
        let pace = slow.then(|| Random(seed + u64::try_from(n).unwrap()));
        readers.push(cenote::spawn(read(listener, Arc::clone(&sent), pace)));
    }
    let (mut next, mut faults) = (vec![0; names.len()], 0);
    let mut until_fault = FAULT_EVERY;
    while next.iter().any(|next| *next < LAST) {
        let n = usize::try_from(random.below(3)).unwrap();
        let (name, from) = (&names[n], next[n]);
        let to = (from + 1 + random.below(60)).min(LAST);
        if from == LAST {
            continue;
        }
        // Relaxed: stored before the transaction begins, which is all that the readers rely on.
        sent[name].0.store(to, Ordering::Relaxed);
        let sql = "SELECT pg_notify(?, n::text) FROM generate_series(?::int8, ?::int8) AS s (n)";
        let numbers = (i64::try_from(from + 1).unwrap(), i64::try_from(to).unwrap());
        writer
            .query(sql, (&**name, numbers.0, numbers.1))
            .await
            .unwrap();
        next[n] = to;
        match until_fault.checked_sub(to - from) {
            Some(rest) => until_fault = rest,
            None => {
                until_fault = FAULT_EVERY;
                faults += 1;
                fault(&proxy, &db, &admin, &mut random).await;
            }
        }
    }
    proxy.heal();
    until("it listens again", async || status(&db).connected).await;
    until("everybody has read the end", async || {
        for name in &names {
            notify(&writer, name, "end").await;
        }
        readers.iter().all(tokio::task::JoinHandle::is_finished)
    })
    .await;
    let mut all = Found::default();
    for reader in readers {
        let found = soon("it ends", reader).await.unwrap();
        all.received += found.received;
        all.missing += found.missing;
        all.gaps += found.gaps;
    }
    println!("{faults} faults, {all:?}");
    assert!(faults > 50 && all.gaps > 50, "{faults} faults, {all:?}");
    assert!(all.missing > 0 && all.received > 30_000, "{all:?}");
    nothing_listens(&db).await;
}
