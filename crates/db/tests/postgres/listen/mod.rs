//! `Db::listen`: notifications, and a Gap wherever one may be missing.

mod bounds;
mod channels;
mod ends;
mod faults;
mod guide;
mod hostile;
mod numbers;
mod refused;
mod support;
