//! Collects what is logged on this thread.
//!
//! One subscriber serves the whole program: `tracing` caches for each line whether somebody listens, and subscribers of
//! single threads that come and go beside each other race for that cache.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// The events of this thread while it has a [`Log`].
    static LINES: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// The events of this thread since it was created, until it is dropped. A thread has one at a time.
pub(crate) struct Log {
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

/// One event: its level, its target, and all its fields as text.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) target: &'static str,
    pub(crate) text: String,
}

impl Log {
    pub(crate) fn new() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
        LINES.set(Some(Vec::new()));
        Log {
            _not_send: PhantomData,
        }
    }

    /// Takes the events of this level and target out of the log.
    pub(crate) fn take(&self, level: Level, target: &str) -> Vec<String> {
        let all = LINES.replace(Some(Vec::new())).unwrap_or_default();
        let wanted = |line: &Line| line.level == level && line.target.starts_with(target);
        all.into_iter()
            .filter(wanted)
            .map(|line| line.text)
            .collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct Collector;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        LINES.with_borrow_mut(|lines| {
            let Some(lines) = lines else {
                return;
            };
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            lines.push(Line {
                level: *event.metadata().level(),
                target: event.metadata().target(),
                text: fields.0,
            });
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
