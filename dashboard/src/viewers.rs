//! The streams of open pages, and the body of a response.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::LONGEST_STREAM;
use crate::recorder::{Recorder, lock};
use crate::snapshot;

/// How many pages can be open at a time. One more ends the stream that was not read for longest.
pub(crate) const MOST: usize = 16;

/// The open streams of a page.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    closed: bool,
    /// Number and last read of each stream.
    list: Vec<(u64, Instant)>,
}

impl Viewers {
    fn enter(&self) -> u64 {
        let mut open = lock(&self.open);
        if open.list.len() == MOST {
            let oldest = (0..MOST).min_by_key(|&at| open.list[at].1);
            open.list.swap_remove(oldest.unwrap_or(0));
        }
        let number = open.next;
        open.next += 1;
        open.list.push((number, Instant::now()));
        number
    }

    /// Notes that a stream is read. Returns `false` if it has to end.
    fn reads(&self, number: u64) -> bool {
        let mut open = lock(&self.open);
        if open.closed {
            return false;
        }
        let found = open.list.iter_mut().find(|(of, _)| *of == number);
        found.map(|found| found.1 = Instant::now()).is_some()
    }

    fn leave(&self, number: u64) {
        lock(&self.open).list.retain(|(of, _)| *of != number);
    }

    /// Ends all streams, now and later.
    pub(crate) fn close(&self) {
        lock(&self.open).closed = true;
    }

    /// Returns the number of open streams.
    pub(crate) fn count(&self) -> usize {
        lock(&self.open).list.len()
    }
}

/// The body of a response: a file of the page, or a stream of events.
pub struct Body(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Body").finish_non_exhaustive()
    }
}

impl Body {
    /// Returns a body without content.
    pub fn empty() -> Self {
        Body(Inner::Whole(None))
    }

    pub(crate) fn whole(content: impl Into<Bytes>) -> Self {
        Body(Inner::Whole(Some(content.into())))
    }

    /// A stream of events, from second number `since` on. It holds the recorder weakly: an open page keeps nothing alive.
    pub(crate) fn stream(
        recorder: &Arc<Recorder>,
        viewers: &Arc<Viewers>,
        boot: u64,
        since: u64,
    ) -> Self {
        Body(Inner::Stream(Box::new(Stream {
            number: viewers.enter(),
            viewers: Arc::clone(viewers),
            recorder: Arc::downgrade(recorder),
            began: Instant::now(),
            boot,
            since,
            next: Next::Now(recorder.seconds()),
        })))
    }
}

struct Stream {
    number: u64,
    viewers: Arc<Viewers>,
    recorder: Weak<Recorder>,
    began: Instant,
    boot: u64,
    /// The number of the first second that was not sent.
    since: u64,
    next: Next,
}

/// When the next event is sent.
enum Next {
    Now(watch::Receiver<u64>),
    Later(Pin<Box<dyn Future<Output = Option<watch::Receiver<u64>>> + Send>>),
    Never,
}

impl Stream {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Next::Later(later) = &mut self.next {
            match later.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(receiver)) => self.next = Next::Now(receiver),
                Poll::Ready(None) => self.next = Next::Never,
            }
        }
        let Next::Now(mut receiver) = std::mem::replace(&mut self.next, Next::Never) else {
            return Poll::Ready(None);
        };
        let is_over = self.began.elapsed() >= LONGEST_STREAM || !self.viewers.reads(self.number);
        let Some(recorder) = self.recorder.upgrade().filter(|_| !is_over) else {
            return Poll::Ready(None);
        };
        // What follows is written when it is read: a slow reader gets fewer and larger events.
        receiver.mark_unchanged();
        let event = self.event(&recorder);
        self.next = Next::Later(Box::pin(async move {
            receiver.changed().await.ok()?;
            Some(receiver)
        }));
        Poll::Ready(Some(event))
    }

    fn event(&mut self, recorder: &Recorder) -> Bytes {
        let mut data = String::with_capacity(4096);
        let next = snapshot::write(recorder, self.since, &mut data);
        let first = match self.since {
            // The browser waits this long before it connects again.
            0 => "retry: 1000\n",
            _ => "",
        };
        self.since = next;
        Bytes::from(format!(
            "{first}id: {:x}-{next}\ndata: {data}\n\n",
            self.boot
        ))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.viewers.leave(self.number);
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut self.0 {
            Inner::Whole(content) => Poll::Ready(content.take()),
            Inner::Stream(stream) => stream.poll_event(cx),
        };
        data.map(|data| data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(content) => {
                let length = content.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
