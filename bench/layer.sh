#!/usr/bin/env bash
#
# What a call through Db costs beside the same call on the bare driver connection, and beside
# sqlx. Builds both programs, runs them in turn, prints the medians.
#
#     bench/layer.sh [ROUNDS]      default: 7
#
# Runs on one core if taskset exists: each SQLite connection has a thread, and a switch to another core costs 10 to
# 50 us at random, far more than the layer.
#
# Fails if an un-pinned call costs more than 1 us over the bare driver, or a call in a
# transaction more than 0.5 us.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
rounds="${1:-7}"
results="$(mktemp)"
trap 'rm -f "$results"' EXIT

for program in layer layer-sqlx; do
    cargo build --release --quiet --manifest-path "$program/Cargo.toml"
done
one_core=()
if command -v taskset >/dev/null; then
    one_core=(taskset -c 0)
fi
for ((round = 1; round <= rounds; round++)); do
    "${one_core[@]}" layer/target/release/cenote-bench-layer >>"$results"
    "${one_core[@]}" layer-sqlx/target/release/cenote-bench-layer-sqlx >>"$results"
done

median() {
    awk -v name="$1" '$1 == name { print $2 }' "$results" | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

printf '%-26s %10s %12s\n' "ns a call, median of $rounds" "" "over bare"
for driver in null sqlite sqlx; do
    bare="$(median "$driver-bare")"
    printf '%-26s %10d\n' "$driver-bare" "$bare"
    for name in unpinned in-scope pool in-transaction; do
        value="$(median "$driver-$name")"
        [[ -z "$value" ]] || printf '%-26s %10d %+12d\n' "$driver-$name" "$value" "$((value - bare))"
    done
done

for driver in null sqlite; do
    bare="$(median "$driver-bare")"
    if (($(median "$driver-unpinned") - bare > 1000)); then
        echo "an un-pinned call costs more than 1 us over $driver" >&2
        exit 1
    fi
    if (($(median "$driver-in-transaction") - bare > 500)); then
        echo "a call in a transaction costs more than 0.5 us over $driver" >&2
        exit 1
    fi
done
