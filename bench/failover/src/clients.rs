//! The libraries, each with its defaults.

use std::time::Duration;

use cenote::{Db, Secret};
use deadpool_postgres::{Manager, Pool, Runtime, Timeouts};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use tokio_postgres::NoTls;
use tokio_postgres::config::TargetSessionAttrs;

const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) enum Client {
    Cenote(Db),
    Deadpool(Pool),
    Sqlx(PgPool),
}

fn because(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Client {
    pub(crate) async fn open(peer: &str, ports: &[u16], password: &Secret) -> Result<Self, String> {
        match peer {
            "cenote" => {
                let hosts = vec!["127.0.0.1"; ports.len()].join(",");
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                let dsn = format!(
                    "pgsql:host={hosts};port={};dbname=postgres;sslmode=disable;target_session_attrs=read-write",
                    ports.join(",")
                );
                let db = Db::builder(&dsn).user("cenote").password(password.expose());
                let db = db
                    .max(CONNECTIONS)
                    .connect_timeout(PATIENCE)
                    .acquire_timeout(PATIENCE);
                db.open().await.map(Client::Cenote).map_err(because)
            }
            "sqlx" => {
                let options = PgConnectOptions::new()
                    .host("127.0.0.1")
                    .port(ports[0])
                    .username("cenote")
                    .password(password.expose())
                    .database("postgres")
                    .ssl_mode(PgSslMode::Disable);
                let pool = PgPoolOptions::new()
                    .max_connections(CONNECTIONS as u32)
                    .acquire_timeout(PATIENCE);
                pool.connect_with(options)
                    .await
                    .map(Client::Sqlx)
                    .map_err(because)
            }
            _ => {
                let mut config = tokio_postgres::Config::new();
                for port in ports {
                    config.host("127.0.0.1").port(*port);
                }
                config
                    .user("cenote")
                    .password(password.expose())
                    .dbname("postgres")
                    .connect_timeout(PATIENCE)
                    .target_session_attrs(TargetSessionAttrs::ReadWrite);
                let pool = Pool::builder(Manager::new(config, NoTls))
                    .max_size(CONNECTIONS)
                    .timeouts(Timeouts {
                        wait: Some(PATIENCE),
                        create: Some(PATIENCE),
                        recycle: Some(PATIENCE),
                    })
                    .runtime(Runtime::Tokio1);
                pool.build().map(Client::Deadpool).map_err(because)
            }
        }
    }

    async fn execute(&self, sql: &'static str) -> Result<(), String> {
        match self {
            Client::Cenote(db) => db.exec(sql, ()).await.map(drop).map_err(because),
            Client::Deadpool(pool) => {
                let client = pool.get().await.map_err(because)?;
                client.execute(sql, &[]).await.map(drop).map_err(because)
            }
            Client::Sqlx(pool) => sqlx::query(sql)
                .execute(pool)
                .await
                .map(drop)
                .map_err(because),
        }
    }

    pub(crate) async fn create(&self) -> Result<(), String> {
        self.execute("CREATE TABLE paid (id int8 GENERATED ALWAYS AS IDENTITY, at timestamptz)")
            .await
    }

    pub(crate) async fn write(&self) -> Result<(), String> {
        self.execute("INSERT INTO paid (at) VALUES (now())").await
    }
}
