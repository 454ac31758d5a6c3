//! The network: which server, and the byte stream to it, with or without TLS.
//!
//! | file | what is in it |
//! |---|---|
//! | `hosts`, `role` | tries servers and addresses, each within its time limit; asks a server what it is |
//! | `socket`, `read_watched_stream` | the byte stream; an unencrypted one whose executor watches for reads only |
//! | `tls`, `verify` | the TLS negotiation; verifies the server's certificate |
//! | `client_certificate`, `encrypted_key`, `der` | the client's certificate and key |
//! | `channel_binding` | binds a login to the TLS connection |

mod channel_binding;
pub(super) mod client_certificate;
mod der;
mod encrypted_key;
pub(super) mod hosts;
#[cfg(unix)]
mod read_watched_stream;
pub(super) mod role;
pub(super) mod socket;
pub(super) mod tls;
pub(super) mod verify;
