//! What a server says about itself: version, login, settings that matter, and what is odd about them.

use cenote::driver::{Dsn, Tls, Verified};
use cenote::{Db, Error};

/// What is known of a database.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Product and version.
    pub(crate) server: Option<String>,
    pub(crate) user: Option<String>,
    /// What the server calls the database; the file of SQLite.
    pub(crate) name: Option<String>,
    pub(crate) tls: Option<Tls>,
    /// What to say if there is no TLS.
    pub(crate) no_tls: &'static str,
    /// There is no network between the two.
    pub(crate) is_local: bool,
    pub(crate) settings: Vec<(String, String)>,
    /// What a person should look at.
    pub(crate) notes: Vec<String>,
}

/// Asks a database about itself.
pub(crate) async fn of(db: &Db) -> Result<Facts, Error> {
    let mut facts = match db.driver_name() {
        "pgsql" => postgres(db).await?,
        "mysql" => mysql(db).await?,
        "sqlite" => sqlite(db).await?,
        _ => Facts {
            no_tls: "not known through ODBC",
            ..Facts::default()
        },
    };
    if let Some(tls) = &facts.tls
        && tls.verified == Verified::Nothing
        && !facts.is_local
    {
        facts.note("anybody can pretend to be this server: use sslmode=verify-full");
    }
    Ok(facts)
}

impl Facts {
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn setting(&self, name: &str) -> &str {
        let found = self.settings.iter().find(|(of, _)| of == name);
        found.map_or("", |(_, value)| value)
    }
}

/// How the connection of a driver is encrypted.
async fn tls(db: &Db) -> Result<Option<Tls>, Error> {
    let Some(pool) = db.pool() else {
        return Ok(None);
    };
    let mut lease = pool
        .acquire()
        .await
        .map_err(|error| Error::other(error.to_string()))?;
    Ok(lease.driver().tls())
}

async fn postgres(db: &Db) -> Result<Facts, Error> {
    const SETTINGS: [&str; 14] = [
        "max_connections",
        "superuser_reserved_connections",
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "synchronous_commit",
        "fsync",
        "server_encoding",
        "TimeZone",
        "search_path",
        "ssl",
    ];
    let sql = "SELECT current_setting('server_version'), session_user::text, current_user::text, \
               current_database()::text, pg_is_in_recovery(), inet_server_addr() IS NULL OR \
               host(inet_server_addr()) IN ('127.0.0.1', '::1')";
    type Row = (String, String, String, String, bool, bool);
    let (version, session, current, name, in_recovery, is_local): Row =
        db.query_as_one(sql, ()).await?;
    let mut facts = Facts {
        server: Some(format!("PostgreSQL {version}")),
        user: Some(match session == current {
            true => current,
            false => format!("{session}, as {current}"),
        }),
        name: Some(name),
        tls: tls(db).await?,
        no_tls: "none: the connection is not encrypted",
        is_local,
        ..Facts::default()
    };
    for name in SETTINGS {
        // Older servers do not know all of them.
        let sql = "SELECT current_setting(?, true)";
        let value: Option<String> = db.query_as_one(sql, (name,)).await?;
        facts
            .settings
            .extend(value.map(|value| (name.to_owned(), value)));
    }
    let in_use = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let in_use: i64 = db.query_as_one(in_use, ()).await?;
    facts
        .settings
        .insert(1, ("connections in use".to_owned(), in_use.to_string()));
    if in_recovery {
        facts.note("the server is a standby: it only reads");
    }
    if facts.setting("fsync") == "off" {
        facts.note("fsync is off: a crash can destroy the database");
    }
    if facts.setting("synchronous_commit") == "off" {
        facts.note("synchronous_commit is off: a crash can lose the last commits");
    }
    if facts.setting("default_transaction_read_only") == "on" {
        facts.note("transactions are read-only unless they ask for more");
    }
    if facts.tls.is_none() && !facts.is_local {
        facts.note("anybody on the way can read along: use sslmode=verify-full");
    }
    Ok(facts)
}

