//! No password and no token is in anything that is shown, at any stage.
//!
//! Everything is gathered: `Debug` and `Display` of all that users hold, errors down to their first
//! cause, events of the pool, what is logged by `tracing`, and what a panic prints.

use std::error::Error as _;
use std::fmt::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Once};

use cenote::driver::{Dsn, Options, Secret};
use cenote::{Builder, CredentialProvider, Credentials, Db, DbConfig, Error, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::servers::free_port;
use super::{dsn, required_variable};

/// All that was logged and printed by panics in this process. Tests run at the same time, and each
/// looks through all of it: the secrets are the same.
static GATHERED: Mutex<String> = Mutex::new(String::new());

/// Writes down whatever anybody logs, at any level.
struct Everything;

struct Fields<'o>(&'o mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut gathered = GATHERED.lock().unwrap();
        span.record(&mut Fields(&mut gathered));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut GATHERED.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut gathered = GATHERED.lock().unwrap();
        gathered.push('\n');
        event.record(&mut Fields(&mut gathered));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// From now on all is gathered.
fn gather() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Everything).unwrap();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let _ = write!(GATHERED.lock().unwrap(), "\n{panic}");
            before(panic);
        }));
    });
}

/// The passwords of the servers' users, and those that only tests give.
const SECRETS: [&str; 7] = [
    "plain-secret",
    "scram-secret",
    "hashed-secret",
    "cenote-secret",
    "SQUEAMISH",
    "OSSIFRAGE",
    // Some write a password in Base64 or in hexadecimal digits.
    "U1FVRUFNSVNI",
];

/// What a test shows, piece by piece.
struct Shown(String);

impl Shown {
    fn new() -> Self {
        gather();
        Shown(String::new())
    }

    fn add(&mut self, what: impl fmt::Debug) {
        let _ = write!(self.0, "\n{what:?}\n{what:#?}");
    }

    fn error(&mut self, error: &Error) {
        let _ = write!(
            self.0,
            "\n{error}\n{error:?}\n{error:#?}\n{}",
            error.message()
        );
        let mut cause = error.source();
        while let Some(why) = cause {
            let _ = write!(self.0, "\n{why}\n{why:?}");
            cause = why.source();
        }
        // As a program does that gives up.
        let panicked = panic::catch_unwind(AssertUnwindSafe(|| panic!("cannot go on: {error:?}")));
        let message = panicked.unwrap_err().downcast::<String>().unwrap();
        self.0.push_str(&message);
    }

    /// All of it is clean, and there is something of it.
    fn is_clean(&self, about: &str) {
        assert!(self.0.len() > 50, "{about}: nothing was shown");
        let gathered = GATHERED.lock().unwrap();
        for secret in SECRETS {
            for text in [&self.0, &*gathered] {
                if let Some(at) = text.find(secret) {
                    let start = text[..at].rfind('\n').unwrap_or(0);
                    panic!("{about}: {}", &text[start..at + secret.len()]);
                }
            }
        }
    }
}

/// The users of each driver with their right passwords.
fn logins() -> Vec<(&'static str, Builder)> {
    let port = required_variable("CENOTE_TEST_POSTGRES_PORT");
    let postgres = |user| Db::builder(&dsn("pgsql", user)).option("port", port.as_str());
    vec![
        (
            "PostgreSQL, in the clear",
            postgres("plain").password("plain-secret"),
        ),
        (
            "PostgreSQL, SCRAM",
            postgres("scram").password("scram-secret"),
        ),
        (
            "PostgreSQL, MD5",
            postgres("hashed").password("hashed-secret"),
        ),
        (
            "PostgreSQL, by a URL",
            Db::builder(&format!(
                "postgres://plain:plain-secret@127.0.0.1:{port}/cenote"
            )),
        ),
        (
            "PostgreSQL, by a provider",
            postgres("scram").credentials(CredentialProvider::new(|| async {
                let mut token = Credentials::default();
                token.password = Some(Secret::from("scram-secret"));
                Ok::<_, Error>(token)
            })),
        ),
        (
            "MariaDB",
            Db::builder(&dsn("mysql", "plain")).password("plain-secret"),
        ),
        (
            "MariaDB, by its DSN",
            Db::builder(&(dsn("mysql", "plain") + ";password=plain-secret")),
        ),
        (
            "ODBC",
            Db::builder(&(dsn("odbc", "plain") + ";PWD={plain-secret}"))
                .option("Port", port.as_str()),
        ),
    ]
}

