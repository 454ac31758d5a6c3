//! What the scanner reads in SQL: placeholders, classes of statements, effects on the session.

mod class;
mod placeholders;
mod properties;
mod session;
mod support;
