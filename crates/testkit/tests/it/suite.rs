//! The fake passes the suite that it belongs to: however its calls wait, and whatever becomes of
//! those that are dropped.

use cenote_testkit::suite::{Subject, run};
use cenote_testkit::{DroppedCalls, Fake};

/// What it cannot do is left out: it understands every text, has no sessions to speak of, and
/// its tables do not change.
fn subject(fake: &Fake) -> Subject {
    // One for each time that the suite begins a statement without an end.
    for _ in 0..3 {
        fake.hold("ENDLESS");
    }
    Subject::new(fake.driver(), "fake:")
        .expect("the DSN is right")
        .sql(|sql| {
            sql.syntax_error = Some("FAIL 42601".into());
            sql.undefined_table = Some("FAIL 42P01".into());
            sql.endless = Some("ENDLESS".into());
            sql.add_column = None;
            sql.temporary_table = None;
        })
        // Dropping it reports its violations.
        .keep(fake.clone())
}

mod at_once {
    use super::*;

    async fn make() -> Subject {
        subject(&Fake::new())
    }

    cenote_testkit::driver_suite!(make);
}

mod slowly_and_dropped_calls_are_not_executed {
    use super::*;

    async fn make() -> Subject {
        let fake = Fake::new();
        fake.poll_pending(3);
        subject(&fake)
    }

    cenote_testkit::driver_suite!(make);
}

mod slowly_and_dropped_calls_are_executed {
    use super::*;

    async fn make() -> Subject {
        let fake = Fake::new();
        fake.poll_pending(3);
        fake.dropped_calls(DroppedCalls::Executed);
        subject(&fake)
    }

    cenote_testkit::driver_suite!(make);
}

mod as_on_postgres {
    use super::*;

    async fn make() -> Subject {
        let fake = Fake::new();
        fake.poll_pending(1);
        fake.errors_fail_transactions(true);
        fake.reset_replaces(true);
        subject(&fake)
    }

    cenote_testkit::driver_suite!(make);
}

#[test]
fn the_suite_can_be_run_as_a_whole_on_any_executor() {
    cenote_testkit::poll::block_on(run(async || subject(&Fake::new())));
}
