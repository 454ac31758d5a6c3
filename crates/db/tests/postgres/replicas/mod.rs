//! Reads on a replica: what they see, where they run, and what happens when the replica fails.

mod failures;
mod observed;
mod places;
mod stale;
mod tokens;

use crate::servers::replicas::{FOREVER, Pair, is_replica, is_used, read, write};

/// Says whether a replica has answered.
const IS_REPLICA: &str = "SELECT pg_is_in_recovery()";
