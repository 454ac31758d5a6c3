//! The server: sessions over TCP, line by line.
//!
//! ```text
//! server: HELLO  id  key                   after connecting
//! client: RUN  text  parameter ...         any number of them, without waiting
//! client: DESCRIBE  text
//! server: COLUMNS  name ...                if it has rows
//! server: ROW  field ...
//! server: DONE  affected  status           the end of an answer; of DESCRIBE, with the number of parameters
//! server: FAILED  sqlstate  status  message
//!
//! client: CANCEL  id  key  number          on another connection: requests up to this number
//! ```
//!
//! The status is `idle` or `open`: whether the session has a transaction, after that request.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::line;
use crate::store::{Answer, Refusal, Session, Store, describe};

/// A notebook server without logins. Dropping it closes its sessions.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Starts a server without notes on a free loopback port.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing listens.
    ///
    /// # Errors
    ///
    /// If the server cannot listen on a port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener));
        Ok(Server {
            address,
            _tasks: tasks,
        })
    }

    /// Returns the DSN of this server.
    pub fn dsn(&self) -> String {
        format!(
            "notebook:host={};port={}",
            self.address.ip(),
            self.address.port()
        )
    }
}

/// The sessions that a client can cancel: their keys, and the last request cancelled.
type Sessions = Mutex<HashMap<String, (String, watch::Sender<u64>)>>;

#[derive(Debug, Default)]
struct Shared {
    store: Arc<Store>,
    sessions: Sessions,
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, (String, watch::Sender<u64>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self, fields: &[Option<String>]) {
        let [_, Some(id), Some(key), Some(number)] = fields else {
            return;
        };
        let sessions = self.sessions();
        let session = sessions.get(id).filter(|(right, _)| right == key);
        if let (Some((_, cancelled)), Ok(number)) = (session, number.parse()) {
            cancelled.send_replace(number);
        }
    }
}

async fn listen(listener: TcpListener) {
    let shared = Arc::new(Shared::default());
    let mut clients = JoinSet::new();
    for id in 1_u64.. {
        while clients.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        clients.spawn(client(Arc::clone(&shared), stream, id.to_string()));
    }
}

async fn client(shared: Arc<Shared>, stream: TcpStream, id: String) {
    let _ = stream.set_nodelay(true);
    // The key need not be secret: this server has no logins.
    let key = format!("key-{id}");
    let (cancel, cancelled) = watch::channel(0);
    shared.sessions().insert(id.clone(), (key.clone(), cancel));
    let (read, write) = stream.into_split();
    let mut talk = Talk {
        read: BufReader::new(read),
        write: BufWriter::new(write),
        cancelled,
    };
    // The session ends when the client disconnects, which rolls back its transaction.
    let _ = talk.serve(&shared, &id, &key).await;
    shared.sessions().remove(&id);
}

/// The two directions of a connection.
struct Talk {
    read: BufReader<OwnedReadHalf>,
    write: BufWriter<OwnedWriteHalf>,
    cancelled: watch::Receiver<u64>,
}

impl Talk {
    async fn serve(&mut self, shared: &Shared, id: &str, key: &str) -> io::Result<()> {
        self.say(&[Some("HELLO"), Some(id), Some(key)]).await?;
        self.write.flush().await?;
        let mut session = Session::new(&shared.store);
        let mut text = String::new();
        for number in 1.. {
            text.clear();
            if self.read.read_line(&mut text).await? == 0 {
                return Ok(());
            }
            let fields = line::read(text.trim_end_matches('\n'));
            let what = fields.first().and_then(Option::as_deref);
            let sql = fields.get(1).and_then(Option::as_deref).unwrap_or_default();
            let done = match what {
                Some("CANCEL") => {
                    shared.cancel(&fields);
                    return Ok(());
                }
                Some("DESCRIBE") => described(sql),
                Some("RUN") if sql == "WAIT" => self.wait(number).await?,
                Some("RUN") => session.run(sql, &fields[2..]),
                _ => Err((
                    "08P01",
                    "this is not how one talks to a notebook".to_owned(),
                )),
            };
            let status = match session.is_open() {
                true => "open",
                false => "idle",
            };
            self.answer(done, status).await?;
            if self.read.buffer().is_empty() {
                self.write.flush().await?;
            }
        }
        Ok(())
    }

    /// Waits until the request is cancelled or the client disconnects.
    async fn wait(&mut self, number: u64) -> io::Result<Result<Answer, Refusal>> {
        self.write.flush().await?;
        tokio::select! {
            _ = self.cancelled.wait_for(|cancelled| *cancelled >= number) => {}
            _ = gone(&mut self.read) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        Ok(Err(("57014", "cancelled".to_owned())))
    }

    async fn answer(&mut self, done: Result<Answer, Refusal>, status: &str) -> io::Result<()> {
        let answer = match done {
            Ok(answer) => answer,
            Err((state, message)) => {
                let fields = [Some("FAILED"), Some(state), Some(status), Some(&*message)];
                return self.say(&fields).await;
            }
        };
        if !answer.columns.is_empty() {
            let names = answer.columns.iter().map(|name| Some(*name));
            let fields: Vec<_> = std::iter::once(Some("COLUMNS")).chain(names).collect();
            self.say(&fields).await?;
        }
        for row in &answer.rows {
            let cells = row.iter().map(|cell| Some(cell.as_str()));
            let fields: Vec<_> = std::iter::once(Some("ROW")).chain(cells).collect();
            self.say(&fields).await?;
        }
        let affected = answer.affected.to_string();
        self.say(&[Some("DONE"), Some(&*affected), Some(status)])
            .await
    }

    async fn say(&mut self, fields: &[Option<&str>]) -> io::Result<()> {
        self.write.write_all(line::write(fields).as_bytes()).await
    }
}

/// Waits until the client disconnects. Does not consume what the client has sent.
async fn gone(read: &mut BufReader<OwnedReadHalf>) {
    while read.fill_buf().await.is_ok_and(|sent| !sent.is_empty()) {
        // Unread input hides a disconnect, so there is nothing more to check.
        std::future::pending::<()>().await;
    }
}

fn described(sql: &str) -> Result<Answer, Refusal> {
    let (params, columns) = describe(sql)?;
    Ok(Answer {
        columns,
        affected: u64::try_from(params).unwrap_or(u64::MAX),
        rows: Vec::new(),
    })
}