#[tokio::test]
async fn no_visible_value_shows_a_password_in_success_or_failure() {
    for (name, builder) in logins() {
        let mut shown = Shown::new();
        shown.add(&builder);
        let events = Arc::new(Mutex::new(String::new()));
        let db = builder.max(2).open().await.unwrap();
        let listener = {
            let events = Arc::clone(&events);
            db.pool().unwrap().on_event(move |event| {
                let _ = write!(events.lock().unwrap(), "\n{event:?}");
            })
        };
        shown.add(&db);
        db.ping()
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        shown.add(db.pool().unwrap());
        shown.add(db.status());
        shown.add(db.status().to_string());
        {
            let connection = db.connection().await.unwrap();
            shown.add(&connection);
            shown.error(
                &connection
                    .query("SELECT no_such_column", ())
                    .await
                    .unwrap_err(),
            );
            shown.add(connection.query("SELECT 1", ()).await.unwrap());
        }
        cenote::scope(async {
            let transaction = db.begin().await.unwrap();
            shown.add(&transaction);
            shown.add(db.status());
            let statement = db.prepare("SELECT 1").await.unwrap();
            shown.add(&statement);
            shown.error(&db.exec("NONSENSE", ()).await.unwrap_err());
            drop(statement);
            transaction.rollback().await.unwrap();
        })
        .await;
        shown.error(&db.query("SELECT ?", ()).await.unwrap_err());
        shown.error(&db.exec("SELECT :a + ?", (1,)).await.unwrap_err());
        db.close().await.unwrap();
        shown.error(&db.ping().await.unwrap_err());
        drop(listener);
        shown.0.push_str(&events.lock().unwrap());
        assert!(shown.0.contains("Created"), "{name}: events were told");
        shown.is_clean(name);
    }
}

#[tokio::test]
async fn a_refused_login_does_not_show_the_password_that_was_tried() {
    let port = required_variable("CENOTE_TEST_POSTGRES_PORT");
    for (driver, user, port_option) in [
        ("pgsql", "plain", "port"),
        ("pgsql", "scram", "port"),
        ("pgsql", "hashed", "port"),
        ("mysql", "plain", ""),
        ("odbc", "plain", "Port"),
    ] {
        let mut shown = Shown::new();
        let mut builder = Db::builder(&dsn(driver, user)).password("SQUEAMISH-password");
        if !port_option.is_empty() {
            builder = builder.option(port_option, port.as_str());
        }
        shown.add(&builder);
        let db = builder.open().await.unwrap();
        let error = db.ping().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        shown.error(&error);
        shown.add(&db);
        shown.add(db.status());
        shown.is_clean(&format!("{driver} {user}"));
    }
}

