#!/usr/bin/env bash
#
# SQLite through Db beside bare rusqlite, sqlx and tokio-rusqlite. Builds the programs, runs them
# in turn, scenario by scenario, prints the medians and their ratios.
#
#     bench/sqlite.sh              about five minutes
#     bench/sqlite.sh --quick      about one
#     bench/sqlite.sh --report     prints only: a goal that is missed is no failure
#     bench/sqlite.sh --only NAME  only the scenarios that begin with NAME
#
# Fails if a goal is missed; the goals are in the last table. The files lie in $TMPDIR: it should
# be a real disk, because a commit at synchronous=FULL waits for it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

die() {
    echo "sqlite.sh: $*" >&2
    exit 1
}

rounds=7
milliseconds=1500
must_reach=true
only=""
while (($#)); do
    case "$1" in
    --quick) rounds=3 milliseconds=500 ;;
    --report) must_reach=false ;;
    --only) only="${2:-}" && shift ;;
    *) die "there is no option $1; use --quick, --report or --only NAME" ;;
    esac
    shift
done

readonly reads=(read-mt read-ct)
readonly timers=(timer-mt timer-ct)
readonly gaps=(gap-ct)
readonly writes=(write-full-mt write-normal-mt transaction-full-mt transaction-normal-mt)
readonly beside=(beside-normal-mt)
readonly peers=(db sqlx tokio-rusqlite)

for package in ours sqlx tokio-rusqlite; do
    cargo build --release --quiet --locked --manifest-path "sqlite/$package/Cargo.toml"
done
# Where cargo puts what it builds: built PACKAGE PROGRAM
built() {
    echo "${CARGO_TARGET_DIR:-sqlite/$1/target}/release/$2"
}
declare -rA program=(
    [bare]="$(built ours sqlite-bare)"
    [without]="$(built ours sqlite-bare)"
    [db]="$(built ours sqlite-db)"
    [sqlx]="$(built sqlx cenote-bench-sqlite-sqlx)"
    [tokio-rusqlite]="$(built tokio-rusqlite cenote-bench-sqlite-tokio-rusqlite)"
)

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
readonly figures="$scratch/figures"
touch "$figures"
"${program[bare]}" fill "$scratch/accounts.db"

# Notes the figures of one run, each with the scenario and the engine: measure SCENARIO ENGINE
measure() {
    local scenario="$1"
    if [[ "$2" == without ]]; then
        scenario="${1/-/-without-}"
    fi
    local told
    told="$(timeout 120 "${program[$2]}" "$scratch/accounts.db" "$scenario" "$milliseconds" 2>"$scratch/errors")" ||
        die "$2 failed in $1: $(cat "$scratch/errors")"
    awk -v run="$1 $2" '{ print run, $0 }' <<<"$told" >>"$figures"
    # Shows the first error of a peer, once.
    if [[ -s "$scratch/errors" ]] && ! grep -q "^$1 $2 " "$scratch/told" 2>/dev/null; then
        awk -v run="$1 $2" '{ print run, $0 }' "$scratch/errors" | tee -a "$scratch/told" >&2
    fi
}

# Runs the engines of a scenario in turn, every round beginning with another: alternate SCENARIO ENGINE...
alternate() {
    local scenario="$1" round at
    shift
    local engines=("$@")
    [[ "$scenario" == "$only"* ]] || return 0
    echo "$scenario" >&2
    for ((round = 0; round < rounds; round++)); do
        for ((at = 0; at < $#; at++)); do
            measure "$scenario" "${engines[(at + round) % $#]}"
        done
    done
}

for scenario in "${reads[@]}"; do alternate "$scenario" bare "${peers[@]}"; done
for scenario in "${timers[@]}" "${gaps[@]}"; do alternate "$scenario" without "${peers[@]}"; done
for scenario in "${writes[@]}" "${beside[@]}"; do alternate "$scenario" bare "${peers[@]}"; done

# One figure of all rounds: figure median|worst SCENARIO ENGINE NAME
figure() {
    awk -v scenario="$2" -v engine="$3" -v name="$4" \
        '$1 == scenario && $2 == engine && $3 == name { print $4 }' "$figures" | sort -n |
        awk -v which="$1" '{ all[NR] = $1 }
            END { if (NR) print which == "worst" ? all[NR] : all[int((NR + 1) / 2)] }'
}

ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }'
}

measured() {
    awk -v scenario="$1" '$1 == scenario { found = 1 } END { exit !found }' "$figures"
}

echo
echo "medians of $rounds rounds; mt: multi-thread runtime, ct: current-thread runtime"
for scenario in "${reads[@]}"; do
    measured "$scenario" || continue
    bare="$(figure median "$scenario" bare ns)"
    printf '\n%-22s %12s %10s\n' "$scenario" "ns a read" "to bare"
    for engine in bare "${peers[@]}"; do
        ns="$(figure median "$scenario" "$engine" ns)"
        printf '  %-20s %12d %10s\n' "$engine" "$ns" "$(ratio "$ns" "$bare")"
    done
