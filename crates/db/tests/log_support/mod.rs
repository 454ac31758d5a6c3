//! Collects what is logged on this thread.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// The events since it was created, until it is dropped.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _default: DefaultGuard,
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
        let lines = Arc::default();
        let collector = Collector(Arc::clone(&lines));
        Log {
            lines,
            _default: tracing::subscriber::set_default(collector),
        }
    }

    /// Takes the events of this level and target out of the log.
    pub(crate) fn take(&self, level: Level, target: &str) -> Vec<String> {
        let all = std::mem::take(&mut *self.lines.lock().unwrap());
        let wanted = |line: &Line| line.level == level && line.target.starts_with(target);
        all.into_iter()
            .filter(wanted)
            .map(|line| line.text)
            .collect()
    }
}

struct Collector(Arc<Mutex<Vec<Line>>>);

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
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(Line {
            level: *event.metadata().level(),
            target: event.metadata().target(),
            text: fields.0,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
