#!/usr/bin/env bash
#
# What a call through Db costs beside the same call on the bare driver connection, and beside
# sqlx. Builds both programs, runs them in turn, prints the medians.
#
#     bench/layer.sh [ROUNDS]      default: 7
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
for ((round = 1; round <= rounds; round++)); do
    layer/target/release/cenote-bench-layer >>"$results"
    layer-sqlx/target/release/cenote-bench-layer-sqlx >>"$results"
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

over() {
    echo $(($(median "null-$1") - $(median null-bare)))
}
(($(over unpinned) <= 1000)) || { echo "an un-pinned call costs more than 1 us" >&2; exit 1; }
(($(over in-transaction) <= 500)) || { echo "a call in a transaction costs more than 0.5 us" >&2; exit 1; }
