//! DSNs and options: how they are written and read, and that they show no secret.

mod forms;
mod options;
mod secrets;
