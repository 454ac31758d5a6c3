#!/usr/bin/env bash
#
# PostgreSQL through Db beside tokio-postgres (in deadpool's pool where several tasks share
# connections) and sqlx: one run on one machine, the peers in turn, medians.
#
#     bench/postgres.sh [ROUNDS]                    default: 7
#     ONLY="one many" WAYS=unix bench/postgres.sh   some of it
#
# It starts a server of its own (ci/postgres.sh), which needs Debian's postgresql and pgbouncer.
# Client and server share one core if taskset exists: on two cores of a virtual machine the
# results vary at random. CORES=all uses all cores.
#
# Fails if a required goal is missed. Goals are ratios of this run's medians of the client's CPU
# time: most of the remaining time is the server's.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"
target="${CARGO_TARGET_DIR:-$PWD/postgres/target}"
program="$target/release/cenote-bench-postgres"

if [[ -z "${CENOTE_TEST_POSTGRES_SOCKETS:-}" ]]; then
    cargo build --release --quiet --manifest-path postgres/Cargo.toml
    one_core=()
    if [[ "${CORES:-one}" == one ]] && command -v taskset >/dev/null; then
        one_core=(taskset -c 1)
        taskset -c 1 true 2>/dev/null || one_core=(taskset -c 0)
    fi
    exec "${one_core[@]}" ../ci/postgres.sh run -- "$script" "$@"
fi

rounds="${1:-7}"
tasks="${ONLY:-one many transaction rows instructions}"
ways="${WAYS:-unix tcp}"
results="$(mktemp -d)"
trap 'rm -rf "$results"' EXIT
missed=0

wants() {
    [[ " $tasks " == *" $1 "* ]]
}

count_of() {
    case "$1" in
    one) echo 20000 ;;
    many) echo 64000 ;;
    transaction) echo 5000 ;;
    rows) echo 300000 ;;
    esac
}

# A bare Tokio socket, without a client library, is the lower bound for `one`.
peers_of() {
    echo cenote tokio-postgres sqlx
    [[ "$1" != one ]] || echo socket
}

for ((round = 1; round <= rounds; round++)); do
    for task in one many transaction rows; do
        wants "$task" || continue
        for way in $ways; do
            for peer in $(peers_of "$task"); do
                "$program" "$peer" "$task" "$way" "$(count_of "$task")" >>"$results/runs"
            done
        done
    done
done

# The median of a column over the rounds: median PEER TASK WAY COLUMN
median() {
    awk -v peer="$1" -v task="$2" -v way="$3" -v column="$4" \
        '$1 == peer && $2 == task && $3 == way { print $column }' "$results/runs" | sort -n |
        awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

# A ratio with its goal: goal TEXT RATIO "<=" BOUND
goal() {
    local verdict=met
    if ! awk -v ratio="$2" -v sign="$3" -v bound="$4" \
        'BEGIN { exit !(sign == "<=" ? ratio <= bound : ratio >= bound) }'; then
        verdict=MISSED
        missed=1
    fi
    printf '%-68s %6.2f   %s %-5s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

ratio() {
    awk -v one="$1" -v other="$2" 'BEGIN { printf "%.3f", one / other }'
}

if [[ -e "$results/runs" ]]; then
    printf '%-12s %-5s %-16s %12s %12s\n' "task" "way" "ns, median of $rounds" "wall" "client CPU"
    for task in one many transaction rows; do
        wants "$task" || continue
        for way in $ways; do
            for peer in $(peers_of "$task"); do
                printf '%-12s %-5s %-16s %12d %12d\n' "$task" "$way" "$peer" \
                    "$(median "$peer" "$task" "$way" 4)" "$(median "$peer" "$task" "$way" 5)"
            done
        done
    done
    echo
fi

# Ratio of two peers' medians: of_peers OTHER TASK WAY COLUMN
of_peers() {
    ratio "$(median cenote "$2" "$3" "$4")" "$(median "$1" "$2" "$3" "$4")"
}

for way in $ways; do
    if wants one; then
        goal "$way: one task, client CPU a query, of tokio-postgres" \
            "$(of_peers tokio-postgres one "$way" 5)" "<=" 0.85
        printf '%-68s %6.2f\n' "$way: the same of a bare socket, which has no client library" \
            "$(ratio "$(median socket one "$way" 5)" "$(median tokio-postgres one "$way" 5)")"
    fi
    if wants many; then
        for peer in tokio-postgres sqlx; do
            goal "$way: 64 tasks on 8 connections, client CPU a query, of $peer" \
                "$(of_peers "$peer" many "$way" 5)" "<=" 0.85
            goal "$way: the same, queries a second, of $peer" \
                "$(ratio "$(median "$peer" many "$way" 4)" "$(median cenote many "$way" 4)")" ">=" 1.00
        done
    fi
    if wants transaction; then
        goal "$way: short transaction, time, of deadpool-postgres" \
            "$(of_peers tokio-postgres transaction "$way" 4)" "<=" 0.90
    fi
    if wants rows; then
        goal "$way: 300,000 rows, client CPU a row, of tokio-postgres" \
            "$(of_peers tokio-postgres rows "$way" 5)" "<=" 1.10
    fi
done

# Instructions of a query: the difference of two runs, so that starting and connecting do not count.
instructions() {
    local few many
    few="$(instructions_of "$1" 2000)"
    many="$(instructions_of "$1" 6000)"
    echo $(((many - few) / 4000))
}

instructions_of() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$program" "$1" one unix "$2" current 2>&1 >/dev/null |
        awk '/Collected/ { print $4 }'
}

if wants instructions && command -v valgrind >/dev/null; then
    printf '\n%-34s %12s\n' "client instructions a query" ""
    for peer in cenote tokio-postgres sqlx; do
        instructions "$peer" >"$results/$peer"
        printf '%-34s %12d\n' "$peer" "$(<"$results/$peer")"
    done
    goal "client instructions a query, of tokio-postgres" \
        "$(ratio "$(<"$results/cenote")" "$(<"$results/tokio-postgres")")" "<=" 0.60
fi
exit "$missed"
