//! Shared reads against a server that fails, delays and cuts: each gets its own answer or an honest error.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote::{Db, Kind};
use cenote_testkit::poll::Hand;

use super::{Clock, finish_all};
use crate::pipeline_scripted::{Rng, description, error, parameter, row};
use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::soon;

const READ: &str = "SELECT n FROM t WHERE n = ?";

/// The code of a CancelRequest, which the server answers by closing the connection.
const CANCEL: [u8; 4] = 80_877_102_u32.to_be_bytes();

/// What the server does, for all of its connections.
#[derive(Default)]
struct Plan {
    /// One read in this many fails; none if it is 0.
    fails: usize,
    /// The answers are delayed at random.
    delays: bool,
    /// The next connection is cut after so many bytes.
    cut: Option<usize>,
}

/// Answers each read with its parameter.
async fn serve(mut client: Client, plan: Arc<Mutex<Plan>>, mut rng: Rng) {
    // The answer of a read is sent in several pieces.
    client.stream.set_nodelay(true).unwrap();
    let mut first = [0; 8];
    while client
        .stream
        .peek(&mut first)
        .await
        .is_ok_and(|read| (1..8).contains(&read))
    {
        tokio::task::yield_now().await;
    }
    if first[4..] == CANCEL {
        return;
    }
    client.let_in().await;
    let (mut value, mut skips) = (String::new(), false);
    while let Some((tag, body)) = client.read().await {
        let (fails, delays) = {
            let plan = plan.lock().unwrap();
            (plan.fails > 0 && rng.below(plan.fails) == 0, plan.delays)
        };
        let answer = match tag {
            b'S' => {
                skips = false;
                message(b'Z', b"I")
            }
            b'Q' => own_backend(),
            _ if skips => continue,
            b'P' => message(b'1', b""),
            b'C' => message(b'3', b""),
            b'D' => [message(b't', &[0, 1, 0, 0, 0, 25]), description()].concat(),
            b'B' => {
                value = parameter(&body);
                message(b'2', b"")
            }
            b'E' if fails => {
                skips = true;
                error(&value)
            }
            b'E' => [row(&value), message(b'C', b"SELECT 1\0")].concat(),
            _ => return,
        };
        for piece in answer.chunks(if delays {
            1 + rng.below(40)
        } else {
            answer.len()
        }) {
            let left = {
                let mut plan = plan.lock().unwrap();
                let left = plan.cut;
                let rest = left.and_then(|left| left.checked_sub(piece.len()));
                plan.cut = rest.filter(|rest| *rest > 0);
                left.unwrap_or(usize::MAX)
            };
            client.send(&piece[..piece.len().min(left)]).await;
            if piece.len() >= left {
                return;
            }
            if delays && rng.below(4) == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The answer to the question for the process id, which is 1.
fn own_backend() -> Vec<u8> {
    let mut columns = vec![0, 1];
    columns.extend(b"n\0");
    columns.extend([0; 6]);
    columns.extend(23_u32.to_be_bytes());
    columns.extend([0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    let all = [
        message(b'T', &columns),
        row("1"),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ];
    all.concat()
}

async fn start(seed: u64, max: usize) -> (Scripted, Db, Arc<Mutex<Plan>>) {
    let plan = Arc::<Mutex<Plan>>::default();
    let server = Scripted::new({
        let (plan, rng) = (Arc::clone(&plan), Mutex::new(Rng(seed)));
        move |client| serve(client, Arc::clone(&plan), rng.lock().unwrap().fork())
    })
    .await;
    let builder = Db::builder(&server.dsn()).max(max).share_connections(true);
    let db = builder.runtime(Clock::new()).open().await.unwrap();
    for _ in 0..16 {
        db.query(READ, ("proof",)).await.unwrap();
    }
    (server, db, plan)
}

/// Returns whether the read was answered. Any other answer than its own fails the test.
fn check(value: &str, result: cenote::Result<String>, seed: u64) -> bool {
    match result {
        Ok(answer) => {
            assert_eq!(answer, value, "seed {seed}");
            true
        }
        Err(refused) if refused.kind() == Kind::Database => {
            assert_eq!(refused.message(), format!("no {value}"), "seed {seed}");
            true
        }
        Err(lost) => {
            assert!(lost.is_connection_lost(), "seed {seed}: {lost:?}");
            false
        }
    }
}

#[tokio::test]
async fn each_read_gets_its_own_answer_at_random() {
    let (mut answered, mut lost, mut shared) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let (_server, db, plan) = start(seed, 1 + rng.below(3)).await;
        *plan.lock().unwrap() = Plan {
            fails: 8,
            delays: true,
            cut: None,
        };
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..12 {
            let (db, plan, mut rng) = (db.clone(), Arc::clone(&plan), rng.fork());
            tasks.spawn(async move {
                let mut seen = [0, 0];
                for n in 0..12 {
                    let value = format!("{task}-{n}");
                    let read = db.query_scalar_one::<String>(READ, (&value,));
                    if rng.below(10) == 0 {
                        cenote_testkit::poll::drop_after(rng.below(4), read).await;
                        continue;
                    }
                    let result = soon("a read", read).await;
                    seen[usize::from(!check(&value, result, seed))] += 1;
                    if rng.below(20) == 0 {
                        plan.lock().unwrap().cut = Some(rng.below(300));
                    }
                }
                seen
            });
        }
        for [good, bad] in tasks.join_all().await {
            answered += good;
            lost += bad;
        }
        shared += db.shared_reads();
        let drained = db.close_and_drain(Duration::from_secs(10)).await;
        assert!(drained.is_ok(), "seed {seed}: {drained:?}");
    }
    println!("{answered} answered, {lost} lost, {shared} shared");
    assert!(answered > 5000 && lost > 50 && shared > 1000);
}

/// Cuts the answers of six shared reads after each byte.
#[tokio::test]
async fn cut_at_any_byte_fails_one_read_at_most() {
    let (mut failed, mut whole) = (0, 0);
    for cut in 0.. {
        let (_server, db, plan) = start(cut, 1).await;
        let values: Vec<_> = (0..6).map(|n| n.to_string()).collect();
        let held = db.pool().unwrap().acquire().await.unwrap();
        let mut reads: Vec<_> = values
            .iter()
            .map(|value| Hand::new(Box::pin(db.query_scalar_one::<String>(READ, (value,)))))
            .collect();
        for read in &mut reads {
            assert!(read.poll().is_pending());
        }
        drop(held);
        soon("all are in one lane", async {
            while db.holders().iter().all(|holder| holder.shared_by < 6) {
                tokio::task::yield_now().await;
                for read in &mut reads {
                    assert!(read.poll().is_pending());
                }
            }
        })
        .await;
        plan.lock().unwrap().cut = Some(usize::try_from(cut).unwrap());
        let mut bad = Vec::new();
        let results = soon("all reads", finish_all(&mut reads)).await;
        for (value, result) in values.iter().zip(results) {
            if !check(value, result, cut) {
                bad.push(value);
            }
        }
        assert!(bad.len() <= 1, "cut after {cut}: {bad:?} failed");
        failed += bad.len();
        drop(reads);
        if plan.lock().unwrap().cut.is_some() {
            whole += 1;
            if whole == 3 {
                break;
            }
        }
    }
    assert!(failed > 100, "{failed}");
}
