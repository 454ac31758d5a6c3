//! An open connection, and what can be done with it. Everything here blocks: it runs on the
//! connection's [thread](crate::driver::worker).

use std::sync::Arc;
use std::thread::JoinHandle;

use odbc_api::sys::InfoType;

use super::cancel::Control;
use super::config::Config;
use super::error::{self, Vendor};
use super::execute::gather;
use super::handle::{Bound, Cancel, Dbc, OdbcError, Stmt};
use super::rows::Shape;
use super::transaction::Transaction;
use super::verify::may_change_reading;
use crate::driver::Prepared;
use crate::driver::cache::StatementCache;
use crate::driver::worker;
use crate::sql::{self, Class, Dialect, Statements, TransactionVerb};
use crate::{Error, Kind, Result};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    /// Dropped before the connection, which needs them to be gone.
    pub(super) kept: StatementCache<Stmt>,
    /// Statements that are not used again, and are not freed before the connection is: see [`discard`](Session::discard).
    pub(super) retired: Vec<Stmt>,
    /// What cancels a statement, if it cannot be that itself.
    bell: Option<Stmt>,
    pub(super) connection: Dbc,
    pub(super) config: Arc<Config>,
    control: Control,
    pub(super) can: Can,
    pub(super) transaction: Transaction,
    /// A statement's text had transaction control in it: from then on nobody can tell whether
    /// there is a transaction.
    pub(super) doubtful: bool,
    /// The last call may have changed the session.
    pub(super) changed: bool,
    /// The text that runs may change what others mean: it is not kept.
    pub(super) unsettles: bool,
    /// Such a text has run in the transaction that is open: its end may take the change back.
    pub(super) unsettled: bool,
    /// A text may have changed how the session reads texts: the next one asks.
    pub(super) is_reading_unsure: bool,
    /// The setting by which texts or rows would be misread.
    pub(super) misread: Option<String>,
    /// The other side has gone.
    pub(super) broken: bool,
}

/// What the driver says that it can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Can {
    pub(super) vendor: Vendor,
    /// To run several statements in one text.
    pub(super) batches: bool,
    pub(super) transactions: bool,
    /// To commit in one statement with a condition, as MariaDB can.
    pub(super) commits_if: bool,
    /// A CREATE or DROP commits the transaction that it is in.
    pub(super) ddl_commits: bool,
    /// The levels of isolation, as ODBC counts them: a bit for each.
    pub(super) isolation: u32,
}

/// Of `SQL_TXN_CAPABLE`.
const NO_TRANSACTIONS: u32 = 0;
const DDL_COMMITS: u32 = 3;

impl Can {
    fn of(connection: &Dbc) -> Self {
        let capable = connection.info(InfoType::TransactionCapable);
        Can {
            vendor: Vendor::of(&connection.system_name()),
            batches: connection.info(InfoType::BatchSupport).unwrap_or(0) != 0,
            transactions: capable.is_none_or(|capable| capable != NO_TRANSACTIONS),
            commits_if: false,
            ddl_commits: capable == Some(DDL_COMMITS),
            isolation: connection
                .info(InfoType::TransactionIsolationProtocol)
                .unwrap_or(0),
        }
    }
}

/// A statement to run, borrowing nothing.
pub(super) struct Order {
    pub(super) sql: String,
    pub(super) params: Vec<Bound>,
    pub(super) script: bool,
    pub(super) cache: bool,
    pub(super) rows: bool,
}

impl Session {
    pub(super) fn new(
        connection: Dbc,
        config: Arc<Config>,
        control: Control,
        statement_cache: usize,
    ) -> Result<Self> {
        let can = Can::of(&connection);
        // SQLite's ODBC driver does not see that a table has changed under a statement.
        let statement_cache = match can.vendor {
            Vendor::Sqlite => 0,
            _ => statement_cache,
        };
        let mut session = Session {
            kept: StatementCache::new(statement_cache),
            retired: Vec::new(),
            bell: None,
            can,
            connection,
            config,
            control,
            transaction: Transaction::default(),
            doubtful: false,
            changed: false,
            unsettles: false,
            unsettled: false,
            is_reading_unsure: false,
            misread: None,
            broken: false,
        };
        // The data source may have it otherwise.
        session.connection.set_autocommit(true).map_err(|error| {
            let error = error::from_odbc(session.can.vendor, error);
            let message = format!("cannot connect to {}: {error}", session.config.shown);
            error.wrapped(Kind::Connect, message)
        })?;
        // Its cancel interrupts the whole connection, and frees what the statement that it is called
        // for holds: under the feet of the thread that runs it.
        if can.vendor == Vendor::Sqlite {
            session.bell = Some(session.statement()?);
        }
        session.verify_new()?;
        Ok(session)
    }

    /// What a driver has said, and what follows from it: a transaction in which anything goes wrong
    /// has failed, because some databases roll it back then, and none can be asked.
    pub(super) fn told(&mut self, error: OdbcError) -> Error {
        let error = error::from_odbc(self.can.vendor, error);
        self.transaction.fail();
        let lost = error.kind() == Kind::ConnectionLost;
        if !lost && !self.connection.is_dead() {
            return error;
        }
        self.broken = true;
        match lost {
            true => error,
            false => {
                let message = format!("the connection was lost: {}", error.message());
                error.wrapped(Kind::ConnectionLost, message)
            }
        }
    }

