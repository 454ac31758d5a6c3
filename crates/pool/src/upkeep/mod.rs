//! Background work and changes to all resources: maintenance, replacing, evicting, closing.

pub(crate) mod alarm;
pub(crate) mod close;
pub(crate) mod maintenance;
pub(crate) mod replace;
pub(crate) mod retain;
pub(crate) mod slow_acquires;
