#!/usr/bin/env bash
#
# Point reads on PostgreSQL: what a round trip costs, and what pipelining saves. The peers take
# turns in one run on one machine; the figures are medians.
#
#     CORES=all bench/pipeline.sh [ROUNDS]       default: 5
#     ONLY="points twenty beside" WAYS="unix delayed" bench/pipeline.sh
#
# | peer | |
# |---|---|
# | floor | sockets that pipeline with a Sync for each read, without a client library |
# | deadpool | deadpool-postgres |
# | shared | tokio-postgres' clients, shared by all tasks, which pipelines |
# | cenote | calls on a Db, one connection for each call |
# | lanes | calls on a Db that shares connections |
# | batch | db.batch() |
#
# `points`: 64 tasks, one read at a time. `twenty`: 8 tasks, twenty reads that do not depend on each
# other. `beside`: 64 tasks, 100 reads a second each, of which one in 100 takes 50 ms, by its text or
# by its parameter; the table shows the 99th percentile of the others (over the socket only).
# `delayed` puts a delay line in between, as a process of its own: 500 µs each way.
# The table names the round trip that was measured.
#
# It starts a server of its own (ci/postgres.sh), which needs Debian's postgresql and pgbouncer.
# Without CORES=all, client and server share one core. Fails if a required goal is missed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"
program="${CARGO_TARGET_DIR:-$PWD/pipeline/target}/release/cenote-bench-pipeline"

if [[ -z "${CENOTE_TEST_POSTGRES_SOCKETS:-}" ]]; then
    cargo build --release --quiet --manifest-path pipeline/Cargo.toml
    one_core=()
    if [[ "${CORES:-one}" == one ]] && command -v taskset >/dev/null; then
        one_core=(taskset -c 1)
        taskset -c 1 true 2>/dev/null || one_core=(taskset -c 0)
    fi
    exec "${one_core[@]}" ../ci/postgres.sh run -- "$script" "$@"
fi

rounds="${1:-5}"
tasks="${ONLY:-points twenty beside}"
ways="${WAYS:-unix delayed}"
results="$(mktemp -d)"
missed=0
proxy=""

cleanup() {
    if [[ -n "$proxy" ]]; then
        kill "$proxy" 2>/dev/null || true
    fi
    rm -rf "$results"
}
trap cleanup EXIT

# Sets the address of a way: address unix|delayed
address() {
    case "$1" in
    unix) export BENCH_HOST="$CENOTE_TEST_POSTGRES_SOCKETS" BENCH_PORT="$CENOTE_TEST_POSTGRES_PORT" ;;
    delayed) export BENCH_HOST=127.0.0.1 BENCH_PORT="$delayed_port" ;;
    *)
        echo "WAYS has unix and delayed, not $1" >&2
        exit 1
        ;;
    esac
}

start_proxy() {
    mkfifo "$results/end" "$results/port"
    # Its input stays open until this script ends.
    exec {hold}<>"$results/end"
    BENCH_HOST=127.0.0.1 BENCH_PORT="$CENOTE_TEST_POSTGRES_PORT" \
        "$program" proxy 500 <"$results/end" >"$results/port" &
    proxy=$!
    read -r delayed_port <"$results/port"
}

# Units of a measurement: count TASK WAY PEER
count() {
    case "$1 $2 $3" in
    "points unix "*) echo 128000 ;;
    "twenty unix "*) echo 6400 ;;
    "points delayed "*) echo 16000 ;;
    "twenty delayed cenote") echo 160 ;;
    "twenty delayed "*) echo 1600 ;;
    "beside-"*) echo 32000 ;;
    esac
}

# measure WAY PEER TASK TASKS CONNECTIONS
measure() {
    address "$1"
    echo "$1 $("$program" "$2" "$3" "$(count "$3" "$1" "$2")" "$4" "$5")" >>"$results/runs"
}

export BENCH_HOST=127.0.0.1 BENCH_PORT="$CENOTE_TEST_POSTGRES_PORT"
"$program" setup
[[ " $ways " != *" delayed "* ]] || start_proxy

for ((round = 1; round <= rounds; round++)); do
    for way in $ways; do
        if [[ "$way" == delayed ]]; then
            address delayed
            echo "delayed $("$program" cenote points 200 1 1)" >>"$results/runs"
        fi
        if [[ " $tasks " == *" points "* ]]; then
            for peer in floor deadpool shared cenote lanes; do
                measure "$way" "$peer" points 64 8
            done
            if [[ "$way" == delayed ]]; then
                measure "$way" cenote points 256 8
                measure "$way" lanes points 256 8
            fi
            measure "$way" floor points 64 4
            measure "$way" shared points 64 4
        fi
        if [[ " $tasks " == *" twenty "* ]]; then
            for peer in floor deadpool cenote batch; do
                measure "$way" "$peer" twenty 8 8
            done
        fi
        if [[ " $tasks " == *" beside "* && "$way" == unix ]]; then
            for task in beside-text beside-parameter; do
                for peer in cenote lanes; do
                    measure "$way" "$peer" "$task" 64 8
                done
            done
        fi
    done
