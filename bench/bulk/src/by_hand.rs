//! What one would write by hand against the bare client libraries.

use std::path::Path;

use mysql_async::prelude::Queryable;
use tokio_postgres::types::ToSql;

use crate::{Failed, INSERT, Record};

/// How many rows a multi-row VALUES has.
const ROWS: usize = 1_000;

pub struct Sqlite(rusqlite::Connection);

impl Sqlite {
    pub fn open(path: &Path) -> Result<Self, Failed> {
        Ok(Sqlite(rusqlite::Connection::open(path)?))
    }

    pub fn insert(&mut self, rows: &[Record]) -> Result<(), Failed> {
        let transaction = self.0.transaction()?;
        {
            let mut insert = transaction.prepare(INSERT)?;
            for row in rows {
                insert.execute((row.id, &row.name, row.amount, row.active, &row.note))?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

pub struct Postgres(tokio_postgres::Client);

impl Postgres {
    pub async fn connect(dsn: &str) -> Result<Self, Failed> {
        let config = dsn.trim_start_matches("pgsql:").replace(';', " ");
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(Postgres(client))
    }

    pub async fn insert(&mut self, rows: &[Record]) -> Result<(), Failed> {
        let transaction = self.0.transaction().await?;
        let whole = transaction
            .prepare(&values(ROWS, |n| format!("${n}")))
            .await?;
        for rows in rows.chunks(ROWS) {
            let params: Vec<&(dyn ToSql + Sync)> = rows
                .iter()
                .flat_map(|row| -> [&(dyn ToSql + Sync); 5] {
                    [&row.id, &row.name, &row.amount, &row.active, &row.note]
                })
                .collect();
            match rows.len() {
                ROWS => transaction.execute(&whole, &params).await?,
                rest => {
                    let sql = values(rest, |n| format!("${n}"));
                    transaction.execute(&sql, &params).await?
                }
            };
        }
        transaction.commit().await?;
        Ok(())
    }
}

pub struct Mysql(mysql_async::Conn);

impl Mysql {
    pub async fn connect(dsn: &str) -> Result<Self, Failed> {
        let mut options = mysql_async::OptsBuilder::default();
        for pair in dsn.trim_start_matches("mysql:").split(';') {
            options = match pair.split_once('=') {
                Some(("host", host)) => options.ip_or_hostname(host),
                Some(("port", port)) => options.tcp_port(port.parse()?),
                Some(("dbname", name)) => options.db_name(Some(name)),
                Some(("user", user)) => options.user(Some(user)),
                Some(("password", password)) => options.pass(Some(password)),
                _ => options,
            };
        }
        Ok(Mysql(mysql_async::Conn::new(options).await?))
    }

    pub async fn insert(&mut self, rows: &[Record]) -> Result<(), Failed> {
        let mut transaction = self.0.start_transaction(Default::default()).await?;
        for rows in rows.chunks(ROWS) {
            let params: Vec<mysql_async::Value> = rows
                .iter()
                .flat_map(|row| {
                    [
                        row.id.into(),
                        row.name.as_str().into(),
                        row.amount.into(),
                        row.active.into(),
                        row.note.as_deref().into(),
                    ]
                })
                .collect();
            let sql = values(rows.len(), |_| "?".to_owned());
            transaction.exec_drop(sql, params).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

/// Returns an INSERT of this many rows.
fn values(rows: usize, placeholder: impl Fn(usize) -> String) -> String {
    let row = |row: usize| {
        let columns: Vec<String> = (1..=5).map(|n| placeholder(row * 5 + n)).collect();
        format!("({})", columns.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    let head = INSERT.split(" VALUES").next().unwrap_or_default();
    format!("{head} VALUES {}", rows.join(", "))
}
