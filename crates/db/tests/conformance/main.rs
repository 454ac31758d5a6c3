//! Behaviour of the handle.

mod support;

mod bindings;
mod errors;
mod closing;
mod connections;
mod coroutines;
mod escaped;
mod deadlocks;
mod doomed;
mod fail_closed;
mod frames;
mod handle;
mod limits;
mod session;
mod statements;
mod streams;
mod transactions;
