//! PDO on [`cenote::Db`]: a handle is a template with a pool behind it, and each coroutine gets its own connection.
//!
//! | file | what is in it |
//! |---|---|
//! | `handle` | a PDO object: opening, calls, transactions, closing |
//! | `stmt` | a PDOStatement |
//! | `owner` | who owns connections: a coroutine, or a handle without a pool |
//! | `functions` | SQL functions of SQLite that are PHP code |
//! | `cell`, `error` | values and errors as PDO reports them |
//! | `settings` | the options of the constructor |
//! | `question_marks` | operators of PostgreSQL in texts with values |
//! | `calls`, `driver_calls` | what C calls |

mod calls;
mod cell;
mod driver_calls;
mod error;
mod functions;
mod handle;
mod owner;
mod question_marks;
mod settings;
mod stmt;

pub(crate) use handle::close_all;
pub(crate) use owner::Owner;
