//! PostgreSQL with a known number of places, by advisory locks, and with work for its processors.

use std::time::Duration;

use cenote_size::limit::Limit;

use crate::{Known, Processors, alone, prepared, variable};

/// Each call takes one of the places for a time. If none is free, it waits in a queue of locks, whose first call looks for
/// a free place.
const PLACE: &str = "CREATE OR REPLACE FUNCTION size_place(places int, seconds float8) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    place int := 1;
BEGIN
    PERFORM pg_advisory_lock(4711, 0);
    WHILE NOT pg_try_advisory_lock(4711, place) LOOP
        place := place % places + 1;
        IF place = 1 THEN
            PERFORM pg_sleep(0.001);
        END IF;
    END LOOP;
    PERFORM pg_advisory_unlock(4711, 0);
    PERFORM pg_sleep(seconds);
    PERFORM pg_advisory_unlock(4711, place);
    RETURN place;
END $$";

#[tokio::test(flavor = "multi_thread")]
async fn five_places_of_postgres_need_five_connections() {
    let _alone = alone().await;
    let dsn = variable("CENOTE_TEST_POSTGRES");
    prepared(&dsn, &[PLACE]).await;
    let known = Known {
        dsn: &dsn,
        workload: "statement\n  SELECT size_place(5, 0.1)",
        allow_writes: false,
        length: Duration::from_secs(25),
        size: 5,
        limits: &[Limit::Locks],
    };
    known.verify().await;
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
    let _server = Processors::of(&pid, "0");
    let _own = Processors::of(&std::process::id().to_string(), "1-1023");
    // 20 ms: what a busy machine adds to the round trip must stay small beside it, or a second connection would help.
    let known = Known {
        dsn: &dsn,
        workload: "param n = 29990 .. 30010\nstatement\n  SELECT sum(length(md5(i::text))) FROM generate_series(1, :n) i",
        allow_writes: false,
        length: Duration::from_secs(18),
        size: 1,
        limits: &[Limit::ServerCpu],
    };
    known.verify().await;
}