done
for scenario in "${timers[@]}"; do
    measured "$scenario" || continue
    printf '\n%-22s %12s %12s %12s %12s\n' "$scenario" "worst, us" "of all" "two scans, ms" "reads beside"
    for engine in without "${peers[@]}"; do
        printf '  %-20s %12d %12d %12s %12s\n' "$engine" \
            "$(figure median "$scenario" "$engine" late_us)" "$(figure worst "$scenario" "$engine" late_us)" \
            "$(figure median "$scenario" "$engine" scans_ms)" "$(figure median "$scenario" "$engine" reads_meanwhile)"
    done
done
for scenario in "${gaps[@]}"; do
    measured "$scenario" || continue
    printf '\n%-22s %12s %12s %12s %12s\n' "$scenario" "worst, us" "of all" "it ran, us" "turns"
    for engine in without "${peers[@]}"; do
        printf '  %-20s %12d %12d %12d %12d\n' "$engine" \
            "$(figure median "$scenario" "$engine" gap_us)" "$(figure worst "$scenario" "$engine" gap_us)" \
            "$(figure median "$scenario" "$engine" gap_run_us)" \
            "$(figure median "$scenario" "$engine" turns)"
    done
done
for scenario in "${writes[@]}"; do
    measured "$scenario" || continue
    bare="$(figure median "$scenario" bare per_second)"
    printf '\n%-22s %12s %10s %10s %10s %12s\n' "$scenario" "a second" "to bare" "errors" "starved" "slowest, ms"
    for engine in bare "${peers[@]}"; do
        many="$(figure median "$scenario" "$engine" per_second)"
        printf '  %-20s %12d %10s %10d %10d %12d\n' "$engine" "$many" "$(ratio "$many" "$bare")" \
            "$(figure worst "$scenario" "$engine" errors)" "$(figure worst "$scenario" "$engine" starved)" \
            "$(figure median "$scenario" "$engine" slowest_ms)"
    done
done

for scenario in "${beside[@]}"; do
    measured "$scenario" || continue
    printf '\n%-22s %12s %12s %14s\n' "$scenario" "reads, /s" "slowest, us" "transactions, /s"
    for engine in bare "${peers[@]}"; do
        printf '  %-20s %12d %12d %14d\n' "$engine" "$(figure median "$scenario" "$engine" reads)" \
            "$(figure median "$scenario" "$engine" slowest_read_us)" "$(figure median "$scenario" "$engine" per_second)"
    done
done

missed=0
unknown=0
# Prints a goal and whether it is met: goal SCENARIO WHAT VALUE at-most|at-least LIMIT [WITHOUT]
# If a program without a database already comes near the limit, the goal is not judged.
goal() {
    measured "$1" || return 0
    local verdict=met
    if awk -v without="${6:-0}" -v value="$3" -v limit="$5" 'BEGIN { exit !(value > limit && without > limit / 2) }'; then
        verdict="UNKNOWN: without a database $6"
        unknown=$((unknown + 1))
    elif ! awk -v value="$3" -v how="$4" -v limit="$5" \
        'BEGIN { exit !(how == "at-most" ? value <= limit : value >= limit) }'; then
        verdict=MISSED
        missed=$((missed + 1))
    fi
    printf '  %-22s %-34s %10s %9s %7s  %s\n' "$1" "$2" "$3" "$4" "$5" "$verdict"
}
# The ratio of ours to bare: to_bare SCENARIO NAME
to_bare() {
    ratio "$(figure median "$1" db "$2")" "$(figure median "$1" bare "$2")"
}

printf '\ngoals\n'
for scenario in "${reads[@]}"; do
    goal "$scenario" "time of a read, to bare" "$(to_bare "$scenario" ns)" at-most 3
done
for scenario in "${timers[@]}"; do
    goal "$scenario" "a timer is late, us" "$(figure median "$scenario" db late_us)" at-most 10000 \
        "$(figure median "$scenario" without late_us)"
done
for scenario in "${gaps[@]}"; do
    goal "$scenario" "another task waits, us" "$(figure median "$scenario" db gap_us)" at-most 1000 \
        "$(figure median "$scenario" without gap_us)"
done
for scenario in "${writes[@]}"; do
    goal "$scenario" "errors" "$(figure worst "$scenario" db errors)" at-most 0
    goal "$scenario" "tasks that got nothing" "$(figure worst "$scenario" db starved)" at-most 0
done
for scenario in write-full-mt write-normal-mt; do
    goal "$scenario" "writes a second, to one bare" "$(to_bare "$scenario" per_second)" at-least 1.0
done
goal transaction-full-mt "transactions a second, to one bare" "$(to_bare transaction-full-mt per_second)" at-least 0.5

if ((unknown)); then
    echo "sqlite.sh: $unknown goals cannot be judged: the machine is too busy with other things" >&2
fi
if ((missed + unknown)) && $must_reach; then
    die "$missed goals are missed, $unknown not shown to be met"
fi
