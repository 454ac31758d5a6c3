//! Things that once went wrong, and must not again: each test says in its comment what it was.

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
