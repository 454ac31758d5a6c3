//! A complete driver in one file, for a database of notes that lives in memory.
//!
//! Its language has four words: `ADD ? ?` keeps a number and a text, `LIST` gives them back, `CLEAR`
//! forgets them, `SEVEN` is 7. It has transactions and savepoints, but one user at a time.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use cenote::driver::{
    Batch, BatchBuilder, Begin, BoxFuture, Column, Columns, CommitOutcome, ConnectSettings,
    Connection, Credentials, DatabaseError, Decode, Dialect, Driver, Dsn, Options, Outcome, Param,
    Prepared, Request, Reset, Savepoint, Status, Template, Value,
};
use cenote::{Db, Error, Kind, Result};

type Note = (i64, String);

/// The driver: reads DSNs. Every clone of it is the same database.
#[derive(Clone, Debug, Default)]
struct Notes {
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Driver for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        // Options are taken from the reader one by one; what nobody took is an error.
        dsn.reader(options).finish()?;
        Ok(Arc::new(self.clone()))
    }
}

/// The template: opens connections.
impl Template for Notes {
    fn dialect(&self) -> &'static Dialect {
        &Dialect::ODBC
    }

    fn address(&self) -> String {
        "the notes of this process".to_owned()
    }

    fn connect<'t>(
        &'t self,
        _credentials: Credentials,
        _settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        let connection: Box<dyn Connection> = Box::new(Reader {
            notes: Arc::clone(&self.notes),
            before: Vec::new(),
            unread: None,
        });
        done(Ok(connection))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A connection.
#[derive(Debug)]
struct Reader {
    notes: Arc<Mutex<Vec<Note>>>,
    /// What there was when the transaction was begun, and at each savepoint in it.
    before: Vec<(String, Vec<Note>)>,
    /// What is left of a stream.
    unread: Option<Answer>,
}

/// What a statement gives.
#[derive(Debug)]
struct Answer {
    affected: u64,
    columns: Arc<Columns>,
    notes: Vec<Note>,
}

/// Nothing here has to be waited for, so no future is ever dropped half-way.
fn done<'a, T: Send + 'a>(answer: Result<T>) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(answer))
}

fn refused(state: &str, message: impl Into<String>) -> Error {
    Error::database(DatabaseError::new(message).with_sql_state(state))
}

/// How many parameters a text takes, and what its rows look like.
fn understand(sql: &str) -> Result<Prepared> {
    let (params, columns) = match sql.trim() {
        "ADD ? ?" => (2, vec![]),
        "LIST" => (0, vec![Column::new("id"), Column::new("name")]),
        "CLEAR" => (0, vec![]),
        "SEVEN" => (0, vec![Column::new("seven")]),
        other => return Err(refused("42601", format!("not understood: {other}"))),
    };
    Ok(Prepared::new(params, Columns::new(columns, &Cells)))
}

impl Reader {
    fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&mut self, request: &Request<'_>) -> Result<Answer> {
        let prepared = understand(request.sql)?;
        if request.params.len() != prepared.params {
            let message = format!("{} parameters are needed", prepared.params);
            return Err(Error::new(Kind::Parameters, message));
        }
        let mut answer = Answer {
            affected: 0,
            columns: prepared.columns,
            notes: Vec::new(),
        };
        match (request.sql.trim(), request.params) {
            (
                "ADD ? ?",
                [
                    Param::Value(Value::Int(id)),
                    Param::Value(Value::Text(name)),
                ],
            ) => {
                self.notes().push((*id, name.to_string()));
                answer.affected = 1;
            }
            ("ADD ? ?", _) => return Err(Error::new(Kind::Type, "a number and a text are needed")),
            ("CLEAR", _) => answer.affected = self.notes().drain(..).map(|_| 1).sum(),
            ("SEVEN", _) => answer.notes.push((7, String::new())),
            _ => answer.notes.clone_from(&self.notes()),
        }
        Ok(answer)
    }

    fn back_to(&mut self, depth: usize) -> Result<()> {
        let notes = self.before.drain(depth..).next().map(|(_, notes)| notes);
        *self.notes() = notes.ok_or_else(|| refused("25P01", "there is no transaction"))?;
        Ok(())
    }
}

