//! The memory of a process, searched for a password.
//!
//! Each case is a process of its own, made for it: this test, started once more. It logs in, and looks
//! at every stage through all of its memory that can be written. The password is long, and searched
//! for in pieces: the first bytes of memory that was freed are not what they were. So that the
//! search does not find its own doing, the password stands nowhere in the program; letter by letter it
//! is derived.
//!
//! What cannot be seen so: registers, what the kernel has (socket buffers, pages on a swap disk),
//! and what was encoded or encrypted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::process::Command;

use cenote::driver::Secret;
use cenote::{Builder, Db};
use zeroize::Zeroizing;

use super::servers::own::OwnServer;
use super::servers::tls_file;
use super::{dsn, required_variable};

/// How long the password is, and the pieces that it is searched in.
const LENGTH: usize = 60;
const PIECE: usize = 10;

/// Says which case the process is made for.
const CASE: &str = "CENOTE_TEST_MEMORY_CASE";

/// The n-th letter of the password. The number is hidden from the compiler, lest it makes a text of it.
fn letter(n: usize) -> u8 {
    let n = u64::try_from(black_box(n)).unwrap();
    let mixed = (n + 11).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    b'a' + u8::try_from((mixed >> 40) % 26).unwrap()
}

/// The password, in one piece of memory that the secret takes over.
fn password() -> Secret {
    let mut text = String::with_capacity(LENGTH);
    for n in 0..LENGTH {
        text.push(char::from(letter(n)));
    }
    Secret::from(text)
}

/// Where in this process's memory copies begin, or would if they were whole.
fn search() -> BTreeSet<u64> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut buffer = vec![0_u8; 1 << 20];
    // What is read for searching is no copy that anybody else has made.
    let own = address(buffer.as_ptr())..address(buffer.as_ptr_range().end);
    let mut found = BTreeSet::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, access) = (words.next().unwrap(), words.next().unwrap());
        if !access.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let mut at = u64::from_str_radix(start, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        while at < end {
            if own.contains(&at) {
                at = own.end;
                continue;
            }
            let stop = if at < own.start {
                end.min(own.start)
            } else {
                end
            };
            let wanted = usize::try_from(stop - at).unwrap().min(buffer.len());
            // A thread that has ended since has taken its stack along.
            let Ok(read @ 1..) = memory.read_at(&mut buffer[..wanted], at) else {
                break;
            };
            for n in 0..LENGTH / PIECE {
                note_pieces(n * PIECE, &buffer[..read], at, &mut found);
            }
            buffer.fill(0);
            black_box(&mut buffer);
            // The next part begins with the end of this one: a piece may lie across.
            let overlap = if at + length(read) < stop {
                PIECE - 1
            } else {
                0
            };
            at += length(read - overlap);
        }
    }
    found
}

/// Notes where the copies begin that have the piece from the n-th letter on in these bytes.
fn note_pieces(n: usize, bytes: &[u8], at: u64, found: &mut BTreeSet<u64>) {
    let mut rest = bytes;
    while rest.skip_until(letter(n)).unwrap() > 0 {
        let behind = bytes.len() - rest.len();
        let is_piece = rest.len() >= PIECE - 1
            && (1..PIECE).all(|further| rest[further - 1] == letter(n + further));
        if is_piece && bytes[behind - 1] == letter(n) {
            found.insert(at + length(behind) - 1 - length(n));
        }
    }
}

fn address(pointer: *const u8) -> u64 {
    length(pointer.addr())
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap()
}

/// What the process finds of itself, stage by stage.
async fn live(driver: &str, user: &str, options: &[&str]) {
    let report = |stage: &str| {
        let found = search();
        println!("\nfound {stage} {} {found:x?}", found.len());
    };
    report("at_first");
    let db = builder(driver, user, options).open().await.unwrap();
    report("opened");
    use_it(&db).await;
    report("connected");
    let three = [
        db.connection().await,
        db.connection().await,
        db.connection().await,
    ];
    for connection in three {
        connection.unwrap().query("SELECT 1", ()).await.unwrap();
    }
    report("connected_thrice");
    // The password is right, and yet there will be no connection.
    let database = if driver == "odbc" {
        "Database"
    } else {
        "dbname"
    };
    let refused = builder(driver, user, options).option(database, "nowhere");
    let refused = refused.open().await.unwrap();
    refused.ping().await.unwrap_err();
    drop(refused);
    if driver == "odbc" {
        until_connections(3);
    }
    report("refused");
    db.close().await.unwrap();
    drop(db);
    if driver == "odbc" {
        until_connections(0);
    }
    report("dropped");
}

/// How many threads of ODBC's connections there are. One that ends meanwhile has no name any more.
fn connections_now() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| {
        let name = thread.unwrap().path().join("comm");
        fs::read_to_string(name).ok()
    });
    names.filter(|name| name.starts_with("cenote-odbc")).count()
}

/// A connection that is closed has a thread that ends soon after.
fn until_connections(most: usize) {
    for _ in 0..1_000_000 {
        if connections_now() <= most {
            return;
        }
        std::thread::yield_now();
    }
    panic!(
        "there are {} connections, and not {most}",
        connections_now()
    );
}

