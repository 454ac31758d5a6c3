#!/usr/bin/env bash
#
# Requests a second of the shop in examples/shop, beside the same service on sqlx: a point read, an
# order, and both mixed (of ten requests one is an order). Builds the programs, runs them in turn, prints the medians and the ratio; and the processor's
# time that a request takes the server, which depends less on what else the machine does.
#
#     bench/web.sh [--check] [--normal] [ROUNDS [CONNECTIONS [SECONDS]]]      default: 5, 32, 3
#
# --check   fails if the ratio of requests is below 2 for reads or for the mixture; orders alone are shown
# --normal  `synchronous` NORMAL for both, so that an order does not wait for the disk; default: FULL
#
# Each round starts each server with a new temporary file on a free loopback port, and
# loads it from a second process.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
check=false
synchronous=full
while [[ "${1:-}" == --* ]]; do
    case "$1" in
    --check) check=true ;;
    --normal) synchronous=normal ;;
    *) echo "web.sh: there is no option $1; use --check or --normal" >&2 && exit 2 ;;
    esac
    shift
done
rounds="${1:-5}"
connections="${2:-32}"
seconds="${3:-3}"
results="$(mktemp)"
trap 'rm -f "$results"' EXIT

# The target directory: beside the manifest, or the caller's CARGO_TARGET_DIR.
target() {
    echo "${CARGO_TARGET_DIR:-$1/target}/release"
}

for program in web web-sqlx; do
    cargo build --release --quiet --manifest-path "$program/Cargo.toml"
done
# load NAME PACKAGE ROUTE
load() {
    "$(target web)/load" "$1" "$3" "$connections" "$seconds" "$(target "$2")/cenote-bench-$2" "$synchronous" >>"$results"
}

for ((round = 1; round <= rounds; round++)); do
    for route in read mixed order; do
        load cenote web "$route"
        load sqlx web-sqlx "$route"
    done
done

# median NAME COLUMN
median() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$results" | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'
}

short=false
printf '%-26s %10s %10s %8s\n' "median of $rounds" cenote sqlx ratio
for route in read mixed order; do
    cenote="$(median "cenote-$route" 2)"
    sqlx="$(median "sqlx-$route" 2)"
    times="$(ratio "$cenote" "$sqlx")"
    printf '%-26s %10s %10s %8s\n' "$route: requests/s" "$cenote" "$sqlx" "$times"
    if [[ "$route" != order ]] && awk -v times="$times" 'BEGIN { exit !(times < 2) }'; then
        short=true
    fi
    cenote="$(median "cenote-$route" 3)"
    sqlx="$(median "sqlx-$route" 3)"
    printf '%-26s %10s %10s %8s\n' "$route: processor, us" "$cenote" "$sqlx" "$(ratio "$sqlx" "$cenote")"
done
if "$check" && "$short"; then
    echo "less than twice the requests of sqlx" >&2
    exit 1
fi
