//! Collects what is logged on this thread.
//!
//! One subscriber serves the whole program: `tracing` caches for each line whether somebody listens, and subscribers of
//! single threads that come and go beside each other race for that cache.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// The events of this thread while it has a [`Log`].
    static LINES: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
    /// The spans of this thread while it has a [`Log`].
    static SPANS: RefCell<Option<Spans>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Spans {
    all: Vec<SpanLine>,
    /// The spans that are entered, the innermost last.
    entered: Vec<u64>,
}

/// A span of the layer, with all its fields as text.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every program looks at spans")]
pub(crate) struct SpanLine {
    id: u64,
    references: usize,
    pub(crate) name: &'static str,
    /// The name of the span around it.
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: BTreeMap<String, String>,
}

#[allow(dead_code, reason = "not every program looks at spans")]
impl SpanLine {
    pub(crate) fn is_closed(&self) -> bool {
        self.references == 0
    }

    /// Returns a field; empty if it was not recorded.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
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
        SPANS.set(Some(Spans::default()));
        Log {
            _not_send: PhantomData,
        }
    }

    /// Takes the spans of the layer out of the log, the oldest first. No span may be entered now.
    #[allow(dead_code, reason = "not every program looks at spans")]
    pub(crate) fn take_spans(&self) -> Vec<SpanLine> {
        let spans = SPANS.replace(Some(Spans::default())).unwrap_or_default();
        assert!(spans.entered.is_empty(), "a span stayed entered");
        spans.all
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
        SPANS.set(None);
    }
}

struct Collector;

struct Fields(String);

struct SpanFields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for SpanFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.to_string(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.to_string(), value.to_owned());
    }
}

/// Changes a span of this thread, if it is one of the layer.
fn with_span(id: &Id, change: impl FnOnce(&mut SpanLine)) -> bool {
    SPANS.with_borrow_mut(|spans| {
        let spans = spans.iter_mut().flat_map(|spans| &mut spans.all);
        let mut found = spans.filter(|span| span.id == id.into_u64());
        found.next().map(change).is_some()
    })
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let metadata = attributes.metadata();
        SPANS.with_borrow_mut(|spans| {
            let Some(spans) = spans
                .as_mut()
                .filter(|_| metadata.target() == "cenote::span")
            else {
                return;
            };
            let around = spans.entered.last();
            let parent = spans.all.iter().find(|span| Some(&span.id) == around);
            let mut line = SpanLine {
                id,
                references: 1,
                name: metadata.name(),
                parent: parent.map(|span| span.name),
                fields: BTreeMap::new(),
            };
            attributes.record(&mut SpanFields(&mut line.fields));
            spans.all.push(line);
        });
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        with_span(id, |span| {
            assert!(!span.is_closed(), "recorded after its end");
            values.record(&mut SpanFields(&mut span.fields));
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        with_span(id, |span| span.references += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut is_closed = false;
        with_span(&id, |span| {
            span.references -= 1;
            is_closed = span.is_closed();
        });
        is_closed
    }

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

    fn enter(&self, id: &Id) {
        if with_span(id, |_| {}) {
            SPANS.with_borrow_mut(|spans| {
                let spans = spans.as_mut().expect("it was here a moment ago");
                spans.entered.push(id.into_u64());
            });
        }
    }

    fn exit(&self, id: &Id) {
        if with_span(id, |_| {}) {
            SPANS.with_borrow_mut(|spans| {
                let spans = spans.as_mut().expect("it was here a moment ago");
                let left = spans.entered.pop();
                assert_eq!(
                    left,
                    Some(id.into_u64()),
                    "left in another order than entered"
                );
            });
        }
    }
}
