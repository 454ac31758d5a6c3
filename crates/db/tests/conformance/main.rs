//! Behaviour of the handle.

mod support;

mod bindings;
mod errors;
mod handle;
