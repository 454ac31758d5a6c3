#!/usr/bin/env bash
#
# exec_many beside what one would write by hand: a prepared statement of rusqlite in one transaction, and multi-row VALUES with
# tokio-postgres and mysql_async. 200,000 rows of 5 columns; the ways run in turn, medians.
#
#     bench/bulk.sh [ROUNDS [ROWS]]      default: 7 rounds, 200000 rows
#
# It starts the servers that it needs (ci/postgres.sh, ci/mariadb.sh). WITHOUT_MARIADB=1 leaves MariaDB out, which takes the longest.
#
# Fails if a goal is missed: SQLite 1.3 times rusqlite in time or in processor time, PostgreSQL 1.5 times multi-row VALUES in time.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"

if [[ -z "${CENOTE_TEST_POSTGRES:-}" ]]; then
    cargo build --release --quiet --manifest-path bulk/Cargo.toml
    exec ../ci/postgres.sh run -- "$script" "$@"
fi
if [[ -z "${CENOTE_TEST_MARIADB:-}" && -z "${WITHOUT_MARIADB:-}" ]]; then
    exec ../ci/mariadb.sh run -- "$script" "$@"
fi
exec "${CARGO_TARGET_DIR:-bulk/target}/release/cenote-bench-bulk" "$@"
