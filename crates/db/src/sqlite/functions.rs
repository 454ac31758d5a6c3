//! Functions, aggregates and collations of the application, registered on every connection.

use std::cmp::Ordering;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering as AtomicOrdering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::Value as SqlValue;

use super::cancel::Control;
use super::types::{from_sqlite, value_to_sqlite};
use crate::types::value::{FromValue, Value};
use crate::{Error, Kind, Result};

/// The arguments of a call of an SQL function.
///
/// ```
/// use cenote::sqlite::Sqlite;
///
/// let driver = Sqlite::new().function("area", 2, true, |args| {
///     Ok(args.get::<f64>(0)? * args.get::<f64>(1)?)
/// });
/// ```
pub struct Arguments<'c> {
    context: &'c Context<'c>,
}

impl Arguments<'_> {
    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.context.len()
    }

    /// Returns whether the call has no arguments.
    pub fn is_empty(&self) -> bool {
        self.context.is_empty()
    }

    /// Returns the argument at this position, from 0. A [`Value`] takes an argument of any type.
    ///
    /// # Errors
    ///
    /// [`Kind::Parameters`] if there is no such argument, [`Kind::Type`] if it has another type.
    pub fn get<'a, T: FromValue<'a>>(&'a self, position: usize) -> Result<T> {
        if position >= self.len() {
            let message = format!(
                "there is no argument {position}: the function was called with {}",
                self.len()
            );
            return Err(Error::new(Kind::Parameters, message));
        }
        let value = from_sqlite(self.context.get_raw(position))?;
        T::from_value(value)
            .map_err(|error| Error::new(Kind::Type, format!("argument {position}: {error}")))
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = (0..self.len()).map(|n| self.get::<Value<'_>>(n));
        out.debug_list().entries(values).finish()
    }
}

/// The number of arguments that a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arity {
    Exactly(u8),
    Any,
}

impl Arity {
    fn to_sqlite(self) -> i32 {
        match self {
            Arity::Exactly(arguments) => i32::from(arguments),
            Arity::Any => -1,
        }
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arity::Exactly(1) => out.write_str("1 argument"),
            Arity::Exactly(arguments) => write!(out, "{arguments} arguments"),
            Arity::Any => out.write_str("any number of arguments"),
        }
    }
}

/// Registers one function, aggregate or collation on a connection.
type Register = Arc<dyn Fn(&rusqlite::Connection, &Alarm) -> rusqlite::Result<()> + Send + Sync>;

/// All functions, aggregates and collations of a driver.
#[derive(Clone, Default)]
pub(super) struct Functions {
    functions: Vec<(String, Arity, Register)>,
    collations: Vec<(String, Register)>,
    /// The first error in a registration.
    wrong: Option<Error>,
}

impl Functions {
    pub(super) fn scalar<F, R>(
        &mut self,
        name: &str,
        arguments: Option<u8>,
        deterministic: bool,
        function: F,
    ) where
        F: Fn(&Arguments<'_>) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        let arity = arguments.map_or(Arity::Any, Arity::Exactly);
        let function = Arc::new(function);
        let called = name.to_owned();
        let register: Register = Arc::new(move |db, alarm| {
            let function = Arc::clone(&function);
            let alarm = alarm.clone();
            let call = move |context: &Context<'_>| {
                alarm.check_on_thread()?;
                let answer = function(&Arguments { context }).map_err(to_sqlite_error)?;
                to_sqlite_value(answer.into())
            };
            db.create_scalar_function(
                called.as_str(),
                arity.to_sqlite(),
                flags(deterministic),
                call,
            )
        });
        self.add_function(name, arity, register);
    }

    pub(super) fn aggregate<A, I, S, F, R>(
        &mut self,
        name: &str,
        arguments: Option<u8>,
        deterministic: bool,
        steps: Steps<I, S, F>,
    ) where
        A: Send + 'static,
        I: Fn() -> A + Send + Sync + 'static,
        S: Fn(&mut A, &Arguments<'_>) -> Result<()> + Send + Sync + 'static,
        F: Fn(A) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        let arity = arguments.map_or(Arity::Any, Arity::Exactly);
        let steps = Arc::new(steps);
        let called = name.to_owned();
        let register: Register = Arc::new(move |db, alarm| {
            let aggregate = Shared {
                steps: Arc::clone(&steps),
                alarm: alarm.clone(),
            };
            db.create_aggregate_function(
                called.as_str(),
                arity.to_sqlite(),
                flags(deterministic),
                aggregate,
            )
        });
        self.add_function(name, arity, register);
    }

    pub(super) fn collation<F>(&mut self, name: &str, compare: F)
    where
        F: Fn(&str, &str) -> Ordering + Send + Sync + 'static,
    {
        if self.collations.iter().any(|(known, _)| same(known, name)) {
            self.is_wrong(format!("the collation {name} is registered twice"));
        }
        self.check_name("collation", name);
        let compare = Arc::new(compare);
        let called = name.to_owned();
        let register: Register = Arc::new(move |db, alarm| {
            let compare = Arc::clone(&compare);
            let alarm = alarm.clone();
            let interrupt = db.get_interrupt_handle();
            let own_name = called.clone();
            db.create_collation(called.as_str(), move |one: &str, other: &str| {
                if alarm.check_on_thread().is_err() {
                    return Ordering::Equal;
                }
                let ordered = catch_unwind(AssertUnwindSafe(|| compare(one, other)));
                ordered.unwrap_or_else(|_panic| {
                    // SQLite takes no error from a collation. So this stops the statement, and the
                    // session finds the reason in the alarm.
                    alarm.raise(&own_name);
                    interrupt.interrupt();
                    Ordering::Equal
                })
            })
        });
        self.collations.push((name.to_owned(), register));
    }

    fn add_function(&mut self, name: &str, arity: Arity, register: Register) {
        let is_known =
            |(known, of, _): &(String, Arity, Register)| *of == arity && same(known, name);
        if self.functions.iter().any(is_known) {
            self.is_wrong(format!(
                "the function {name} with {arity} is registered twice"
            ));
        }
        self.check_name("function", name);
        self.functions.push((name.to_owned(), arity, register));
    }

    fn check_name(&mut self, what: &str, name: &str) {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            self.is_wrong(format!(
                "the name of a {what} has 1 to {LONGEST_NAME} bytes and no NUL: {name:?}"
            ));
        }
    }

    fn is_wrong(&mut self, message: String) {
        self.wrong
            .get_or_insert_with(|| Error::new(Kind::Config, message));
    }

    /// Checks the registrations.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for the first one that was made twice or has an impossible name.
    pub(super) fn check(&self) -> Result<()> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// Returns whether nothing is registered.
    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.collations.is_empty()
    }

    /// Registers all of them on a connection.
    pub(super) fn register(
        &self,
        db: &rusqlite::Connection,
        control: &Arc<Control>,
    ) -> rusqlite::Result<Alarm> {
        let alarm = Alarm {
            control: Arc::clone(control),
            used: Arc::default(),
            collation: Arc::default(),
        };
        self.register_on(db, &alarm)?;
        Ok(alarm)
    }

    /// Registers all of them on a connection that has an alarm.
    pub(super) fn register_on(
        &self,
        db: &rusqlite::Connection,
        alarm: &Alarm,
    ) -> rusqlite::Result<()> {
        let functions = self.functions.iter().map(|(_, _, register)| register);
        let collations = self.collations.iter().map(|(_, register)| register);
        for register in functions.chain(collations) {
            register(db, alarm)?;
        }
        Ok(())
    }
}

