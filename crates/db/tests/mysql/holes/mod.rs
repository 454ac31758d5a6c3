//! Holes that a hostile reading of the driver of MySQL and MariaDB has found, each with the test that keeps it closed.

mod charsets;
mod kept;
mod login;
mod statements;
