#!/usr/bin/env bash
#
# Requests a second of the reads of examples/shop on PostgreSQL: one product by its number, and twenty, each with a query of
# its own. The peers take turns in one run on one machine, over a Unix socket; the figures are medians.
#
#     bench/web-postgres.sh [ROUNDS [CLIENTS [SECONDS]]]      default: 5, 64, 3
#
# | peer | |
# |---|---|
# | lanes | the unchanged shop with shared connections |
# | cenote | the unchanged shop |
# | deadpool | the same on deadpool-postgres; twenty products with twenty futures on one client, which pipelines them |
# | deadpool-in-turn | twenty products with one query after the other |
# | threads | the same on one tokio-postgres client a thread, which all requests of the thread share |
#
# It starts a server of its own (ci/postgres.sh). That server, the programs and the load share the machine. Fails if a
# required goal is missed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"

# The target directory: beside the manifest, or the caller's CARGO_TARGET_DIR.
target() {
    echo "${CARGO_TARGET_DIR:-$PWD/$1/target}/release"
}
program="$(target web-postgres)/cenote-bench-web-postgres"

if [[ -z "${CENOTE_TEST_POSTGRES_SOCKETS:-}" ]]; then
    for package in web web-postgres; do
        cargo build --release --quiet --manifest-path "$package/Cargo.toml"
    done
    exec ../ci/postgres.sh run -- "$script" "$@"
fi

rounds="${1:-5}"
clients="${2:-64}"
seconds="${3:-3}"
results="$(mktemp)"
trap 'rm -f "$results"' EXIT
missed=0

export BENCH_HOST="$CENOTE_TEST_POSTGRES_SOCKETS" BENCH_PORT="$CENOTE_TEST_POSTGRES_PORT"
"$program" setup

# measure PEER CONNECTIONS ROUTE
measure() {
    "$(target web)/load" "$1-$2" "$3" "$clients" "$seconds" "$program" "$1" "$2" >>"$results"
}

for ((round = 1; round <= rounds; round++)); do
    for route in read twenty; do
        for peer in lanes cenote deadpool; do
            measure "$peer" 8 "$route"
        done
        [[ "$route" == read ]] || measure deadpool-in-turn 8 "$route"
        for peer in lanes threads; do
            measure "$peer" 2 "$route"
        done
    done
done

# median NAME COLUMN
median() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$results" | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

printf '%-22s %12s %20s\n' "peer, connections" "requests/s" "CPU us a request"
for name in $(awk '{ print $1 }' "$results" | awk '!seen[$0]++'); do
    printf '%-22s %12s %20s\n' "$name" "$(median "$name" 2)" "$(median "$name" 3)"
done
echo

# ratio TEXT ONE OTHER [GOAL]
ratio() {
    local quotient verdict=""
    quotient="$(awk -v one="$(median "$2" 2)" -v other="$(median "$3" 2)" 'BEGIN { printf "%.2f", one / other }')"
    if [[ -n "${4:-}" ]]; then
        verdict=">= $4 met"
        if awk -v quotient="$quotient" -v goal="$4" 'BEGIN { exit !(quotient < goal) }'; then
            verdict=">= $4 MISSED"
            missed=1
        fi
    fi
    printf '%-64s %6s  %s\n' "$1" "$quotient" "$verdict"
}

ratio "one product, shared connections on 8, of deadpool on 8" lanes-8-read deadpool-8-read 1.3
ratio "twenty products, a batch on 8, of deadpool on 8, pipelined" lanes-8-twenty deadpool-8-twenty
ratio "twenty products, a batch on 8, of deadpool on 8, in turn" lanes-8-twenty deadpool-in-turn-8-twenty 1.5
ratio "one product, shared connections on 2, of 2 threads with a client" lanes-2-read threads-2-read 0.95
ratio "twenty products, a batch on 2, of 2 threads with a client" lanes-2-twenty threads-2-twenty 0.95
ratio "one product, shared connections on 8, of calls alone" lanes-8-read cenote-8-read
exit "$missed"
