//! `cenote check`: connects, and shows what matters about a database.

use std::process::ExitCode;
use std::time::Duration;

use cenote::driver::Verified;
use cenote::{Db, Error, Kind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::CheckOptions;
use crate::connect::{self, Access, explained};
use crate::facts::{self, Facts};
use crate::failure::Failure;
use crate::run::Signals;
use crate::say;

/// How many round trips are measured.
const ROUND_TRIPS: usize = 21;

/// Why a database cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Usage,
    Unreachable,
    Login,
    Tls,
    Other,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Usage => "usage",
            Cause::Unreachable => "unreachable",
            Cause::Login => "login",
            Cause::Tls => "tls",
            Cause::Other => "other",
        }
    }

    fn code(self) -> u8 {
        match self {
            Cause::Usage => 2,
            Cause::Unreachable => 3,
            Cause::Login => 5,
            Cause::Tls => 6,
            Cause::Other => 7,
        }
    }

    /// What to do about it.
    fn advice(self) -> &'static str {
        match self {
            Cause::Usage | Cause::Unreachable | Cause::Other => "",
            Cause::Login => "; check user, password and database (CENOTE_USER, CENOTE_PASSWORD)",
            Cause::Tls => "; check sslmode and sslrootcert",
        }
    }

    fn of(error: &Error) -> Self {
        let text = explained(error);
        let is_about_tls = ["TLS", "certificate", "sslmode"]
            .iter()
            .any(|it| text.contains(it));
        let state = error.sql_state().unwrap_or_default();
        match error.kind() {
            _ if state.starts_with("28") || state == "3D000" || error.code() == Some(1049) => {
                Cause::Login
            }
            Kind::Connect if text.contains("password") => Cause::Login,
            Kind::Connect | Kind::Config if is_about_tls => Cause::Tls,
            Kind::Config => Cause::Usage,
            Kind::Connect | Kind::Timeout | Kind::ConnectionLost | Kind::Unavailable => {
                Cause::Unreachable
            }
            _ => Cause::Other,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(options: &CheckOptions) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let looked = signals.unless(look(options)).await;
    match looked.ok_or_else(Failure::interrupted_check)? {
        Ok(found) => {
            say(&match options.json {
                true => format!("{}\n", as_json(&found)),
                false => as_text(&found),
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let cause = Cause::of(&error);
            let message = format!("{}{}", explained(&error), cause.advice());
            if !options.json {
                return Err(Failure::with_code(cause.code(), message));
            }
            let error = json!({ "cause": cause.name(), "message": message });
            say(&format!("{}\n", json!({ "ok": false, "error": error })))?;
            Ok(ExitCode::from(cause.code()))
        }
    }
}

/// Everything that is shown.
struct Found {
    database: String,
    driver: &'static str,
    /// The time of the first call, with the connect in it.
    connect: Duration,
    /// Sorted.
    round_trips: Vec<Duration>,
    facts: Facts,
}

async fn look(options: &CheckOptions) -> Result<Found, Error> {
    let wal = connect::wal_file(&options.database);
    let (db, database) = connect::open(&options.database, Access::Read).await?;
    let began = Instant::now();
    db.ping().await?;
    let connect = began.elapsed();
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        round_trip(&db).await?;
        round_trips.push(began.elapsed());
    }
    round_trips.sort();
    let facts = facts::of(&db).await?;
    connect::close(&db, wal).await;
    Ok(Found {
        database,
        driver: db.driver_name(),
        connect,
        round_trips,
        facts,
    })
}

/// A query that reads no table. A ping of SQLite asks nothing.
async fn round_trip(db: &Db) -> Result<(), Error> {
    match db.driver_name() {
        "odbc" => db.ping().await,
        _ => db.query("SELECT 1", ()).await.map(drop),
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

impl Found {
    fn median(&self) -> Duration {
        self.round_trips[self.round_trips.len() / 2]
    }

    fn shortest(&self) -> Duration {
        self.round_trips[0]
    }

    fn longest(&self) -> Duration {
        self.round_trips[self.round_trips.len() - 1]
    }
}

fn as_text(found: &Found) -> String {
    let facts = &found.facts;
    let mut lines = vec![("database", found.database.clone())];
    let mut known = |name, value: &Option<String>| {
        if let Some(value) = value {
            lines.push((name, value.clone()));
        }
    };
    known("server", &facts.server);
    known("user", &facts.user);
    known("name", &facts.name);
    lines.push(("TLS", encryption(facts)));
    lines.push(("connect", format!("{:.2} ms", millis(found.connect))));
    lines.push((
        "round trip",
        format!(
            "{:.3} ms median of {ROUND_TRIPS}, {:.3} to {:.3} ms",
            millis(found.median()),
            millis(found.shortest()),
            millis(found.longest())
        ),
    ));
    let mut text = String::new();
    for (name, value) in lines {
        text.push_str(&format!("{name:<11} {value}\n"));
    }
    if !facts.settings.is_empty() {
        text.push_str("\nsettings\n");
    }
    let widest = facts.settings.iter().map(|(name, _)| name.len()).max();
    for (name, value) in &facts.settings {
        let width = widest.unwrap_or(0);
        text.push_str(format!("  {name:<width$}  {value}").trim_end());
        text.push('\n');
    }
    for (at, note) in facts.notes.iter().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        text.push_str(&format!("{gap}note        {note}\n"));
    }
    text
}

fn encryption(facts: &Facts) -> String {
    let Some(tls) = &facts.tls else {
        return match facts.is_local {
            true => "none: it stays on this machine".to_owned(),
            false => facts.no_tls.to_owned(),
        };
    };
    let protocol = tls.protocol.as_deref().unwrap_or("encrypted");
    let verified = match tls.verified {
        Verified::CertificateAndHost => "certificate and host name verified",
        Verified::Certificate => "certificate verified, host name not",
        _ => "server not verified",
    };
    format!("{protocol}, {verified}")
}

fn as_json(found: &Found) -> Value {
    let facts = &found.facts;
    let tls = facts.tls.as_ref().map(|tls| {
        json!({
            "protocol": tls.protocol,
            "verified": match tls.verified {
                Verified::CertificateAndHost => "host",
                Verified::Certificate => "certificate",
                _ => "nothing",
            },
        })
    });
    let settings = facts.settings.iter();
    let settings: serde_json::Map<String, Value> = settings
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect();
    json!({
        "ok": true,
        "database": found.database,
        "driver": found.driver,
        "server": facts.server,
        "user": facts.user,
        "name": facts.name,
        "tls": tls,
        "connect_ms": millis(found.connect),
        "latency_ms": {
            "median": millis(found.median()),
            "min": millis(found.shortest()),
            "max": millis(found.longest()),
        },
        "settings": settings,
        "notes": facts.notes,
        "error": null,
    })
}
