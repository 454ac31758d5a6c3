//! The way to a server: which one, the bytes there and back, in the clear or by TLS.
//!
//! | file | what is in it |
//! |---|---|
//! | `hosts` | which server, and the time that each may take |
//! | `socket`, `plain` | the byte stream; one in the clear that is watched for answers only |
//! | `tls`, `channel_binding` | encryption, and what a login through it is tied to |

mod channel_binding;
pub(super) mod hosts;
#[cfg(unix)]
mod read_watched_stream;
pub(super) mod socket;
pub(super) mod tls;