impl Connection for Reader {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        done(self.execute(&request).and_then(|answer| {
            let mut outcome = Outcome::default();
            outcome.rows_affected = answer.affected;
            if request.rows && !answer.columns.is_empty() {
                outcome.rows = Some(batch(&answer.columns, &answer.notes)?);
            }
            Ok(outcome)
        }))
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        done(sets.iter().try_fold(Outcome::default(), |mut all, set| {
            all.rows_affected += self.execute(&Request::new(sql, set))?.affected;
            Ok(all)
        }))
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        done(understand(sql))
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        done(self.execute(&request).map(|answer| {
            let columns = Arc::clone(&answer.columns);
            self.unread = Some(answer);
            columns
        }))
    }

    fn poll_batch(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let Some(unread) = self
            .unread
            .as_mut()
            .filter(|unread| !unread.notes.is_empty())
        else {
            return Poll::Ready(Ok(None));
        };
        // Never more than a bounded number at once.
        let some = unread.notes.len().min(100);
        let next: Vec<Note> = unread.notes.drain(..some).collect();
        Poll::Ready(batch(&unread.columns, &next).map(Some))
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        self.unread = None;
        done(Ok(()))
    }

    fn begin_with<'c>(
        &'c mut self,
        _begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        if !self.before.is_empty() {
            return done(Err(refused("25001", "there is a transaction already")));
        }
        let notes = self.notes().clone();
        self.before.push((String::new(), notes));
        match first {
            Some(first) => self.run(first),
            None => done(Ok(Outcome::default())),
        }
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        self.before.clear();
        done(Ok(CommitOutcome::Committed))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        done(match self.before.is_empty() {
            true => Ok(()),
            false => self.back_to(0),
        })
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        let (Savepoint::Set(name) | Savepoint::Release(name) | Savepoint::RollBack(name)) = step;
        let depth = self.before.iter().rposition(|(set, _)| set == name);
        done(match (step, depth) {
            (Savepoint::Set(_), _) => {
                let notes = self.notes().clone();
                self.before.push((name.to_owned(), notes));
                Ok(())
            }
            (_, None) => Err(refused("3B001", format!("there is no savepoint {name}"))),
            (Savepoint::Release(_), Some(depth)) => {
                self.before.truncate(depth);
                Ok(())
            }
            (Savepoint::RollBack(_), Some(depth)) => self.back_to(depth),
        })
    }

    fn status(&self) -> Status {
        match self.before.is_empty() {
            true => Status::Idle,
            false => Status::InTransaction,
        }
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        self.end_stream()
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        done(Ok(()))
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        done(Ok(Reset::Done))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        drop(self); // Rolls back, like any drop.
        done(Ok(()))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.rollback());
    }
}

/// Rows keep raw bytes, which are read when somebody asks for them.
struct Cells;

const NUMBER: u8 = 0;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        let wrong = |_| Error::new(Kind::Type, "these are not our bytes");
        match (tag, bytes.try_into()) {
            (NUMBER, Ok(bytes)) => Ok(Value::Int(i64::from_le_bytes(bytes))),
            _ => Ok(Value::Text(Cow::Borrowed(
                str::from_utf8(bytes).map_err(wrong)?,
            ))),
        }
    }
}

fn batch(columns: &Arc<Columns>, notes: &[Note]) -> Result<Batch> {
    let mut rows = BatchBuilder::new(Arc::clone(columns));
    for (id, name) in notes {
        rows.cell(NUMBER, &id.to_le_bytes());
        if columns.len() > 1 {
            rows.cell(NUMBER + 1, name.as_bytes());
        }
        rows.end_row()?;
    }
    Ok(rows.finish())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let db = Db::builder_with(Notes::default(), "notes:")
        .max(1)
        .open()
        .await?;
    db.exec("ADD ? ?", (1, "buy milk")).await?;
    let given_up: Result<()> = db
        .transaction(async || {
            db.exec("ADD ? ?", (2, "buy a cow")).await?;
            Err(Error::other("on second thoughts"))
        })
        .await;
    println!("{}", given_up.expect_err("it was given up"));
    for note in db.query("LIST", ()).await? {
        println!("{}: {}", note.get::<i64>("id")?, note.get::<&str>("name")?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cenote_testkit::suite::{Lack, Subject, Types};

    /// An empty database, what it is to be told, and what it cannot do.
    async fn subject() -> Subject {
        Subject::new(super::Notes::default(), "notes:")
            .expect("the DSN is right")
            .sql(|sql| {
                sql.create = "CLEAR".into();
                sql.insert = "ADD ? ?".into();
                sql.select = "LIST".into();
                sql.delete = "CLEAR".into();
                sql.seven = "SEVEN".into();
                sql.syntax_error = Some("SELECT".into());
                sql.undefined_table = None;
                sql.control = None;
                sql.add_column = None;
                sql.temporary_table = None;
                sql.types = Types::none();
            })
            .lacks(Lack::Constraints)
            .lacks(Lack::Isolation)
            .lacks(Lack::ReadOnly)
            .lacks(Lack::Scripts)
    }

    cenote_testkit::driver_suite!(subject);
}