async fn mysql(db: &Db) -> Result<Facts, Error> {
    let sql = "SELECT VERSION(), @@version_comment, CURRENT_USER(), USER(), DATABASE()";
    type Row = (String, String, String, String, Option<String>);
    let (version, comment, account, login, name): Row = db.query_as_one(sql, ()).await?;
    let product = match version.contains("MariaDB") {
        true => "MariaDB",
        false => "MySQL",
    };
    let host = login.rsplit('@').next().unwrap_or_default();
    let mut facts = Facts {
        server: Some(format!("{product} {version} ({comment})")),
        user: Some(format!("{login} (account {account})")),
        name,
        tls: tls(db).await?,
        no_tls: "none: the connection is not encrypted",
        is_local: ["localhost", "127.0.0.1", "::1"].contains(&host),
        ..Facts::default()
    };
    if let Some(tls) = &mut facts.tls {
        let sql = "SHOW SESSION STATUS LIKE 'Ssl_version'";
        let row: Option<(String, String)> = db.query_as_opt(sql, ()).await?;
        tls.protocol = row.map(|(_, version)| version).filter(|it| !it.is_empty());
    }
    let sql = "SHOW VARIABLES WHERE Variable_name IN ('max_connections', 'wait_timeout', \
               'interactive_timeout', 'sql_mode', 'transaction_isolation', 'tx_isolation', 'time_zone', \
               'max_allowed_packet', 'character_set_server', 'innodb_lock_wait_timeout', \
               'innodb_flush_log_at_trx_commit', 'max_statement_time', 'max_execution_time', \
               'max_prepared_stmt_count', 'read_only')";
    facts.settings = db.query_as(sql, ()).await?;
    let sql = "SHOW GLOBAL STATUS LIKE 'Threads_connected'";
    let in_use: Option<(String, String)> = db.query_as_opt(sql, ()).await?;
    let in_use = in_use.map(|(_, count)| ("connections in use".to_owned(), count));
    facts.settings.extend(in_use);
    if !facts.setting("sql_mode").contains("STRICT_") {
        facts.note("sql_mode is not strict: values that do not fit are changed silently");
    }
    if facts.setting("innodb_flush_log_at_trx_commit") != "1" {
        facts.note("innodb_flush_log_at_trx_commit is not 1: a crash can lose the last commits");
    }
    if facts.setting("read_only").eq_ignore_ascii_case("on") {
        facts.note("the server only reads");
    }
    if facts.tls.is_none() && !facts.is_local {
        facts.note("anybody on the way can read along: use sslmode=verify-full");
    }
    Ok(facts)
}

async fn sqlite(db: &Db) -> Result<Facts, Error> {
    const PRAGMAS: [&str; 7] = [
        "journal_mode",
        "synchronous",
        "foreign_keys",
        "page_size",
        "page_count",
        "cache_size",
        "mmap_size",
    ];
    let version: String = db.query_as_one("SELECT sqlite_version()", ()).await?;
    let file: String = db
        .query_as_one(
            "SELECT file FROM pragma_database_list WHERE name = 'main'",
            (),
        )
        .await?;
    let mut facts = Facts {
        server: Some(format!("SQLite {version}")),
        name: Some(match file.is_empty() {
            true => "in memory".to_owned(),
            false => file,
        }),
        is_local: true,
        ..Facts::default()
    };
    for name in PRAGMAS {
        let row = db.query_opt(&format!("PRAGMA {name}"), ()).await?;
        let Some(row) = row else { continue };
        let value = match row.get::<i64>(0) {
            Ok(number) => number.to_string(),
            Err(_) => row.get::<String>(0)?,
        };
        let value = match (name, value.as_str()) {
            ("synchronous", "0") => "0 (off)".to_owned(),
            ("synchronous", "1") => "1 (normal)".to_owned(),
            ("synchronous", "2") => "2 (full)".to_owned(),
            ("synchronous", "3") => "3 (extra)".to_owned(),
            _ => value,
        };
        facts.settings.push((name.to_owned(), value));
    }
    // SQLite's own is not used: the driver waits by itself.
    let dsn = Dsn::parse(db.config().dsn.expose())?;
    let busy = dsn.option("busy_timeout").unwrap_or("30s");
    facts
        .settings
        .insert(2, ("busy_timeout".to_owned(), busy.to_owned()));
    if !["wal", "memory"].contains(&facts.setting("journal_mode")) {
        facts.note("journal_mode is not wal: it becomes wal when cenote opens the file to write");
    }
    if facts.setting("synchronous").starts_with('0') {
        facts.note("synchronous is off: a crash can destroy the database");
    }
    if facts.setting("foreign_keys") == "0" {
        facts.note("foreign_keys is off: references are not checked");
    }
    Ok(facts)
}
