//! PDO on [`cenote::Db`]: a handle is a template with a pool behind it, and each coroutine gets its own connection.
//!
//! | file | what is in it |
//! |---|---|
//! | `handle` | a PDO object: opening, calls, transactions, closing |
//! | `stmt` | a PDOStatement |
//! | `owner` | who owns connections: a coroutine, or a handle without a pool |
//! | `functions` | SQL functions of SQLite that are PHP code |
//! | `cell`, `error` | values and errors as PDO reports them |
//! | `calls` | what C calls |

mod calls;
mod cell;
mod error;
mod functions;
mod handle;
mod owner;
mod stmt;

pub(crate) use handle::close_all;
pub(crate) use owner::Owner;