/// The password is given to the builder, or with the option `in=dsn` written into the DSN.
fn builder(driver: &str, user: &str, options: &[&str]) -> Builder {
    let mut builder = match options.contains(&"in=dsn") {
        false => Db::builder(&dsn(driver, user)).password(password()),
        true => {
            // Ours to wipe; it must not move while it grows.
            let mut dsn = Zeroizing::new(String::with_capacity(500));
            dsn.push_str("postgres://scram:");
            dsn.push_str(password().expose());
            dsn.push_str("@127.0.0.1/cenote");
            Db::builder(&dsn)
        }
    };
    builder = builder.max(3);
    for option in options.iter().filter(|option| **option != "in=dsn") {
        let (name, value) = option.split_once('=').unwrap();
        builder = builder.option(name, value);
    }
    builder
}

async fn use_it(db: &Db) {
    db.ping().await.unwrap();
    let one: i64 = db.query_as_one("SELECT 1", ()).await.unwrap();
    assert_eq!(one, 1);
}

/// Runs a case in a process of its own, and says how many copies were found at each stage.
fn counts(test: &str, case: &str) -> Vec<(String, usize)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env_clear().env(CASE, case);
    command.env(
        "CENOTE_TEST_MARIADB_PORT",
        required_variable("CENOTE_TEST_MARIADB_PORT"),
    );
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{case}: {said}{complaint}");
    eprintln!("{case}: {said}");
    let lines = said.lines().filter_map(|line| line.strip_prefix("found "));
    let counts = lines.map(|line| {
        let mut words = line.split(' ');
        let stage = words.next().unwrap().to_owned();
        (stage, words.next().unwrap().parse().unwrap())
    });
    counts.collect()
}

/// In a process that was made for a case, lives it and is `true`.
fn is_case() -> bool {
    let Ok(case) = std::env::var(CASE) else {
        return false;
    };
    let mut words = case.split(' ');
    let (driver, user) = (words.next().unwrap(), words.next().unwrap());
    let options: Vec<_> = words.collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(live(driver, user, &options));
    true
}

/// What was found, beside what the template has, is no more than what a library has of each of the
/// connections, and leaves of each.
fn holds(found: &[(String, usize)], template: usize, of_each: usize, left_of_each: usize) {
    let [at_first, opened, connected, thrice, refused, dropped] = found else {
        panic!("a stage is missing: {found:?}");
    };
    assert_eq!(at_first.1, 0, "the test has one itself");
    assert_eq!(opened.1, template, "{found:?}");
    assert!(
        (template..=template + of_each).contains(&connected.1),
        "{found:?}"
    );
    assert!(
        (template..=template + 3 * of_each).contains(&thrice.1),
        "{found:?}"
    );
    assert!(
        (template..=template + 4 * of_each).contains(&refused.1),
        "{found:?}"
    );
    assert!(dropped.1 <= 4 * left_of_each, "{found:?}");
}

/// In the handle's configuration, and for the next connect.
const BY_BUILDER: usize = 2;

/// Once more if it came in the DSN, which is kept whole.
const BY_DSN: usize = 3;

/// A PostgreSQL whose users have the long password.
async fn postgres() -> OwnServer {
    let certificate = format!("ssl_cert_file={}", tls_file("primary.crt"));
    let key = format!("ssl_key_file={}", tls_file("primary.key"));
    let server = OwnServer::start(&["ssl=on", &certificate, &key]).await;
    let db = Db::open(&server.dsn()).await.unwrap();
    for (user, encryption) in [
        ("plain", "scram-sha-256"),
        ("scram", "scram-sha-256"),
        ("hashed", "md5"),
    ] {
        let script = format!(
            "SET password_encryption = '{encryption}'; ALTER ROLE {user} PASSWORD '{}'",
            password().expose()
        );
        db.exec(&script, ()).await.unwrap();
    }
    server
}

#[test]
fn postgres_leaves_no_copy_of_a_password_by_any_kind_of_login() {
    if is_case() {
        return;
    }
    let test = "memory::postgres_leaves_no_copy_of_a_password_by_any_kind_of_login";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(postgres());
    let cases = [
        ("scram", "sslmode=disable", BY_BUILDER),
        ("scram", "sslmode=require", BY_BUILDER),
        ("scram", "sslmode=disable in=dsn", BY_DSN),
        ("plain", "sslmode=disable", BY_BUILDER),
        ("plain", "sslmode=require", BY_BUILDER),
        ("hashed", "sslmode=disable", BY_BUILDER),
    ];
    for (user, options, template) in cases {
        let case = format!("pgsql {user} port={} {options}", server.port());
        holds(&counts(test, &case), template, 0, 0);
    }
}

#[test]
fn of_odbc_the_driver_alone_has_copies() {
    if is_case() {
        return;
    }
    let test = "memory::of_odbc_the_driver_alone_has_copies";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(postgres());
    let case = format!("odbc plain Port={}", server.port());
    holds(&counts(test, &case), BY_BUILDER, 6, 3);
}

#[test]
fn of_mysql_the_client_library_alone_has_copies() {
    if is_case() {
        return;
    }
    let test = "memory::of_mysql_the_client_library_alone_has_copies";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let db = Db::open(&required_variable("CENOTE_TEST_MARIADB"))
            .await
            .unwrap();
        let create = format!(
            "CREATE OR REPLACE USER long_secret IDENTIFIED BY '{}'",
            password().expose()
        );
        db.exec(&create, ()).await.unwrap();
        db.exec("GRANT ALL ON cenote.* TO long_secret", ())
            .await
            .unwrap();
    });
    for tls in ["disable", "prefer", "require"] {
        let case = format!("mysql long_secret sslmode={tls}");
        holds(&counts(test, &case), BY_BUILDER, 1, 1);
    }
}
