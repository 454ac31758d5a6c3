//! PostgreSQL's protocol, without I/O.
//!
//! | file | what is in it |
//! |---|---|
//! | `frontend`, `message` | messages to the server; messages from the server |
//! | `inbox` | splits received bytes into messages |
//! | `unanswered`, `answer` | which answers the server still owes; what a call collects from them |
//! | `heard` | what a message means on a connection that listens |
//! | `scram`, `hmac`, `base64` | the SCRAM login, and what it is made of |

pub(super) mod answer;
pub(super) mod base64;
pub(super) mod frontend;
pub(super) mod heard;
pub(super) mod hmac;
pub(super) mod inbox;
pub(super) mod message;
pub(super) mod scram;
pub(super) mod unanswered;
