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
        workload: &format!("statement\n  SELECT size_place({places}, 0.02)"),
        allow_writes: false,
        length: Duration::from_secs(15),
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

/// Gives new sessions of the server priority over everything else on this machine, if this user may.
struct Priority(String);

impl Priority {
    fn set(&self, nice: &str) {
        // Without the right the machine has to be quiet.
        let _ = Command::new("renice")
            .args(["-n", nice, "-p", &self.0])
            .output();
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        self.set("0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_for_processors_needs_a_connection_for_each() {
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
    let priority = Priority(pid);
    priority.set("-15");
    let known = Known {
        dsn: &dsn,
        workload: "param n = 9990 .. 10010\nstatement\n  SELECT sum(length(md5(i::text))) FROM generate_series(1, :n) i",
        allow_writes: false,
        length: Duration::from_secs(20),
        size: std::thread::available_parallelism().unwrap().get(),
        limits: &[Limit::ServerCpu],
    };
    known.verify().await;
}
