//! PostgreSQL with a known number of places, by advisory locks, and with work for its processors.

use std::process::Command;
use std::time::Duration;

use cenote_size::limit::Limit;

use crate::{Known, alone, prepared, variable};

/// Each call takes one of the places for a time. If none is free, it waits for one.
const PLACE: &str = "CREATE OR REPLACE FUNCTION size_place(places int, seconds float8) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    place int := 1;
BEGIN
    WHILE place <= places AND NOT pg_try_advisory_lock(4711, place) LOOP
        place := place + 1;
    END LOOP;
    IF place > places THEN
        place := 1 + floor(random() * places);
        PERFORM pg_advisory_lock(4711, place);
    END IF;
    PERFORM pg_sleep(seconds);
    PERFORM pg_advisory_unlock(4711, place);
    RETURN place;
END $$";

async fn verify_places(places: usize) {
    let _alone = alone().await;
    let dsn = variable("CENOTE_TEST_POSTGRES");
    prepared(&dsn, &[PLACE]).await;
    let known = Known {
        dsn: &dsn,
        workload: &format!("statement\n  SELECT size_place({places}, 0.05)"),
        allow_writes: false,
        length: Duration::from_secs(20),
        size: places,
        limits: &[Limit::Locks],
    };
    known.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_places_of_postgres_need_four_connections() {
    verify_places(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_places_of_postgres_need_seven_connections() {
    verify_places(7).await;
}

/// Gives new sessions of the server one processor, with priority over everything else there if this user may, and this
/// program the others. So the right size is one, whatever else the machine does.
struct OneProcessor {
    server: String,
    own: String,
}

impl OneProcessor {
    fn of(server: String) -> Self {
        let own = std::process::id().to_string();
        run("taskset", &["-cp", "0", &server]);
        // Without the right, or with one processor, the machine has to be quiet.
        run("chrt", &["--rr", "-p", "1", &server]);
        run("taskset", &["-acp", "1-1023", &own]);
        OneProcessor { server, own }
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        run("chrt", &["--other", "-p", "0", &self.server]);
        run("taskset", &["-cp", "0-1023", &self.server]);
        run("taskset", &["-acp", "0-1023", &self.own]);
    }
}

fn run(program: &str, args: &[&str]) {
    let _ = Command::new(program).args(args).output();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_for_one_processor_needs_one_connection() {
    let _alone = alone().await;
    let dsn = variable("CENOTE_TEST_POSTGRES");
    let pid = format!(
        "{}/primary/postmaster.pid",
        variable("CENOTE_TEST_POSTGRES_HOME")
    );
    let pid = std::fs::read_to_string(pid)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned();
    let _processor = OneProcessor::of(pid);
    let known = Known {
        dsn: &dsn,
        workload: "param n = 19990 .. 20010\nstatement\n  SELECT sum(length(md5(i::text))) FROM generate_series(1, :n) i",
        allow_writes: false,
        length: Duration::from_secs(15),
        size: 1,
        limits: &[Limit::ServerCpu],
    };
    known.verify().await;
}
