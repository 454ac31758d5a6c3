//! Promises about database errors.

use cenote::driver::{Status, Value};
use cenote::{Error, Kind, Violation};

use super::client::{Client, value};
use super::{Lack, Subject};

/// Checks that a database error has its kind, the database's message, and a code or an SQLSTATE.
fn check(error: &Error, violation: Violation) {
    assert_eq!(error.kind(), Kind::Database, "{error}");
    assert_eq!(error.violation(), Some(violation), "{error}");
    assert!(!error.message().is_empty(), "the database's own words");
    let state = error.sql_state();
    assert!(
        state.is_some() || error.code().is_some(),
        "an SQLSTATE or a number: {error:?}"
    );
    assert!(
        state.is_none_or(|state| state.len() == 5 && state.is_ascii()),
        "an SQLSTATE has five characters: {error:?}"
    );
}

/// A duplicate key is a unique violation, of class 23.
pub async fn a_broken_key_is_a_unique_violation(subject: &Subject) {
    if !subject.can(Lack::Constraints) {
        return;
    }
    let mut client = Client::first(subject).await;
    client.add(1).await;
    let error = client
        .insert(1)
        .await
        .expect_err("the key is there already");
    check(&error, Violation::Unique);
    assert!(error.is_unique_violation());
    let state = error.sql_state();
    assert!(state.is_none_or(|state| state.starts_with("23")), "{error}");
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, [1]);
}

/// A NULL in a NOT NULL column is a not-null violation, of class 23.
pub async fn a_missing_value_is_a_not_null_violation(subject: &Subject) {
    if !subject.can(Lack::Constraints) {
        return;
    }
    let mut client = Client::first(subject).await;
    let params = [value(1), value(Value::Null)];
    let refused = client.run(&subject.sql.insert, &params).await;
    let error = refused.expect_err("the text must not be NULL");
    check(&error, Violation::NotNull);
    assert!(error.is_not_null_violation());
    let state = error.sql_state();
    assert!(state.is_none_or(|state| state.starts_with("23")), "{error}");
    assert_eq!(client.ids().await, [0; 0]);
}

/// A statement that does not parse is a syntax error.
pub async fn a_syntax_error_is_reported(subject: &Subject) {
    let Some(wrong) = &subject.sql.syntax_error else {
        return;
    };
    let mut client = Client::another(subject).await;
    check(&client.must_not(wrong).await, Violation::Syntax);
    client.is_usable().await;
}

/// A missing table is an undefined-table error.
pub async fn an_undefined_table_is_reported(subject: &Subject) {
    let Some(wrong) = &subject.sql.undefined_table else {
        return;
    };
    let mut client = Client::another(subject).await;
    check(&client.must_not(wrong).await, Violation::Undefined);
    client.is_usable().await;
}

/// `prepare` reports an invalid statement; with [`Lack::EarlyErrors`] the run reports it.
pub async fn an_error_of_prepare_is_reported(subject: &Subject) {
    let Some(wrong) = &subject.sql.syntax_error else {
        return;
    };
    let mut client = Client::another(subject).await;
    let refused = client.connection.prepare(wrong).await;
    let error = match refused {
        Ok(_) if !subject.can(Lack::EarlyErrors) => client.must_not(wrong).await,
        refused => refused.expect_err("it is not understood"),
    };
    check(&error, Violation::Syntax);
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
}
