#!/usr/bin/env bash
#
# How long writes are out after a promotion: Db beside deadpool-postgres and sqlx, each on a PostgreSQL primary with two
# standbys of its own, whose primary is killed, switched over in order, and frozen.
#
#     bench/failover.sh [ROUNDS]          default: 5, about 15 minutes
#
# It needs the programs of PostgreSQL (Debian: postgresql), which it finds as `cenote chaos --cluster` does.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
target="${CARGO_TARGET_DIR:-$PWD/failover/target}"
CARGO_TARGET_DIR="$target" cargo build --release --quiet --manifest-path failover/Cargo.toml
exec "$target/release/cenote-bench-failover" "${1:-5}"
