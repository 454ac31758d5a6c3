#!/usr/bin/env bash
#
# Counts the instructions that the live page costs one request to the shop, under callgrind: with the page mounted and
# nobody looking, and with one open page. The requests run in one process, without sockets and by a stopped clock. The page
# samples ten times a second; at 1,000 requests a second that is once in 100 requests.
#
#     bench/page.sh            prints a table
#     bench/page.sh --check    fails if a mounted page costs more than 1 % of a request, or an open one more than 2 %
#
# The cost of the page is that of its functions and all that they call: the sampler, the notes about each statement, and
# the events for the viewer. The difference between two whole runs would say less: SQLite's driver decides by the clock
# where a statement runs, which changes a run by up to 2 %.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly few=2000
readonly many=6000
# The functions of the page, outermost only.
readonly ours='dashboard::recorder::Recorder::run::|activity::Activity::(begin|end|clear) |viewers::Body as http_body::Body>::poll_frame'

die() {
    echo "page.sh: $*" >&2
    exit 1
}

mode="${1:-}"
case "$mode" in
"" | --check) ;;
*) die "there is no option $mode; use --check" ;;
esac
command -v valgrind >/dev/null || die "valgrind is missing. Please install it."

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --release --locked --manifest-path page/Cargo.toml
program="${CARGO_TARGET_DIR:-page/target}/release/cenote-bench-page"

# Runs a mode under callgrind: run MODE REQUESTS FILE
run() {
    if ! timeout 120 valgrind --tool=callgrind --callgrind-out-file="$3" "$program" "$1" "$2" >"$3.log" 2>&1; then
        cat "$3.log" >&2
        die "mode $1 failed under callgrind"
    fi
}

# Prints the instructions of a whole run: total FILE
total() {
    awk '$1 == "totals:" { print $2 }' "$1"
}

# Prints the instructions of the page's functions, with all that they call: of_page FILE
of_page() {
    callgrind_annotate --inclusive=yes --auto=no --threshold=100 "$1" | grep -E "$ours" | grep -F "[" | tr -d , |
        awk '{ sum += $1 } END { print sum + 0 }'
}

run plain "$few" "$scratch/few"
run plain "$many" "$scratch/many"
# The difference leaves out what happens only once.
request="$(awk -v a="$(total "$scratch/few")" -v b="$(total "$scratch/many")" -v n=$((many - few)) \
    'BEGIN { printf "%.0f", (b - a) / n }')"
printf 'one request: %s instructions\n' "$request"
printf '%-10s%14s%10s%10s\n' page instructions share limit
failed=()
for case in mounted:1 open:2; do
    name="${case%:*}" limit="${case#*:}"
    run "$name" "$many" "$scratch/$name"
    count="$(of_page "$scratch/$name")"
    ((count > many)) || die "the functions of the page were not found in the profile of mode $name"
    count="$(awk -v a="$count" -v n="$many" 'BEGIN { printf "%.0f", a / n }')"
    share="$(awk -v a="$request" -v b="$count" 'BEGIN { printf "%.2f", b / a * 100 }')"
    printf '%-10s%14s%9s%%%9s%%\n' "$name" "$count" "$share" "$limit"
    if awk -v share="$share" -v limit="$limit" 'BEGIN { exit !(share > limit) }'; then
        failed+=("a page that is $name costs $share % of a request, more than $limit %")
    fi
done
if [[ "$mode" == --check ]] && ((${#failed[@]})); then
    printf 'page.sh: %s\n' "${failed[@]}" >&2
    exit 1
fi