/// SQLite's limit for names, in bytes.
const LONGEST_NAME: usize = 255;

impl fmt::Debug for Functions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions = self.functions.iter().map(|(name, arity, _)| (name, arity));
        let collations = self.collations.iter().map(|(name, _)| name);
        out.debug_struct("Functions")
            .field("functions", &functions.collect::<Vec<_>>())
            .field("collations", &collations.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Compares names as SQLite does, ignoring case.
fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn flags(deterministic: bool) -> FunctionFlags {
    let mut flags = FunctionFlags::SQLITE_UTF8;
    flags.set(FunctionFlags::SQLITE_DETERMINISTIC, deterministic);
    flags
}

fn to_sqlite_error(error: Error) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(error.into())
}

fn to_sqlite_value(value: Value<'static>) -> rusqlite::Result<SqlValue> {
    value_to_sqlite(&value).map_err(|wrong| to_sqlite_error(Error::new(Kind::Type, wrong)))
}

/// The three parts of an aggregate.
pub(super) struct Steps<I, S, F> {
    pub(super) init: I,
    pub(super) step: S,
    pub(super) finish: F,
}

/// An aggregate that all connections of a driver share.
struct Shared<I, S, F> {
    steps: Arc<Steps<I, S, F>>,
    alarm: Alarm,
}

/// An aggregate's state. After a panic it is dropped and never used.
type Gathered<A> = AssertUnwindSafe<A>;

impl<A, I, S, F, R> Aggregate<Gathered<A>, SqlValue> for Shared<I, S, F>
where
    I: Fn() -> A,
    S: Fn(&mut A, &Arguments<'_>) -> Result<()>,
    F: Fn(A) -> Result<R>,
    R: Into<Value<'static>>,
{
    fn init(&self, _context: &mut Context<'_>) -> rusqlite::Result<Gathered<A>> {
        self.alarm.check_on_thread()?;
        Ok(AssertUnwindSafe((self.steps.init)()))
    }

    fn step(&self, context: &mut Context<'_>, gathered: &mut Gathered<A>) -> rusqlite::Result<()> {
        self.alarm.check_on_thread()?;
        (self.steps.step)(gathered, &Arguments { context }).map_err(to_sqlite_error)
    }

    fn finalize(
        &self,
        _context: &mut Context<'_>,
        gathered: Option<Gathered<A>>,
    ) -> rusqlite::Result<SqlValue> {
        self.alarm.check_on_thread()?;
        // Without rows there was no step, and no state.
        let gathered = gathered.map_or_else(&self.steps.init, |gathered| gathered.0);
        let answer = (self.steps.finish)(gathered).map_err(to_sqlite_error)?;
        to_sqlite_value(answer.into())
    }
}

/// How the functions and collations of a connection report to its session.
#[derive(Clone, Debug)]
pub(super) struct Alarm {
    control: Arc<Control>,
    /// A function or collation was called.
    used: Arc<AtomicBool>,
    /// The name of a collation that panicked.
    collation: Arc<Mutex<Option<String>>>,
}

impl Alarm {
    /// Stops an inline call: the application's code may take any time, so the call runs again on the
    /// connection's thread.
    fn check_on_thread(&self) -> rusqlite::Result<()> {
        // Relaxed: the thread that runs the call reads the flag itself.
        self.used.store(true, AtomicOrdering::Relaxed);
        match self.control.keeps_off() {
            true => Err(to_sqlite_error(Error::new(Kind::Busy, "not in place"))),
            false => Ok(()),
        }
    }

    /// Returns whether a function or collation was called since the last call of this.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, AtomicOrdering::Relaxed)
    }

    fn raise(&self, collation: &str) {
        let mut raised = self
            .collation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        raised.get_or_insert_with(|| collation.to_owned());
    }

    pub(super) fn take(&self) -> Option<String> {
        let mut raised = self
            .collation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        raised.take()
    }
}
