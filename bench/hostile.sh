#!/usr/bin/env bash
#
# Who starves and who hangs under hostile schedules: cenote-pool, deadpool and bb8, scenario by scenario.
# Prints the table of docs/guarantees.md. Takes about two minutes: a pool that hangs is killed after 12 s.
#
#     bench/hostile.sh

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/hostile"
cargo run --release --quiet
