//! SQL functions of SQLite that are PHP code.
//!
//! SQLite calls them on the thread of a connection. That thread sends the call to the PHP thread and waits; the PHP
//! thread serves it while it waits for the connection.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use cenote::driver::Value;
use cenote::sqlite::{Arguments, Sqlite};
use cenote::{Error, Kind};

use crate::engine::{Call, Exception, Value as PhpValue, Zval};
use crate::scheduler::scheduler;
use crate::wake::RunQueue;

/// The PHP functions of one handle, and the state of aggregates.
#[derive(Default)]
pub(crate) struct Callables {
    calls: RefCell<Vec<Rc<Call>>>,
    states: RefCell<HashMap<u64, State>>,
    names: RefCell<Vec<(String, i64)>>,
    serving: Cell<u32>,
    refused: Cell<bool>,
    exception: RefCell<Option<Exception>>,
}

/// An aggregate in the middle of its rows.
struct State {
    context: PhpValue,
    rows: i64,
}

thread_local! {
    static CALLABLES: RefCell<HashMap<u64, std::rc::Weak<Callables>>> = RefCell::default();
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

/// The way from a thread of SQLite to the functions of a handle.
#[derive(Clone)]
pub(crate) struct Remote {
    callables: u64,
    queue: Arc<RunQueue>,
}

/// What a thread of SQLite wants.
enum Wanted {
    /// A function with these arguments.
    Function(usize),
    /// The next row of an aggregate.
    Step(usize, u64),
    /// The result of an aggregate.
    Finish(usize, u64),
}

type Answer = Result<Value<'static>, String>;

impl Callables {
    /// Makes the functions reachable from threads of SQLite.
    pub(crate) fn remote(self: &Rc<Self>) -> Remote {
        let callables = NEXT.get();
        NEXT.set(callables + 1);
        CALLABLES.with_borrow_mut(|all| {
            all.retain(|_, callables| callables.strong_count() > 0);
            all.insert(callables, Rc::downgrade(self))
        });
        Remote {
            callables,
            queue: scheduler().queue(),
        }
    }

    /// Keeps a PHP function. Returns its place.
    pub(crate) fn add(&self, call: Call) -> usize {
        let mut calls = self.calls.borrow_mut();
        calls.push(Rc::new(call));
        calls.len() - 1
    }

    /// Notes a name. Returns whether it is new for this number of arguments.
    pub(crate) fn note_name(&self, name: &str, arguments: i64) -> bool {
        let mut names = self.names.borrow_mut();
        let name = name.to_ascii_lowercase();
        if names
            .iter()
            .any(|(known, of)| *known == name && *of == arguments)
        {
            return false;
        }
        names.push((name, arguments));
        true
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get() > 0
    }

    /// Answers no call any more.
    pub(crate) fn refuse(&self) {
        self.refused.set(true);
        let states = self.states.take();
        drop(states);
    }

    pub(crate) fn take_exception(&self) -> Option<Exception> {
        self.exception.borrow_mut().take()
    }

    /// Reports the PHP functions to the garbage collector.
    pub(crate) fn report_to_gc(&self, gc: &crate::engine::Gc) {
        for call in &*self.calls.borrow() {
            gc.call(call);
        }
    }

    fn serve(&self, wanted: &Wanted, arguments: Vec<Value<'static>>) -> Answer {
        if self.refused.get() || scheduler().is_over() {
            return Err("the request has ended".to_owned());
        }
        self.serving.set(self.serving.get() + 1);
        let answer = match *wanted {
            Wanted::Function(at) => self
                .run(at, php_values(arguments))
                .map(|value| neutral(&value)),
            Wanted::Step(at, state) => self.step(at, state, arguments),
            Wanted::Finish(at, state) => self.finish(at, state),
        };
        self.serving.set(self.serving.get() - 1);
        answer
    }

    fn step(&self, at: usize, state: u64, arguments: Vec<Value<'static>>) -> Answer {
        let before = self.states.borrow_mut().remove(&state);
        let before = before.unwrap_or_else(|| State {
            context: PhpValue::null(),
            rows: 0,
        });
        let rows = before.rows + 1;
        let mut all = vec![before.context, php_value(&Value::Int(rows))];
        all.extend(php_values(arguments));
        let context = self.run(at, all)?;
        let after = State { context, rows };
        let old = self.states.borrow_mut().insert(state, after);
        drop(old);
        Ok(Value::Null)
    }

    fn finish(&self, at: usize, state: u64) -> Answer {
        let last = self.states.borrow_mut().remove(&state);
        let (context, rows) = match last {
            Some(last) => (last.context, last.rows),
            None => (PhpValue::null(), 0),
        };
        let rows = php_value(&Value::Int(rows));
        self.run(at, vec![context, rows])
            .map(|value| neutral(&value))
    }

    fn run(&self, at: usize, arguments: Vec<PhpValue>) -> Result<PhpValue, String> {
        let call = self.calls.borrow().get(at).map(Rc::clone);
        let Some(call) = call else {
            return Err("the function is gone".to_owned());
        };
        let bound = call.with_all(&arguments);
        drop(arguments);
        match bound.run_blocked() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(exception)) => {
                let old = self.exception.replace(Some(exception));
                drop(old);
                Err("the function threw an exception".to_owned())
            }
            Err(bailout) => {
                scheduler().note_bailout(bailout);
                Err("the function ended with a fatal error".to_owned())
            }
        }
    }
}

