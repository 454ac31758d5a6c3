//! Reads on a replica of MariaDB: what they see, where they run, and what happens when the replica fails.

mod failures;
mod hostile;
mod logs;
mod places;
mod scripted;
mod stale;

use crate::servers::replicas::{FOREVER, Pair, is_replica, is_used, read, write};
