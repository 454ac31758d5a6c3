//! What users can see: events, status, histograms, and the log.

pub(crate) mod console;
pub(crate) mod events;
pub(crate) mod histogram;
pub(crate) mod log;
pub(crate) mod status;
pub(crate) mod text;
