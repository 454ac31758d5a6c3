//! An open connection. Everything here blocks: it runs on the connection's [thread](crate::driver::worker).

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
    /// Dropped before the connection, which can only be closed without them.
    pub(super) kept: StatementCache<Stmt>,
    /// Statements that are not used again, but freed only with the connection: see [`discard`](Session::discard).
    pub(super) retired: Vec<Stmt>,
    /// An idle statement through which others are cancelled, if the driver needs it.
    proxy: Option<Stmt>,
    pub(super) connection: Dbc,
    pub(super) config: Arc<Config>,
    control: Control,
    pub(super) can: Can,
    pub(super) transaction: Transaction,
    /// A text contained transaction control: from then on it is unknown whether a transaction is open.
    pub(super) doubtful: bool,
    /// The last call may have changed the session.
    pub(super) changed: bool,
    /// The running text may change the meaning of others: nothing is cached.
    pub(super) unsettles: bool,
    /// Such a text has run in the open transaction: its end may undo the change.
    pub(super) unsettled: bool,
    /// A text may have changed how the session reads texts: the next call checks that.
    pub(super) is_reading_unsure: bool,
    /// The setting under which texts or rows would be misread.
    pub(super) misread: Option<String>,
    /// The connection is lost.
    pub(super) broken: bool,
}

/// The driver's capabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Can {
    pub(super) vendor: Vendor,
    /// Runs several statements in one text.
    pub(super) batches: bool,
    pub(super) transactions: bool,
    /// Commits under a condition in one statement, as MariaDB can.
    pub(super) commits_if: bool,
    /// A CREATE or DROP commits the transaction that it is in.
    pub(super) ddl_commits: bool,
    /// The isolation levels: one of ODBC's bits for each.
    pub(super) isolation: u32,
}

/// A value of `SQL_TXN_CAPABLE`.
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

/// A request without borrowed data, for the thread.
pub(super) struct OwnedRequest {
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
        // SQLite's ODBC driver does not notice that a statement's table has changed.
        let statement_cache = match can.vendor {
            Vendor::Sqlite => 0,
            _ => statement_cache,
        };
        let mut session = Session {
            kept: StatementCache::new(statement_cache),
            retired: Vec::new(),
            proxy: None,
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
        // The data source may have another default.
        session.connection.set_autocommit(true).map_err(|error| {
            let error = error::from_odbc(session.can.vendor, error);
            let message = format!("cannot connect to {}: {error}", session.config.shown);
            error.wrapped(Kind::Connect, message)
        })?;
        // Its cancel interrupts the whole connection, and frees memory of the cancelled statement while
        // another thread runs it.
        if can.vendor == Vendor::Sqlite {
            session.proxy = Some(session.statement()?);
        }
        session.verify_new()?;
        Ok(session)
    }

    /// Converts an error of the driver, and fails the open transaction: some databases have rolled it back, and ODBC
    /// does not report that.
    pub(super) fn note_failure(&mut self, error: OdbcError) -> Error {
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

    /// Returns the database's dialect, if it is known, otherwise the configured one.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.can.vendor.dialect().unwrap_or(self.config.dialect)
    }

    /// Checks a text before it runs: refuses what the transaction does not allow, and notes what the text may change.
    pub(super) fn check(&mut self, sql: &str) -> Result<Class> {
        self.changed = false;
        let class = sql::cached_scan(self.config.dialect, sql)?.class;
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
            self.check_hidden_statements(seen, &class)?;
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

    /// Checks for statements that the configured dialect does not see, because the database has other quotes.
    fn check_hidden_statements(&mut self, seen: &Class, class: &Class) -> Result<()> {
        if seen.statements == Statements::Several && class.statements != Statements::Several {
            self.transaction.check(seen)?;
            self.changed = true;
        }
        if seen.contains_transaction_control && !class.contains_transaction_control {
            self.changed = true;
            self.doubtful = true;
            // If it was COMMIT, later statements would run in another transaction.
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
            // Some drivers cannot describe a statement that has been run and closed.
            statement = self.prepare_anew(sql)?;
            described = Shape::of(&mut statement);
        }
        let shape = described.map_err(|error| self.note_failure(error))?;
        let params = statement.params().unwrap_or(0);
        self.keep_text(sql, statement);
        Ok(Prepared::new(usize::from(params), shape.columns))
    }

    /// Checks that the database answers.
    pub(super) fn ping(&mut self) -> Result<()> {
        if self.transaction.check_not_failed().is_err() {
            // A failed transaction runs no statement, but the driver may know.
            return match self.connection.is_dead() {
                true => Err(worker::lost()),
                false => Ok(()),
            };
        }
        let ping = self.config.ping.clone();
        self.uncancelled(&ping)
    }

    /// Runs a text that cannot be cancelled.
    pub(super) fn uncancelled(&mut self, sql: &str) -> Result<()> {
        let mut statement = self.statement()?;
        let done = statement.execute(Cancel::NEVER, Some(sql), &[]);
        done.and_then(|()| gather(&mut statement, Cancel::NEVER, false, true))
            .map(drop)
            .map_err(|error| self.note_failure(error))
    }

    pub(super) fn statement(&mut self) -> Result<Stmt> {
        let made = self.connection.statement();
        let mut statement = made.map_err(|error| self.note_failure(error))?;
        if self.config.query_timeout > 0 {
            // If the driver has no limit, the layer's limit applies.
            let _ = statement.set_timeout(self.config.query_timeout);
        }
        Ok(statement)
    }

    /// Returns how the next statement is cancelled.
    pub(super) fn cancel(&self) -> Cancel<'_> {
        match self.config.cancel {
            true => self.control.cancel_by(self.proxy.as_ref()),
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

    /// Converts the result of a run: the inner error is the client's own, the outer one the driver's.
    pub(super) fn outcome<T>(&mut self, done: Result<Result<T>, OdbcError>) -> Result<T> {
        done.map_err(|error| self.note_failure(error))?
    }
}

impl worker::Session for Session {
    type Control = Control;

    const THREAD: &'static str = "cenote-odbc";

    fn close(mut self) -> Result<()> {
        drop((self.kept.take_all(), std::mem::take(&mut self.retired)));
        self.proxy = None;
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
