//! What the pool does in the background and all at once: maintenance, replacing, closing.

pub(crate) mod alarm;
pub(crate) mod close;
pub(crate) mod maintenance;
pub(crate) mod replace;
pub(crate) mod retain;
