//! What the handle does for its connections by itself: new credentials for each, and a check of the
//! idle ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::{CredentialProvider, Credentials, Error, Kind, Result};
use cenote_testkit::{Fake, ManualRuntime};

#[tokio::test]
async fn a_provider_is_asked_for_every_connection() -> Result<()> {
    let fake = Fake::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let provider = CredentialProvider::new({
        let asked = Arc::clone(&asked);
        move || {
            let n = asked.fetch_add(1, Ordering::Relaxed) + 1;
            async move { Ok::<_, Error>(Credentials::new("app", format!("token {n}"))) }
        }
    });
    let db = fake.builder().max(2).credentials(provider).open().await?;
    assert_eq!(asked.load(Ordering::Relaxed), 0, "opening asks nobody");
    let _both = (db.connection().await?, db.connection().await?);
    for (connection, password) in [(1, "token 1"), (2, "token 2")] {
        let given = fake.credentials(connection).unwrap();
        assert_eq!(given.user.as_deref(), Some("app"));
        assert_eq!(given.password.unwrap().expose(), password);
    }
    Ok(())
}

#[tokio::test]
async fn a_provider_beside_a_password_is_refused() {
    let fake = Fake::new();
    let provider = Credentials::new("app", "one").into_provider();
    let builder = fake.builder().password("two").credentials(provider);
    assert_eq!(builder.open().await.unwrap_err().kind(), Kind::Config);
}

#[tokio::test]
async fn a_provider_that_fails_is_the_error_of_the_call() {
    let fake = Fake::new();
    let provider = CredentialProvider::new(|| async {
        Err::<Credentials, _>(std::io::Error::other("no token today"))
    });
    let db = fake.builder().credentials(provider).open().await.unwrap();
    let error = db.ping().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert_eq!(db.status().total, 0);
}

#[test]
fn idle_connection_that_does_not_answer_is_replaced_up_to_min() {
    let runtime = ManualRuntime::new();
    let fake = Fake::new();
    let builder = fake.builder().min(1).max(2);
    let builder = builder.healthcheck_interval(Duration::from_secs(30));
    let builder = builder.connect_timeout(Duration::from_secs(3));
    let db = runtime
        .finish(builder.runtime(runtime.clone()).open())
        .unwrap();
    fake.hold("ping 1");
    for _ in 0..50 {
        runtime.advance(Duration::from_secs(1));
        runtime.run();
    }
    let log = fake.take_log();
    assert!(
        log.iter().any(|line| line == "close 1" || line == "drop 1"),
        "{log:?}"
    );
    assert!(log.iter().any(|line| line == "connect 2"), "{log:?}");
    assert_eq!((db.status().total, db.status().idle), (1, 1));
}
