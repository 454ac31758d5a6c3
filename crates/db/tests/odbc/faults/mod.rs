//! ODBC at its worst: logins that fail, drivers that are not there, servers that go, statements that
//! never end. Each is a typed error, and the pool is whole afterwards.

mod lost;
mod mariadb;
mod never_ending;
mod unreachable;
