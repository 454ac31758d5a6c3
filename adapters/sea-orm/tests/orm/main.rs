//! SeaORM on a `Db`, against PostgreSQL and MariaDB. Run by `ci/test.sh adapters`, or
//! `ci/postgres.sh run -- ci/mariadb.sh run -- cargo test` in `adapters/`.

// What the derive macros of SeaORM write is public and has no documentation.
#![allow(missing_docs, unreachable_pub)]

mod entities;
mod errors;
mod proxy;
mod queries;
mod support;
mod transactions;
