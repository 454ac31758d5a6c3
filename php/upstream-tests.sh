#!/usr/bin/env bash
#
# Runs the tests of TrueAsync's own extension (github.com/true-async/php-async), unmodified, against this
# one. They are not part of this repository.
#
#     php/upstream-tests.sh CHECKOUT            tests/pool: all of it has to pass
#     php/upstream-tests.sh CHECKOUT DIR ...    other directories of its tests, for their counts
#
# CHECKOUT is a clone of that repository. Needs PHP 8.2 or newer with its headers (Debian: php-dev) and gcc.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[[ $# -ge 1 && -d "$1/tests" ]] || { echo "usage: php/upstream-tests.sh CHECKOUT [DIR ...]" >&2; exit 2; }
checkout="$(cd "$1" && pwd)"
shift
(($#)) || set -- pool

source "$here/tools.sh"
build_extension
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# The tests name the extension that they want. This one has that name, and nothing else.
cat >"$scratch/true_async.c" <<'C'
#include "php.h"
static zend_module_entry module = {
	STANDARD_MODULE_HEADER, "true_async", NULL, NULL, NULL, NULL, NULL, NULL, "0", STANDARD_MODULE_PROPERTIES
};
ZEND_DLEXPORT zend_module_entry *get_module(void) { return &module; }
C
# shellcheck disable=SC2046
gcc -shared -fPIC -O1 -o "$scratch/true_async.so" $("$PHP_CONFIG" --includes) "$scratch/true_async.c"

failed=0
for directory in "$@"; do
    # A copy: the runner writes its results next to the tests.
    cp -r "$checkout/tests/$directory" "$scratch/$directory"
    [[ "$directory" == common ]] || cp -r "$checkout/tests/common" "$scratch/"
    status=0
    run_phpt -d "extension=$scratch/true_async.so" "$scratch/$directory" >"$scratch/log" 2>&1 || status=$?
    passed="$(sed -n 's/^Tests passed *: *\([0-9]*\).*/\1/p' "$scratch/log")"
    total="$(sed -n 's/^Number of tests *: *\([0-9]*\).*/\1/p' "$scratch/log")"
    skipped="$(sed -n 's/^Tests skipped *: *\([0-9]*\).*/\1/p' "$scratch/log")"
    echo "$directory: ${passed:-0} passed of ${total:-0}, ${skipped:-0} skipped"
    if [[ -z "$total" ]]; then
        cat "$scratch/log" >&2
        exit 1
    fi
    if [[ "$directory" == pool ]] && ((status)); then
        sed -n '/^FAILED TEST SUMMARY/,/^=====/p' "$scratch/log"
        failed=1
    fi
    if [[ -n "${SHOW_FAILED:-}" ]]; then
        sed -n '/^FAILED TEST SUMMARY/,/^=====/p' "$scratch/log"
        mkdir -p "$SHOW_FAILED" && cp -r "$scratch/$directory" "$SHOW_FAILED/"
    fi
done
exit "$failed"