#[tokio::test]
async fn unreachable_server_is_reported_without_the_password() {
    let silent = hangs_up(b"").await;
    let noisy = hangs_up(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    // It asks for the password in the clear, and goes.
    let curious = hangs_up(b"R\0\0\0\x08\0\0\0\x03").await;
    for port in [free_port(), silent, noisy, curious] {
        for dsn in [
            format!("postgres://me:SQUEAMISH@127.0.0.1:{port}/db?sslmode=disable"),
            format!("postgres://me:SQUEAMISH@127.0.0.1:{port}/db?sslmode=require"),
            format!("mysql://me:SQUEAMISH@127.0.0.1:{port}/db?sslmode=disable"),
            format!("mysql://me:SQUEAMISH@127.0.0.1:{port}/db?sslmode=require"),
            dsn("odbc", "me").replace("Port=0", &format!("Port={port};PWD=SQUEAMISH")),
        ] {
            let mut shown = Shown::new();
            let db = Db::open(&dsn).await.unwrap();
            let error = db.ping().await.unwrap_err();
            let kinds = [Kind::Connect, Kind::Timeout];
            assert!(kinds.contains(&error.kind()), "{error:?}");
            shown.error(&error);
            shown.add(&db);
            shown.is_clean(&error.to_string());
        }
    }
}

/// The port of a server that says this to everybody and hangs up.
async fn hangs_up(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(words).await;
            let _ = stream.shutdown().await;
            // Until the other side has gone, too.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "the server is no part of the program"
    )]
    tokio::spawn(serving);
    port
}

#[tokio::test]
async fn invalid_dsn_or_option_is_reported_without_its_secret() {
    let mut shown = Shown::new();
    for dsn in [
        "pgsql:host=h password='SQUEAMISH",
        "pgsql:host=h;password=SQUEAMISH;nonsense=1",
        "postgres://me:SQUEAMISH@h:99999/db",
        "postgres://me:SQUEAMISH@h/db?sslmode=nonsense",
        "postgres://me:SQUEAMISH@h/db?sslmode=verify-full&sslrootcert=/no/such/file",
        "mysql:host=h;password=SQUEAMISH;port=x",
        "mysql://me:SQUEAMISH@h/db?nonsense=1",
        "odbc:Driver=/no/such/driver.so;PWD={SQUEAMISH};UID=me",
        "odbc:PWD=SQUEAMISH",
        "sqlite:x.db?key=SQUEAMISH",
        "sqlite://me:SQUEAMISH@h/x.db",
        "oracle:password=SQUEAMISH",
        "SQUEAMISH",
    ] {
        let builder = Db::builder(dsn);
        if dsn != "SQUEAMISH" {
            shown.add(&builder);
        }
        let error = match builder.open().await {
            Err(error) => error,
            Ok(db) => {
                shown.add(&db);
                db.ping().await.unwrap_err()
            }
        };
        shown.error(&error);
    }
    for option in ["password", "sslpassword", "access_token", "key"] {
        let builder = Db::builder("pgsql:host=127.0.0.1").option(option, "OSSIFRAGE");
        shown.add(&builder);
        if let Err(error) = builder.open().await {
            shown.error(&error);
        }
    }
    shown.is_clean("DSNs and options");
}

#[tokio::test]
async fn a_configuration_and_its_parts_show_no_secret() {
    let mut shown = Shown::new();
    let mut config = DbConfig::default();
    config.dsn = Secret::from("postgres://me:SQUEAMISH@h/db");
    config.password = Some(Secret::from("OSSIFRAGE"));
    config.options.set("sslpassword", "OSSIFRAGE");
    shown.add(&config);
    shown.add(config.check());
    let dsn = Dsn::parse("mysql:host=h;password=SQUEAMISH;sslkey_password=OSSIFRAGE").unwrap();
    shown.add(&dsn);
    shown.add(dsn.to_string());
    shown.add(dsn.credentials());
    shown.add(dsn.credentials().into_provider());
    shown.add(dsn.reader(&Options::new()));
    shown.add(Secret::from("SQUEAMISH"));
    shown.add(Credentials::new("me", "SQUEAMISH"));
    let failing = CredentialProvider::new(|| async {
        Err::<Credentials, _>(std::io::Error::other("the vault is sealed"))
    });
    shown.add(&failing);
    shown.error(&failing.get().await.unwrap_err());
    let unpooled = Db::builder("sqlite::memory:")
        .password("SQUEAMISH")
        .unpooled();
    shown.add(&unpooled);
    shown.add(unpooled.open().await.unwrap());
    shown.is_clean("configuration");
}
