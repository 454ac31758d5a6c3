//! The errors of the shop, and their HTTP status.

use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cenote::Kind;
use serde::Serialize;

/// The result of handlers and of the repository.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// Not found: 404.
    NotFound(&'static str),
    /// The stock of this product is too small: 409.
    OutOfStock {
        /// The product.
        product: i64,
    },
    /// Already exists: 409.
    Duplicate(&'static str),
    /// The request is invalid: 422.
    Invalid(&'static str),
    /// The database failed: 503 if a retry may succeed, else 500.
    Database(cenote::Error),
}

impl From<cenote::Error> for Error {
    fn from(error: cenote::Error) -> Self {
        Error::Database(error)
    }
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::OutOfStock { .. } | Error::Duplicate(_) => StatusCode::CONFLICT,
            Error::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Database(error) if may_pass(error) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Whether a retry may succeed: the acquire timed out, or another transaction conflicted.
fn may_pass(error: &cenote::Error) -> bool {
    matches!(
        error.kind(),
        Kind::Timeout | Kind::Unavailable | Kind::Connect | Kind::Closed
    ) || error.is_retryable()
}

#[derive(Serialize)]
struct Problem {
    error: String,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        let error = match &self {
            // The database's message goes to the log, not to clients.
            Error::Database(error) => {
                tracing::error!(status = status.as_u16(), "{error}");
                match status {
                    StatusCode::SERVICE_UNAVAILABLE => "busy, please try again".to_owned(),
                    _ => "internal error".to_owned(),
                }
            }
            own => own.to_string(),
        };
        let mut response = (status, Json(Problem { error })).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let one_second = HeaderValue::from_static("1");
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, one_second);
        }
        response
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound(what) => write!(out, "there is no such {what}"),
            Error::OutOfStock { product } => {
                write!(out, "there are not enough of product {product}")
            }
            Error::Duplicate(what) => write!(out, "there is such a {what} already"),
            Error::Invalid(why) => out.write_str(why),
            Error::Database(_) => out.write_str("the database failed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Database(error) => Some(error),
            _ => None,
        }
    }
}
