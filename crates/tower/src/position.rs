//! The header that carries what a client has written from a response to its next requests.

use std::fmt;

use cenote::{Db, Position};
use http::{HeaderMap, HeaderName, HeaderValue};
use tower_layer::Layer;

use crate::coroutine::CoroutineService;

/// The name of the header: `cenote-position`.
pub const POSITION_HEADER: HeaderName = HeaderName::from_static("cenote-position");

/// Runs each HTTP request in a coroutine, as [`CoroutineLayer`] does, and carries the [position](Db::position) of its writes in the
/// header [`POSITION_HEADER`]: [`CoroutineLayer::position_header`] makes it.
///
/// A client that sends the header of the last response with its next request reads its own writes there, also through
/// [`Db::reading`], and also on another machine. A response has the header if the request has written something or had the header. A
/// request without it reads what a replica has.
///
/// The value comes from the client, so nothing depends on it but where reads run: a forged or damaged one sends the reads of its
/// request to the primary. It names the database cluster and a position in its log. Do not show it where that is a secret.
///
/// Writes that a response body makes while it is sent come too late for the header.
///
/// [`CoroutineLayer`]: crate::CoroutineLayer
/// [`CoroutineLayer::position_header`]: crate::CoroutineLayer::position_header
#[derive(Clone)]
pub struct PositionLayer {
    db: Db,
}

impl PositionLayer {
    pub(crate) fn new(db: Db) -> Self {
        PositionLayer { db }
    }
}

impl<S> Layer<S> for PositionLayer {
    type Service = CoroutineService<S>;

    fn layer(&self, inner: S) -> CoroutineService<S> {
        CoroutineService {
            inner,
            positions: Some(self.db.clone()),
        }
    }
}

impl fmt::Debug for PositionLayer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PositionLayer")
            .field("db", &self.db)
            .finish()
    }
}

/// Has the reads of the running coroutine see what the client has written.
pub(crate) fn take(db: &Db, request: &HeaderMap) {
    let mut values = request.get_all(POSITION_HEADER).iter();
    let Some(value) = values.next() else {
        return;
    };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    // Nobody knows what the client has written if the header was damaged: then the primary answers.
    let position = text.and_then(|text| text.parse().ok());
    db.read_after(position.unwrap_or_else(Position::unknown));
}

/// Adds what the running coroutine has written.
pub(crate) fn add(db: &Db, response: &mut HeaderMap) {
    let position = db.position().map(|position| position.to_string());
    if let Some(value) = position.and_then(|text| HeaderValue::try_from(text).ok()) {
        response.insert(POSITION_HEADER, value);
    }
}
