//! Promises about the session: reset, ping, close, settings, templates and connects.

use std::time::Duration;

use cenote::Kind;
use cenote::driver::{ConnectSettings, Options, Reset, Status, Value};

use super::Subject;
use super::client::Client;

/// A reset restores a new session and keeps what was committed; or it demands a new connection, and this one can
/// be closed.
pub async fn a_reset_gives_a_new_session_or_asks_for_a_new_connection(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.add(1).await;
    if let Some([create, select]) = &subject.sql.temporary_table {
        client.must(create).await;
        client.must(select).await;
    }
    match client.connection.reset().await {
        Ok(Reset::Done) => {
            assert_eq!(client.status(), Status::Idle);
            client.is_usable().await;
            if let Some([_, select]) = &subject.sql.temporary_table {
                client.must_not(select).await;
            }
            assert_eq!(client.ids().await, [1]);
            client.begin().await;
            client.add(2).await;
            client.commit().await;
        }
        Ok(Reset::Replace) => client.close().await,
        Err(error) => panic!("a session can be reset: {error}"),
    }
    let mut other = Client::another(subject).await;
    if let Some([_, select]) = &subject.sql.temporary_table {
        other.must_not(select).await;
    }
    other.is_usable().await;
}

/// A ping is answered, in a transaction and outside.
pub async fn a_ping_is_answered(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.connection.ping().await.expect("it is there");
    assert_eq!(client.status(), Status::Idle);
    client.begin().await;
    client.add(1).await;
    client.connection.ping().await.expect("it is there");
    assert_eq!(client.status(), Status::InTransaction);
    client.commit().await;
    assert_eq!(client.ids().await, [1]);
}

/// An unknown setting is an error, if the driver has settings at all; the session stays usable.
pub async fn a_setting_is_made_or_refused(subject: &Subject) {
    let mut client = Client::another(subject).await;
    // Some databases accept any name; the session has to stay usable either way.
    let _ = client
        .connection
        .set("cenote_no_such_setting", &Value::Int(1))
        .await;
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
}

/// A probe leaves a living connection usable.
pub async fn a_probe_of_a_healthy_connection_changes_nothing(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.add(1).await;
    client.connection.probe(Duration::from_secs(1));
    assert!(!client.connection.is_broken());
    assert_eq!(client.status(), Status::InTransaction);
    client.commit().await;
    client.connection.probe(Duration::from_secs(1));
    client.is_usable().await;
    assert_eq!(client.ids().await, [1]);
}

/// An unknown option is an error that names it.
pub async fn an_unknown_option_is_an_error_that_names_it(subject: &Subject) {
    const UNKNOWN: &str = "cenote_no_such_option";
    let mut options = Options::new();
    for (name, value) in subject.options.iter() {
        options.set(name, value);
    }
    options.set(UNKNOWN, "1");
    let refused = subject.driver.template(&subject.dsn, &options);
    let error = refused.expect_err("there is no such option");
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(error.message().contains(UNKNOWN), "{error}");
}

/// The address and the `Debug` output of a template contain no password.
pub async fn the_address_holds_no_password(subject: &Subject) {
    let template = &subject.template;
    let shown = format!("{} {template:?} {:?}", template.address(), subject.dsn);
    let client = Client::another(subject).await;
    let shown = format!("{shown} {:?}", client.connection);
    let password = subject.credentials.password.as_ref();
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        let is_hidden = !shown.contains(password.expose());
        assert!(is_hidden, "a password is shown");
    }
    assert!(!template.address().is_empty(), "an address for messages");
}

/// A failed connect is a connect error with a message.
pub async fn a_failed_connect_returns_a_connect_error(subject: &Subject) {
    let Some(dsn) = &subject.unreachable else {
        return;
    };
    let template = subject.driver.template(dsn, &subject.options);
    let template = template.expect("nothing is opened yet");
    let settings = ConnectSettings::new(0);
    let connecting = template.connect(subject.credentials.clone(), &settings);
    let error = connecting
        .await
        .expect_err("there is nothing to connect to");
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(!error.message().is_empty());
}
