#!/usr/bin/env bash
#
# MariaDB through Db beside mysql_async (its pool where several tasks share connections, a bare
# connection where there is one task) and sqlx: one run on one machine, the peers in turn, medians.
#
#     bench/mysql.sh [--quick] [ROUNDS]          default: 7 rounds
#     ONLY="one many" WAYS=unix bench/mysql.sh   some of it
#
# It starts a server of its own (ci/mariadb.sh), which needs Debian's mariadb-server. Client and
# server share one core if taskset exists: on two cores of a virtual machine the results vary at random. CORES=all
# uses all cores.
#
# Fails if a required goal is missed. Goals refer to the medians of this run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"
target="${CARGO_TARGET_DIR:-$PWD/mysql/target}"
program="$target/release/cenote-bench-mysql"

if [[ -z "${CENOTE_TEST_MARIADB_SOCKETS:-}" ]]; then
    cargo build --release --quiet --manifest-path mysql/Cargo.toml
    one_core=()
    if [[ "${CORES:-one}" == one ]] && command -v taskset >/dev/null; then
        one_core=(taskset -c 1)
        taskset -c 1 true 2>/dev/null || one_core=(taskset -c 0)
    fi
    exec "${one_core[@]}" ../ci/mariadb.sh run -- "$script" "$@"
fi

share=1
rounds=7
for word in "$@"; do
    case "$word" in
    --quick)
        share=10
        rounds=3
        ;;
    *) rounds="$word" ;;
    esac
done
tasks="${ONLY:-one many instructions}"
ways="${WAYS:-unix tcp}"
results="$(mktemp -d)"
trap 'rm -rf "$results"' EXIT
missed=0

wants() {
    [[ " $tasks " == *" $1 "* ]]
}

count_of() {
    case "$1" in
    one) echo $((5000 / share)) ;;
    many) echo $((128000 / share)) ;;
    esac
}

# How often the peers take turns in a round. For one task the difference is a fiftieth of the measured time, and the
# machine's speed changes by more than that within seconds and from process to process.
turns_of() {
    case "$1" in
    one) echo 8 ;;
    many) echo 1 ;;
    esac
}

peers_of() {
    case "$1" in
    one) echo cenote mysql_async-text mysql_async sqlx ;;
    many) echo cenote mysql_async mysql_async-defaults sqlx ;;
    esac
}

"$program" cenote set-up unix 0

for ((round = 1; round <= rounds; round++)); do
    for task in one many; do
        wants "$task" || continue
        for way in $ways; do
            for ((turn = 1; turn <= $(turns_of "$task"); turn++)); do
                for peer in $(peers_of "$task"); do
                    "$program" "$peer" "$task" "$way" "$(count_of "$task")" >>"$results/runs"
                done
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

# A number with its goal: goal TEXT NUMBER "<=" BOUND
goal() {
    local verdict=met
    if ! awk -v number="$2" -v sign="$3" -v bound="$4" \
        'BEGIN { exit !(sign == "<=" ? number <= bound : number >= bound) }'; then
        verdict=MISSED
        missed=1
    fi
    printf '%-68s %8.2f   %s %-5s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

ratio() {
    awk -v one="$1" -v other="$2" 'BEGIN { printf "%.3f", one / other }'
}

if [[ -e "$results/runs" ]]; then
    printf '%-6s %-5s %-22s %12s %12s %12s\n' "task" "way" "ns, medians" "wall" \
        "client CPU" "queries/s"
    for task in one many; do
        wants "$task" || continue
        for way in $ways; do
            for peer in $(peers_of "$task"); do
                wall="$(median "$peer" "$task" "$way" 4)"
                printf '%-6s %-5s %-22s %12d %12d %12d\n' "$task" "$way" "$peer" \
                    "$wall" "$(median "$peer" "$task" "$way" 5)" $((1000000000 / wall))
            done
        done
    done
    echo
fi

for way in $ways; do
    if wants one; then
        more=$(($(median cenote one "$way" 5) - $(median mysql_async-text one "$way" 5)))
        goal "$way: one un-pinned call, client CPU beyond the same on a bare Conn, µs" \
            "$(ratio "$more" 1000)" "<=" 1.00
        more=$(($(median cenote one "$way" 5) - $(median mysql_async one "$way" 5)))
        printf '%-68s %8.2f\n' "$way: beyond a bare Conn with a statement prepared by hand, µs" \
            "$(ratio "$more" 1000)"
    fi
    if wants many; then
        goal "$way: 64 tasks on 8 connections, queries a second, of mysql_async's" \
            "$(ratio "$(median mysql_async many "$way" 4)" "$(median cenote many "$way" 4)")" ">=" 1.00
        goal "$way: the same, of sqlx's" \
            "$(ratio "$(median sqlx many "$way" 4)" "$(median cenote many "$way" 4)")" ">=" 1.10
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
    for peer in cenote mysql_async sqlx; do
        instructions "$peer" >"$results/$peer"
        printf '%-34s %12d\n' "$peer" "$(<"$results/$peer")"
    done
fi
exit "$missed"
