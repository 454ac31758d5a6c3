#!/usr/bin/env bash
#
# One checkout and return from C, beside the same from Rust's closure path, in one run; and
# their instructions under callgrind, which do not depend on how busy the machine is.
#
#     bench/capi.sh            prints both; fails if C costs more than 40 ns more
#     bench/capi.sh --time     only the time

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

mode="${1:-}"
case "$mode" in
"" | --time) ;;
*)
    echo "capi.sh: there is no option $mode; use --time" >&2
    exit 1
    ;;
esac

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/capi/target}"
export CARGO_TARGET_DIR
CENOTE_PROFILE=release ../crates/capi/install.sh "$scratch/prefix" >/dev/null
cargo build --quiet --release --locked --manifest-path capi/Cargo.toml
gcc -std=c99 -D_POSIX_C_SOURCE=200809L -O2 -Wall -Wextra -Werror capi/bench.c -o "$scratch/bench" \
    -I"$scratch/prefix/include" -L"$scratch/prefix/lib" -lcenote \
    -L"$CARGO_TARGET_DIR/release" -lrust_side \
    -Wl,-rpath,"$scratch/prefix/lib" -Wl,-rpath,"$CARGO_TARGET_DIR/release"

status=0
"$scratch/bench" || status=$?
if [[ "$mode" == --time ]]; then
    exit "$status"
fi

# Prints the instructions of a whole run: total CASE CHECKOUTS
total() {
    valgrind --tool=callgrind --callgrind-out-file="$scratch/$1-$2" "$scratch/bench" "$1" "$2" \
        >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
    awk '$1 == "totals:" { print $2 }' "$scratch/$1-$2"
}

if ! command -v valgrind >/dev/null; then
    echo "capi.sh: valgrind is missing, so no instructions are counted. Please install it." >&2
    exit 1
fi
printf '%-16s%14s\n' checkout instructions
for name in rust-plain c-plain rust-hooks c-hooks rust-blocking; do
    # The difference of two runs leaves out what happens only once.
    awk -v name="$name" -v few="$(total "$name" 10000)" -v many="$(total "$name" 20000)" \
        'BEGIN { printf "%-16s%14.1f\n", name, (many - few) / 10000 }'
done
exit "$status"
