//! The suite that every driver has to pass.
//!
//! Each function checks one promise of the contract in [`cenote::driver`] and panics if the driver
//! breaks it; dropping its future drops its connections. To run all of them as tests of a driver:
//!
//! ```
//! use cenote_testkit::{Fake, driver_suite, suite::Subject};
//!
//! // An empty database for each promise.
//! async fn subject() -> Subject {
//!     let fake = Fake::new();
//!     Subject::new(fake.driver(), "fake:").expect("the DSN is right")
//! }
//!
//! driver_suite!(subject);
//! # fn main() {}
//! ```
//!
//! [`Sql`] contains the statements that the suite sends; you can change them. Declare a missing
//! capability with [`Lack`], or set its statement to `None`. Both show readers of the driver's tests
//! what the driver does not promise.
//!
//! | file | promises about |
//! |---|---|
//! | `status` | the transaction status |
//! | `transactions` | commit, rollback, isolation, savepoints |
//! | `dropped` | futures that are dropped at any await |
//! | `errors` | database errors |
//! | `values` | parameters and results |
//! | `statements` | affected rows, batches, preparing, caching, scripts |
//! | `pipelines` | several statements at once, each with its own result |
//! | `streams` | rows in batches |
//! | `session` | reset, ping, close; template and connect |
//!
//! Where drivers may differ, [`abilities`] finds out what a driver does, and [`check_table`] checks
//! the table in its documentation.

mod abilities;
mod client;
mod dropped;
mod errors;
mod pipelines;
mod session;
mod statements;
mod status;
mod streams;
mod subject;
mod transactions;
mod values;

use std::future::Future;
use std::time::Duration;

pub use self::abilities::{Ability, abilities, check_table};
pub use self::dropped::*;
pub use self::errors::*;
pub use self::pipelines::*;
pub use self::session::*;
pub use self::statements::*;
pub use self::status::*;
pub use self::streams::*;
pub use self::subject::{Lack, Sql, Subject, Types};
pub use self::transactions::*;
pub use self::values::*;
use crate::poll::within;

/// The time limit of each promise.
const LIMIT: Duration = Duration::from_secs(60);

/// Checks one promise. Fails if that takes longer than a minute.
///
/// # Cancel safety
///
/// Dropped, its connections are dropped.
///
/// # Panics
///
/// If the promise is broken.
pub async fn in_time(promise: impl Future<Output = ()>) {
    let done = within(LIMIT, promise).await;
    assert!(done.is_some(), "took longer than {LIMIT:?}");
}

/// Calls a macro with the names of all promises.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_promise {
    ($call:path, $($args:tt)*) => {
        $call! {
            $($args)*;
            a_new_connection_is_idle_and_whole
            the_status_follows_begin_commit_and_rollback
            transaction_control_in_a_text_is_seen
            a_transaction_begins_with_its_first_statement
            a_begin_whose_first_statement_fails_leaves_the_status_known
            a_failed_statement_leaves_the_status_known

            a_commit_keeps
            a_rollback_undoes
            a_rollback_without_a_transaction_is_fine
            uncommitted_rows_reach_no_other_connection
            savepoints_nest
            a_savepoint_that_was_rolled_back_can_be_set_again
            going_back_to_a_savepoint_heals_a_failed_transaction
            every_isolation_level_is_given_or_refused
            a_read_only_transaction_writes_nothing
            closing_a_connection_rolls_back
            dropping_a_connection_rolls_back

            a_dropped_run_leaves_nothing_but_its_effect
            a_dropped_query_leaves_no_rows
            a_dropped_run_in_a_transaction_can_be_rolled_back
            the_error_of_a_dropped_call_is_discarded
            a_dropped_begin_leaves_the_status_known
            a_dropped_commit_has_come_to_something
            a_dropped_rollback_leaves_the_status_known
            a_dropped_savepoint_leaves_the_transaction_usable
            a_dropped_batch_leaves_nothing_but_its_effect
            a_dropped_pipeline_leaves_nothing_but_its_effect
            a_dropped_prepare_leaves_a_usable_connection
            a_dropped_stream_start_leaves_no_rows
            a_dropped_end_of_a_stream_leaves_no_rows
            a_dropped_settle_can_be_done_again
            a_dropped_ping_leaves_a_usable_connection
            a_dropped_connect_is_no_hindrance
            a_dropped_close_closes_all_the_same
            dropping_a_connection_in_the_middle_of_a_call_rolls_back
            settling_nothing_is_fine
            settling_cancels_what_still_runs
            closing_cancels_what_still_runs

            a_broken_key_is_a_unique_violation
            a_missing_value_is_a_not_null_violation
            a_syntax_error_is_reported
            an_undefined_table_is_reported
            an_error_of_prepare_is_reported

            every_value_comes_back_as_it_was_sent
            null_comes_back_from_a_column_of_every_type
            a_large_text_and_large_bytes_come_back_whole
            a_number_that_has_no_place_is_refused
            the_wrong_number_of_parameters_is_refused

            affected_rows_are_counted
            rows_that_are_not_wanted_are_not_given
            an_empty_result_has_its_columns
            a_batch_adds_up_its_affected_rows
            a_batch_returns_the_rows_of_all_sets
            a_batch_of_nothing_does_nothing
            a_batch_stops_at_the_first_error
            each_statement_of_a_pipeline_has_its_own_result
            an_error_in_a_pipeline_is_of_its_statement_alone
            a_pipeline_stops_at_an_error_if_it_shall
            prepare_returns_parameters_and_columns
            a_statement_can_be_run_again_and_again
            more_statements_than_the_cache_holds_are_fine
            a_connection_without_a_cache_is_fine
            a_cached_statement_survives_a_change_of_its_table
            a_script_runs_from_first_to_last
            a_script_stops_at_the_first_error

            a_stream_gives_all_rows_in_order_and_in_batches
            a_stream_without_rows_has_its_columns
            a_stream_that_is_ended_early_leaves_no_rows
            a_stream_that_is_ended_early_does_not_hurt_its_transaction
            a_stream_that_cannot_start_says_why

            a_reset_gives_a_new_session_or_asks_for_a_new_connection
            a_ping_is_answered
            a_setting_is_made_or_refused
            a_probe_of_a_healthy_connection_changes_nothing
            an_unknown_option_is_an_error_that_names_it
            the_address_holds_no_password
            a_failed_connect_returns_a_connect_error
        }
    };
}

/// Makes a `#[tokio::test]` of every promise in [`suite`](crate::suite).
///
/// Takes the name of an async function that returns a [`Subject`](crate::suite::Subject) with an
/// empty database; each test calls it once.
#[macro_export]
macro_rules! driver_suite {
    ($make:path) => {
        $crate::__for_each_promise!($crate::__driver_tests, $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __driver_tests {
    ($make:path; $($promise:ident)*) => {$(
        #[::tokio::test]
        async fn $promise() {
            let subject = $make().await;
            $crate::suite::in_time($crate::suite::$promise(&subject)).await;
        }
    )*};
}

/// Checks all promises, one after the other, each with its own database: for executors other
/// than Tokio, and for drivers that are not tested with `#[test]`.
///
/// # Cancel safety
///
/// Dropped, its connections are dropped.
///
/// # Panics
///
/// At the first broken promise.
pub async fn run<F: Future<Output = Subject>>(mut make: impl FnMut() -> F) {
    macro_rules! one_by_one {
        ($make:ident; $($promise:ident)*) => {$(
            let subject = $make().await;
            in_time($promise(&subject)).await;
        )*};
    }
    crate::__for_each_promise!(one_by_one, make);
}
