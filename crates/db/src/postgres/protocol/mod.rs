//! PostgreSQL's protocol: what we say, what the server says, where a message ends, and what a call gathers. Nothing
//! here does I/O.
//!
//! | file | what is in it |
//! |---|---|
//! | `frontend`, `message` | what we say; what the server says |
//! | `inbox` | where a message ends |
//! | `unanswered`, `answer` | what the server has yet to answer; what a call gathers of the answer |
//! | `scram`, `base64` | the proof of a password |

pub(super) mod answer;
mod base64;
pub(super) mod frontend;
pub(super) mod inbox;
pub(super) mod message;
pub(super) mod scram;
pub(super) mod unanswered;
