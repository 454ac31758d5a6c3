//! Batches against a server that fails, delays and cuts at random: each statement gets its own answer, none runs
//! twice, and what is said not to have run has not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::soon;
use cenote::{Db, Kind};

/// A generator that needs no crate: splitmix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap();
        usize::try_from(self.next() % limit).unwrap()
    }

    fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn fork(&mut self) -> Self {
        Rng(self.next())
    }
}

/// Changes something, so that it must not run twice.
const WRITE: &str = "INSERT INTO t VALUES (?) RETURNING n";

/// Only reads: it is sent together with others, and may run twice if the connection is lost.
const READ: &str = "SELECT n FROM t WHERE n = ?";

/// How often the server has run each number.
type Ran = Arc<Mutex<BTreeMap<String, u32>>>;

/// What the server does with one connection.
struct Conduct {
    rng: Rng,
    ran: Ran,
    /// The answers are cut off after so many bytes.
    cut: Option<usize>,
}

/// Returns the only parameter of a Bind, a text.
pub(crate) fn parameter(bind: &[u8]) -> String {
    let mut at = 0;
    for _ in 0..2 {
        at += bind[at..].iter().position(|byte| *byte == 0).unwrap() + 1;
    }
    let number = |at: usize| usize::from(u16::from_be_bytes([bind[at], bind[at + 1]]));
    at += 2 + 2 * number(at);
    assert_eq!(number(at), 1);
    let length = u32::from_be_bytes(bind[at + 2..at + 6].try_into().unwrap());
    let value = &bind[at + 6..at + 6 + usize::try_from(length).unwrap()];
    String::from_utf8(value.to_vec()).unwrap()
}

/// One column `n`, or one row, of the type `text`.
pub(crate) fn description() -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend(b"n\0");
    body.extend([0; 6]);
    body.extend(25_u32.to_be_bytes());
    body.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    message(b'T', &body)
}

pub(crate) fn row(value: &str) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    message(b'D', &[&[0, 1], &length[..], value.as_bytes()].concat())
}

pub(crate) fn error(value: &str) -> Vec<u8> {
    let body = format!("SERROR\0VERROR\0C22012\0Mno {value}\0\0");
    message(b'E', body.as_bytes())
}

impl Conduct {
    async fn serve(mut self, mut client: Client) {
        client.let_in().await;
        let mut value = String::new();
        let (mut fails, mut skips) = (false, false);
        while let Some((tag, body)) = client.read().await {
            let answer = match tag {
                b'S' => {
                    skips = false;
                    message(b'Z', b"I")
                }
                _ if skips => continue,
                b'P' => message(b'1', b""),
                b'C' => message(b'3', b""),
                b'D' => [message(b't', &[0, 1, 0, 0, 0, 25]), description()].concat(),
                b'B' => {
                    value = parameter(&body);
                    fails = self.rng.below(8) == 0;
                    match fails && self.rng.bool() {
                        // Refused, and so not run.
                        true => {
                            skips = true;
                            error(&value)
                        }
                        false => message(b'2', b""),
                    }
                }
                b'E' => {
                    *self.ran.lock().unwrap().entry(value.clone()).or_default() += 1;
                    match fails {
                        true => {
                            skips = true;
                            error(&value)
                        }
                        false => {
                            let notice = "SWARNING\0VWARNING\0C01000\0Mlook\0\0".as_bytes();
                            let notice = message(b'N', notice);
                            let notice = if self.rng.bool() { notice } else { Vec::new() };
                            [notice, row(&value), message(b'C', b"INSERT 0 1\0")].concat()
                        }
                    }
                }
                _ => return,
            };
            for piece in answer.chunks(1 + self.rng.below(63)) {
                let left = self.cut.unwrap_or(usize::MAX);
                client.send(&piece[..piece.len().min(left)]).await;
                if piece.len() >= left {
                    return;
                }
                self.cut = self.cut.map(|cut| cut - piece.len());
                if self.rng.below(4) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Runs three batches of up to twelve statements. Returns how many statements were answered, refused, lost, and not run.
async fn run(seed: u64) -> [usize; 4] {
    let mut rng = Rng(seed);
    let ran = Ran::default();
    let script = {
        let (ran, rng) = (Arc::clone(&ran), Mutex::new(rng.fork()));
        move |client| {
            let mut rng = rng.lock().unwrap().fork();
            let cut = rng.bool().then(|| rng.below(600));
            let ran = Arc::clone(&ran);
            Conduct { rng, ran, cut }.serve(client)
        }
    };
    let server = Scripted::new(script).await;
    let db = Db::builder(&server.dsn())
        .max(1)
        .statement_cache(rng.below(3))
        .acquire_timeout(Duration::from_secs(10))
        .open()
        .await
        .unwrap();
    let mut seen = [0; 4];
    for batch_number in 0..3 {
        let values: Vec<_> = (0..1 + rng.below(11))
            .map(|n| {
                let kind = if rng.below(4) == 0 { 'w' } else { 'r' };
                format!("{kind}{batch_number}-{n}")
            })
            .collect();
        let mut batch = db.batch();
        let texts = [READ, WRITE].map(|sql| [sql.to_owned(), format!("{sql} /* again */")]);
        let entries: Vec<_> = values
            .iter()
            .map(|value| {
                let text = &texts[usize::from(value.starts_with('w'))][rng.below(2)];
                batch.query_scalar_one::<String>(text, (value,))
            })
            .collect();
        let results = soon("a batch", batch.run()).await;
        let all = ran.lock().unwrap().clone();
        assert!(
            all.iter()
                .all(|(value, times)| *times == 1 || value.starts_with('r')),
            "seed {seed}: {all:?}"
        );
        let mut results = match results {
            Ok(results) => results,
            Err(error) => {
                assert!(error.is_connection_lost(), "seed {seed}: {error:?}");
                seen[2] += values.len();
                continue;
            }
        };
        for (value, entry) in values.iter().zip(entries) {
            let times = all.get(value).copied().unwrap_or(0);
            let what = match results.take(entry) {
                Ok(answer) => {
                    assert_eq!(&answer, value, "seed {seed}");
                    assert!(times > 0, "seed {seed}");
                    0
                }
                Err(error) if error.kind() == Kind::Database => {
                    assert_eq!(error.message(), format!("no {value}"), "seed {seed}");
                    1
                }
                Err(error) if error.kind() == Kind::NotRun => {
                    let is_read = value.starts_with('r');
                    assert!(times == 0 || is_read, "seed {seed}: {value} has run");
                    3
                }
                Err(error) => {
                    assert!(error.is_connection_lost(), "seed {seed}: {error:?}");
                    2
                }
            };
            seen[what] += 1;
        }
    }
    seen
}

#[tokio::test]
async fn each_entry_gets_its_own_answer_or_says_why_not() {
    let mut all = [0; 4];
    for seed in 0..120 {
        for (sum, seen) in all.iter_mut().zip(run(seed).await) {
            *sum += seen;
        }
    }
    let [answered, refused, lost, _not_run] = all;
    println!("{answered} answered, {refused} refused, {lost} lost");
    assert!(answered > 500 && refused > 50 && lost > 50, "{all:?}");
}