impl Remote {
    /// Has the PHP thread serve a call, and waits for the answer.
    fn ask(
        &self,
        wanted: Wanted,
        arguments: Vec<Value<'static>>,
    ) -> cenote::Result<Value<'static>> {
        let (reply, answer) = mpsc::channel();
        let callables = self.callables;
        self.queue.push_call(Box::new(move || {
            let known =
                CALLABLES.with_borrow(|all| all.get(&callables).and_then(std::rc::Weak::upgrade));
            let answer = match known {
                Some(callables) => callables.serve(&wanted, arguments),
                None => Err("the handle is gone".to_owned()),
            };
            // The statement was given up.
            drop(reply.send(answer));
        }));
        match answer.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(wrong)) => Err(Error::new(Kind::Other, wrong)),
            Err(_) => Err(Error::new(Kind::Other, "the request has ended")),
        }
    }

    pub(crate) fn function(
        self,
        name: &str,
        arguments: i64,
        deterministic: bool,
        at: usize,
    ) -> Sqlite {
        let call = move |given: &Arguments<'_>| self.ask(Wanted::Function(at), owned(given)?);
        match u8::try_from(arguments) {
            Ok(arguments) => Sqlite::new().function(name, arguments, deterministic, call),
            Err(_) => Sqlite::new().variadic_function(name, deterministic, call),
        }
    }

    pub(crate) fn aggregate(
        self,
        name: &str,
        arguments: i64,
        step: usize,
        finish: usize,
    ) -> Sqlite {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        // Relaxed: the numbers only have to differ.
        static STATES: AtomicU64 = AtomicU64::new(1);
        let init = || STATES.fetch_add(1, Relaxed);
        let (stepping, finishing) = (self.clone(), self);
        let next = move |state: &mut u64, given: &Arguments<'_>| {
            stepping
                .ask(Wanted::Step(step, *state), owned(given)?)
                .map(drop)
        };
        let last = move |state: u64| finishing.ask(Wanted::Finish(finish, state), Vec::new());
        match u8::try_from(arguments) {
            Ok(arguments) => Sqlite::new().aggregate(name, arguments, false, init, next, last),
            Err(_) => Sqlite::new().variadic_aggregate(name, false, init, next, last),
        }
    }

    pub(crate) fn collation(self, name: &str, at: usize) -> Sqlite {
        Sqlite::new().collation(name, move |one, other| {
            let texts = vec![
                Value::Text(one.to_owned().into()),
                Value::Text(other.to_owned().into()),
            ];
            match self.ask(Wanted::Function(at), texts) {
                Ok(Value::Int(order)) => order.cmp(&0),
                Ok(Value::Float(order)) => order.partial_cmp(&0.0).unwrap_or(Ordering::Equal),
                // The exception, if there was one, is thrown when the statement has ended.
                _ => Ordering::Equal,
            }
        })
    }
}

fn owned(given: &Arguments<'_>) -> cenote::Result<Vec<Value<'static>>> {
    (0..given.len())
        .map(|at| Ok(given.get::<Value<'_>>(at)?.into_owned()))
        .collect()
}

fn php_values(values: Vec<Value<'static>>) -> Vec<PhpValue> {
    values.iter().map(php_value).collect()
}

fn php_value(value: &Value<'_>) -> PhpValue {
    match value {
        Value::Int(number) => PhpValue::from_raw(Zval::int(*number)),
        Value::Float(number) => PhpValue::from_raw(Zval::double(*number)),
        Value::Text(text) => PhpValue::string(text.as_bytes()),
        Value::Bytes(bytes) => PhpValue::string(bytes),
        _ => PhpValue::null(),
    }
}

/// Returns a result of PHP code for SQLite.
fn neutral(value: &PhpValue) -> Value<'static> {
    match value.scalar() {
        crate::engine::Scalar::Null => Value::Null,
        crate::engine::Scalar::Int(number) => Value::Int(number),
        crate::engine::Scalar::Double(number) => Value::Float(number),
        crate::engine::Scalar::String(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Value::Text(text.into()),
            Err(error) => Value::Bytes(error.into_bytes().into()),
        },
    }
}
