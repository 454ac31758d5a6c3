#!/usr/bin/env bash
#
# What a manager of deadpool or bb8 costs on cenote-pool and on its own pool: the time of a checkout, in one run,
# and its instructions under callgrind. Fails if a checkout with one task costs more than half of its own pool's.
#
#     bench/adapters.sh                  times and instructions, about 30 seconds
#     bench/adapters.sh --instructions   instructions only
#
# Instructions: two runs of 10,000 and 20,000 checkouts, polled by hand; the difference divided by 10,000.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cargo build --quiet --release --locked --manifest-path adapters/Cargo.toml
program="${CARGO_TARGET_DIR:-adapters/target}/release/adapters-bench"
[[ "${1:-}" == --instructions ]] || "$program"

command -v valgrind >/dev/null || {
    echo "adapters.sh: valgrind is missing, so no instructions are counted" >&2
    exit 1
}
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

total() {
    valgrind --tool=callgrind --callgrind-out-file="$scratch/out" "$program" "$1" "$2" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        exit 1
    }
    awk '$1 == "totals:" { print $2 }' "$scratch/out"
}

count() {
    local few many
    few="$(total "$1" 10000)"
    many="$(total "$1" 20000)"
    echo $(((many - few) / 10000))
}

printf '\n| manager | instructions on its own pool | on cenote-pool |\n|---|---|---|\n'
for name in deadpool bb8; do
    own="$(count "$name")"
    ours="$(count "$name-on-cenote")"
    echo "| $name | $own | $ours |"
done
