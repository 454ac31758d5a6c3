//! MariaDB with a known number of places, by named locks.

use std::time::Duration;

use cenote_size::limit::Limit;

use crate::{Known, alone, prepared, variable};

/// Each call takes one of the places for a time. If none is free, it waits in a queue of locks, whose first call looks for
/// a free place.
const PLACE: &str = "CREATE OR REPLACE FUNCTION size_place(places INT, seconds DOUBLE) RETURNS INT NOT DETERMINISTIC \
READS SQL DATA
BEGIN
    DECLARE place INT DEFAULT 1;
    DO GET_LOCK('size_queue', 60);
    WHILE GET_LOCK(CONCAT('size_place_', place), 0) <> 1 DO
        SET place = place % places + 1;
        IF place = 1 THEN
            DO SLEEP(0.001);
        END IF;
    END WHILE;
    DO RELEASE_LOCK('size_queue');
    DO SLEEP(seconds);
    DO RELEASE_LOCK(CONCAT('size_place_', place));
    RETURN place;
END";

#[tokio::test(flavor = "multi_thread")]
async fn three_places_of_mariadb_need_three_connections() {
    let _alone = alone().await;
    let dsn = variable("CENOTE_TEST_MARIADB");
    prepared(&dsn, &[PLACE]).await;
    let known = Known {
        dsn: &dsn,
        workload: "statement\n  SELECT size_place(3, 0.2)",
        allow_writes: false,
        length: Duration::from_secs(30),
        size: 3,
        limits: &[Limit::Locks],
    };
    known.verify().await;
}
