#!/usr/bin/env bash
#
# copy_in_rows beside the binary COPY of tokio-postgres (BinaryCopyInWriter): 200,000 rows of five
# columns, in one process, in turn, medians.
#
#     bench/copy.sh [ROUNDS]          default: 15
#     ROWS=50000 WAYS=unix bench/copy.sh
#
# It starts a server of its own (ci/postgres.sh). Fails if copy_in_rows takes more than 1.05 times the
# time of tokio-postgres. With valgrind it also counts the client's instructions for each row.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"
target="${CARGO_TARGET_DIR:-$PWD/copy/target}"
program="$target/release/cenote-bench-copy"

if [[ -z "${CENOTE_TEST_POSTGRES_SOCKETS:-}" ]]; then
    cargo build --release --quiet --manifest-path copy/Cargo.toml
    exec ../ci/postgres.sh run -- "$script" "$@"
fi

rounds="${1:-15}"
rows="${ROWS:-200000}"
missed=0
for way in ${WAYS:-unix tcp}; do
    result="$("$program" "$way" "$rounds" "$rows")"
    echo "$result"
    wall="$(awk '/^RATIO/ { print $3 }' <<<"$result")"
    verdict=met
    if ! awk -v ratio="$wall" 'BEGIN { exit !(ratio <= 1.05) }'; then
        verdict=MISSED
        missed=1
    fi
    echo "$way: time of copy_in_rows, of tokio-postgres: $wall   <= 1.05 $verdict"
done

# The difference of two runs, so that starting and connecting do not count.
instructions_of() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        "$program" unix 0 "$2" "$1" 2>&1 >/dev/null | awk '/Collected/ { print $4 }'
}

if command -v valgrind >/dev/null; then
    for peer in cenote tokio-postgres; do
        few="$(instructions_of "$peer" 10000)"
        many="$(instructions_of "$peer" 30000)"
        echo "client instructions for each row, $peer: $(((many - few) / 20000))"
    done
fi
exit "$missed"
