//! mysql_async: a bare connection that gets the text each time, as `Db` does, or a prepared statement; and its
//! pool, with its statement cache.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, Row};
use tokio::sync::Mutex;

use crate::{Outcome, Peer, SQL, Server, is_name, key};

fn options(server: &Server) -> OptsBuilder {
    let options = OptsBuilder::default()
        .user(Some("cenote"))
        .pass(Some("cenote-secret"))
        .db_name(Some("cenote"));
    match server {
        Server::Unix(path) => options.socket(Some(path.clone())),
        // By default a TCP client switches to the Unix socket.
        Server::Tcp(port) => options
            .ip_or_hostname("127.0.0.1")
            .tcp_port(*port)
            .prefer_socket(false),
    }
}

fn check(row: Option<Row>, key: u64) {
    let row = row.expect("there is such a row");
    let name: &mysql_async::Value = row.as_ref(0).expect("it has a column");
    let mysql_async::Value::Bytes(name) = name else {
        panic!("it is a text");
    };
    assert!(is_name(
        std::str::from_utf8(name).expect("it is UTF-8"),
        key
    ));
}

pub struct Bare {
    conn: Mutex<Conn>,
}

impl Peer for Bare {
    async fn open(server: &Server, _connections: usize) -> Outcome<Self> {
        let conn = Conn::new(Opts::from(options(server))).await?;
        Ok(Bare {
            conn: Mutex::new(conn),
        })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        let mut conn = self.conn.lock().await;
        let statement = conn.prep(SQL).await?;
        for n in 0..count {
            let row: Option<Row> = conn.exec_first(&statement, (key(n),)).await?;
            check(row, key(n));
        }
        Ok(())
    }
}

/// The same with the text, which its statement cache looks up.
pub struct BareByText {
    conn: Mutex<Conn>,
}

impl Peer for BareByText {
    async fn open(server: &Server, _connections: usize) -> Outcome<Self> {
        let conn = Conn::new(Opts::from(options(server))).await?;
        Ok(BareByText {
            conn: Mutex::new(conn),
        })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        let mut conn = self.conn.lock().await;
        for n in 0..count {
            let row: Option<Row> = conn.exec_first(SQL, (key(n),)).await?;
            check(row, key(n));
        }
        Ok(())
    }
}

/// By default the pool resets every returned connection, which discards its prepared statements.
pub struct AsItComes {
    pool: Pool,
}

pub struct WithoutReset {
    pool: Pool,
}

fn pool(server: &Server, connections: usize, reset: bool) -> Outcome<Pool> {
    // The pool closes idle connections above its minimum at once.
    let constraints = PoolConstraints::new(connections, connections).ok_or("so many")?;
    let mut kept = PoolOpts::default().with_constraints(constraints);
    if !reset {
        kept = kept.with_reset_connection(false);
    }
    Ok(Pool::new(options(server).pool_opts(kept)))
}

async fn queries(pool: &Pool, count: u64) -> Outcome<()> {
    for n in 0..count {
        let mut conn = pool.get_conn().await?;
        let row: Option<Row> = conn.exec_first(SQL, (key(n),)).await?;
        check(row, key(n));
    }
    Ok(())
}

impl Peer for AsItComes {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let pool = pool(server, connections, true)?;
        Ok(AsItComes { pool })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        queries(&self.pool, count).await
    }
}

impl Peer for WithoutReset {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let pool = pool(server, connections, false)?;
        Ok(WithoutReset { pool })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        queries(&self.pool, count).await
    }
}
