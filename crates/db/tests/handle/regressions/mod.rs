//! Former defects: the comment of each test says what went wrong.

mod support;

mod closing;
mod commits;
mod deadlocks;
mod hosts;
mod lazy;
mod limits;
mod outside;
mod pins;
mod raw;
mod savepoints;
mod sessions;
mod statements;
mod streams;
mod undo;
mod waiting;