    /// How the database reads SQL, as far as that is known.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.can.vendor.dialect().unwrap_or(self.config.dialect)
    }

    /// A text is about to be run: refuses what the transaction does not allow, and notes what it may
    /// do to it.
    pub(super) fn check(&mut self, sql: &str) -> Result<Class> {
        self.changed = false;
        let class = sql::plan(self.config.dialect, sql)?.class;
        self.transaction.check(&class)?;
        self.check_reading()?;
        let in_ours = self.transaction.is_open()
            && matches!(
                class.transaction,
                Some(
                    TransactionVerb::Savepoint
                        | TransactionVerb::Release
                        | TransactionVerb::RollbackTo
                )
            );
        if class.contains_transaction_control && !in_ours {
            self.doubtful = true;
            self.changed = true;
        }
        let seen = match std::ptr::eq(self.dialect(), self.config.dialect) {
            true => None,
            false => Some(sql::class(self.dialect(), sql)),
        };
        if let Some(seen) = &seen {
            self.look_behind_quotes(seen, &class)?;
        }
        self.unsettles = self.may_unsettle(sql, &class)
            || seen.is_some_and(|seen| self.may_unsettle(sql, &seen));
        if self.unsettles {
            self.forget_kept();
            self.unsettled = self.transaction.is_open();
            self.is_reading_unsure = may_change_reading(sql);
        }
        Ok(class)
    }

    /// Where the dialect was not named, quotes of the database's own can hide statements.
    fn look_behind_quotes(&mut self, seen: &Class, class: &Class) -> Result<()> {
        if seen.statements == Statements::Several && class.statements != Statements::Several {
            self.transaction.check(seen)?;
            self.changed = true;
        }
        if seen.contains_transaction_control && !class.contains_transaction_control {
            self.changed = true;
            self.doubtful = true;
            // If it was COMMIT, what follows would be in another one.
            self.transaction.fail();
        }
        Ok(())
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        self.changed = false;
        self.unsettles = false;
        self.transaction.check_not_failed()?;
        self.check_reading()?;
        let (mut statement, was_kept) = self.prepared(sql)?;
        let mut described = Shape::of(&mut statement);
        if was_kept && described.is_err() {
            // Not all drivers can tell of one that has been run and closed.
            statement = self.prepare_anew(sql)?;
            described = Shape::of(&mut statement);
        }
        let shape = described.map_err(|error| self.told(error))?;
        let params = statement.params().unwrap_or(0);
        self.keep_text(sql, statement);
        Ok(Prepared::new(usize::from(params), shape.columns))
    }

    /// A word with the database, to see that it answers.
    pub(super) fn ping(&mut self) -> Result<()> {
        if self.transaction.check_not_failed().is_err() {
            // Nothing can be run in it; but the driver may know.
            return match self.connection.is_dead() {
                true => Err(worker::lost()),
                false => Ok(()),
            };
        }
        let ping = self.config.ping.clone();
        self.uncancelled(&ping)
    }

    /// Runs a text that nobody cancels.
    pub(super) fn uncancelled(&mut self, sql: &str) -> Result<()> {
        let mut statement = self.statement()?;
        let done = statement.execute(Cancel::NEVER, Some(sql), &[]);
        done.and_then(|()| gather(&mut statement, Cancel::NEVER, false, true))
            .map(drop)
            .map_err(|error| self.told(error))
    }

    pub(super) fn statement(&mut self) -> Result<Stmt> {
        let made = self.connection.statement();
        let mut statement = made.map_err(|error| self.told(error))?;
        if self.config.query_timeout > 0 {
            // One that cannot be limited is limited by the layer all the same.
            let _ = statement.set_timeout(self.config.query_timeout);
        }
        Ok(statement)
    }

    /// How the statement that runs next is cancelled.
    pub(super) fn cancel(&self) -> Cancel<'_> {
        match self.config.cancel {
            true => self.control.cancel_by(self.bell.as_ref()),
            false => Cancel::NEVER,
        }
    }

    pub(super) fn check_not_cancelled(&mut self) -> Result<()> {
        if !self.control.is_cancelled() {
            return Ok(());
        }
        self.transaction.fail();
        Err(error::cancelled())
    }

    /// A row that cannot be kept is an error of ours; everything else is the driver's.
    pub(super) fn outcome<T>(&mut self, done: Result<Result<T>, OdbcError>) -> Result<T> {
        done.map_err(|error| self.told(error))?
    }
}

impl worker::Session for Session {
    type Control = Control;

    const THREAD: &'static str = "cenote-odbc";

    fn close(mut self) -> Result<()> {
        drop((self.kept.take_all(), std::mem::take(&mut self.retired)));
        self.bell = None;
        let vendor = self.can.vendor;
        let was_broken = self.broken;
        match self.connection.close() {
            Err(error) if !was_broken => Err(error::from_odbc(vendor, error)),
            _ => Ok(()),
        }
    }

    fn leave(control: &Control, thread: JoinHandle<()>) {
        control.leave(thread);
    }
}
