//! What a hostile reader of the PostgreSQL driver has tried on it.

mod copies;
mod drops;
mod kept;
mod money;
mod params;
mod pooler;
mod raw;
mod session;
mod streams;
mod values;
