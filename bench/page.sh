#!/usr/bin/env bash
#
# Counts the instructions of one request to the shop under callgrind: without the live page, with the page mounted and
# nobody looking, and with one open page. The requests run in one process, without sockets and by a stopped clock, so
# that the counts do not depend on how busy the machine is. The page samples ten times a second; at 1,000 requests a
# second that is once in 100 requests.
#
#     bench/page.sh            prints a table
#     bench/page.sh --check    fails if a mounted page costs more than 1 %, or an open one more than 2 %
#
# Every case runs twice, with 2,000 and with 6,000 requests. The difference, divided by 4,000, leaves out everything that
# happens only once.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly few=2000
readonly many=6000

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

# Prints the instructions of a whole run: total MODE REQUESTS
total() {
    local out="$scratch/$1-$2"
    if ! valgrind --tool=callgrind --callgrind-out-file="$out" "$program" "$1" "$2" >"$out.log" 2>&1; then
        cat "$out.log" >&2
        die "mode $1 failed under callgrind"
    fi
    awk '$1 == "totals:" { print $2 }' "$out"
}

# Prints the instructions of one request: a_request MODE
a_request() {
    awk -v a="$(total "$1" "$few")" -v b="$(total "$1" "$many")" -v n=$((many - few)) 'BEGIN { printf "%.0f", (b - a) / n }'
}

printf '%-10s%16s%10s%10s\n' page "instructions" more limit
plain="$(a_request plain)"
printf '%-10s%16s%10s%10s\n' none "$plain" - -
failed=()
for case in mounted:1 open:2; do
    name="${case%:*}" limit="${case#*:}"
    count="$(a_request "$name")"
    more="$(awk -v a="$plain" -v b="$count" 'BEGIN { printf "%.2f", (b / a - 1) * 100 }')"
    printf '%-10s%16s%9s%%%9s%%\n' "$name" "$count" "$more" "$limit"
    if awk -v more="$more" -v limit="$limit" 'BEGIN { exit !(more > limit) }'; then
        failed+=("a page that is $name costs $more % of a request, more than $limit %")
    fi
done
if [[ "$mode" == --check ]] && ((${#failed[@]})); then
    printf 'page.sh: %s\n' "${failed[@]}" >&2
    exit 1
fi