done

# The median of a column over the rounds: median WAY PEER TASK TASKS CONNECTIONS COLUMN
median() {
    awk -v way="$1" -v peer="$2" -v task="$3" -v tasks="$4" -v connections="$5" -v column="$6" \
        '$1 == way && $2 == peer && $3 == task && $4 == tasks && $5 == connections { print $column }' \
        "$results/runs" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

printf '%-8s %-16s %-9s %6s %12s %14s %14s %8s\n' way task peer tasks connections "reads a second" "CPU ns a read" "p99 µs"
awk '{ print $1, $2, $3, $4, $5 }' "$results/runs" | awk '!seen[$0]++' |
    while read -r way peer task tasks connections; do
        wall="$(median "$way" "$peer" "$task" "$tasks" "$connections" 6)"
        cpu="$(median "$way" "$peer" "$task" "$tasks" "$connections" 7)"
        if [[ "$tasks" == 1 ]]; then
            printf '%-8s measured round trip: %d µs\n' "$way" "$((wall / 1000))"
            continue
        fi
        p99="$(median "$way" "$peer" "$task" "$tasks" "$connections" 8)"
        printf '%-8s %-16s %-9s %6s %12s %14d %14d %8s\n' "$way" "$task" "$peer" "$tasks" "$connections" \
            "$((1000000000 / wall))" "$cpu" "$([[ "$p99" == 0 ]] || echo "$((p99 / 1000))")"
    done
echo

# The quotient of two medians: quotient DIVIDEND DIVISOR COLUMN, both "WAY PEER TASK TASKS CONNECTIONS"
quotient() {
    # shellcheck disable=SC2086
    awk -v dividend="$(median $1 "$3")" -v divisor="$(median $2 "$3")" \
        'BEGIN { printf "%.2f", dividend / divisor }'
}

# Prints a quotient, and whether it meets a goal: verdict TEXT QUOTIENT [>=|<= GOAL]
verdict() {
    local verdict=""
    if [[ -n "${4:-}" ]]; then
        verdict="$3 $4 met"
        if ! awk -v quotient="$2" -v goal="$4" "BEGIN { exit !(quotient $3 goal) }"; then
            verdict="$3 $4 MISSED"
            missed=1
        fi
    fi
    printf '%-64s %6.2f  %s\n' "$1" "$2" "$verdict"
}

# A ratio of reads a second: ratio TEXT ONE OTHER [GOAL]
ratio() {
    verdict "$1" "$(quotient "$3" "$2" 6)" ">=" "${4:-}"
}

for way in $ways; do
    if [[ " $tasks " == *" points "* ]]; then
        ratio "$way: calls on 8 connections, of deadpool" \
            "$way cenote points 64 8" "$way deadpool points 64 8"
        ratio "$way: the same, of shared clients on 4" \
            "$way cenote points 64 8" "$way shared points 64 4"
        ratio "$way: the same, of the floor" "$way cenote points 64 8" "$way floor points 64 8"
        goal=1.6
        [[ "$way" != delayed ]] || goal=6
        ratio "$way: shared connections, of calls alone" \
            "$way lanes points 64 8" "$way cenote points 64 8" "$goal"
        ratio "$way: the same, of deadpool" "$way lanes points 64 8" "$way deadpool points 64 8" 1.8
        ratio "$way: the same, of shared clients on 4" \
            "$way lanes points 64 8" "$way shared points 64 4" 0.95
        ratio "$way: the same, of the floor" "$way lanes points 64 8" "$way floor points 64 8" 0.8
        if [[ "$way" == delayed ]]; then
            ratio "$way: shared connections, 256 tasks, of calls alone" \
                "$way lanes points 256 8" "$way cenote points 256 8" 10
        fi
    fi
    if [[ " $tasks " == *" twenty "* ]]; then
        goal=1.5
        [[ "$way" != delayed ]] || goal=6
        ratio "$way: twenty reads in a batch, of single calls" \
            "$way batch twenty 8 8" "$way cenote twenty 8 8" "$goal"
        ratio "$way: the same, of deadpool, pipelined by hand" \
            "$way batch twenty 8 8" "$way deadpool twenty 8 8"
        ratio "$way: the same, of the floor" "$way batch twenty 8 8" "$way floor twenty 8 8"
    fi
    if [[ " $tasks " == *" beside "* && "$way" == unix ]]; then
        for task in beside-text beside-parameter; do
            verdict "$way: $task, p99 on shared connections, of calls alone" \
                "$(quotient "$way lanes $task 64 8" "$way cenote $task 64 8" 8)" "<=" 1.2
        done
    fi
done
exit "$missed"
