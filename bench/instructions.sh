#!/usr/bin/env bash
#
# Counts the instructions of one checkout and return, under callgrind, and those of
# one call through Db on a driver that does nothing (db-call). Histograms, counters
# and spans are compiled in, and nobody listens. The counts
# do not depend on how busy the machine is; they do depend on the compiler, so
# compare only what the same one has built.
#
#     bench/instructions.sh            prints a table
#     bench/instructions.sh --check    fails if a count of ours is more than 5 %
#                                      above the one in bench/instructions.txt
#     bench/instructions.sh --write    writes bench/instructions.txt
#
# Every case runs twice, with 10,000 and with 20,000 checkouts. The difference,
# divided by 10,000, leaves out everything that happens only once.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

readonly few=10000
readonly many=20000
readonly cases=(one-borrowed one-owned one-hooks queued db-call deadpool-one deadpool-queued)
readonly noted=instructions.txt

die() {
    echo "instructions.sh: $*" >&2
    exit 1
}

mode="${1:-}"
case "$mode" in
"" | --check | --write) ;;
*) die "there is no option $mode; use --check or --write" ;;
esac

need_valgrind() {
    command -v valgrind >/dev/null && return
    command -v apt-get >/dev/null || die "valgrind is missing. Please install it."
    local root=()
    if ((EUID != 0)); then
        sudo -n true 2>/dev/null || die "valgrind is missing. Please run: sudo apt-get install valgrind"
        root=(sudo -n)
    fi
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends valgrind)
    # The list of packages may be missing or old; only then is it fetched.
    if ! "${root[@]}" "${install[@]}" >/dev/null 2>&1; then
        "${root[@]}" apt-get -qq update >/dev/null
        "${root[@]}" "${install[@]}" >/dev/null
    fi
}

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# Prints the instructions of a whole run: total CASE CHECKOUTS
total() {
    local out="$scratch/$1-$2"
    if ! valgrind --tool=callgrind --callgrind-out-file="$out" "$program" "$1" "$2" >"$out.log" 2>&1; then
        cat "$out.log" >&2
        die "case $1 failed under callgrind"
    fi
    awk '$1 == "totals:" { print $2 }' "$out"
}

# Prints the count that is noted for a case, if any.
noted_for() {
    [[ -e "$noted" ]] || return 0
    awk -v name="$1" '$1 == name { print $2 }' "$noted"
}

need_valgrind
cargo build --quiet --release --locked --manifest-path instructions/Cargo.toml
program="${CARGO_TARGET_DIR:-instructions/target}/release/instructions"

printf '%-16s%14s%10s%10s\n' case instructions noted change
grown=()
lines=()
for name in "${cases[@]}"; do
    count=$(awk -v a="$(total "$name" "$few")" -v b="$(total "$name" "$many")" \
        -v n=$((many - few)) 'BEGIN { printf "%.1f", (b - a) / n }')
    old="$(noted_for "$name")"
    change="-"
    if [[ -n "$old" ]]; then
        change="$(awk -v a="$old" -v b="$count" 'BEGIN { printf "%+.1f%%", (b / a - 1) * 100 }')"
    fi
    printf '%-16s%14s%10s%10s\n' "$name" "$count" "${old:--}" "$change"
    lines+=("$(printf '%-16s%10s' "$name" "$count")")
    # The peer is only a comparison: its count is not limited.
    [[ "$name" == deadpool-* ]] && continue
    if [[ -z "$old" ]]; then
        grown+=("$name has no count in $noted")
    elif awk -v a="$old" -v b="$count" 'BEGIN { exit !(b > a * 1.05) }'; then
        grown+=("$name grew from $old to $count, which is more than 5 %")
    fi
done

case "$mode" in
--write)
    {
        echo "# Instructions of one checkout and return; written by instructions.sh --write."
        echo "# $(rustc --version), $(uname -m)"
        printf '%s\n' "${lines[@]}"
    } >"$noted"
    echo "written to bench/$noted"
    ;;
--check)
    if ((${#grown[@]})); then
        printf 'instructions.sh: %s\n' "${grown[@]}" >&2
        exit 1
    fi
    echo "no case of ours has grown by more than 5 %"
    ;;
esac
