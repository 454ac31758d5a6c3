#!/usr/bin/env bash
#
# Runs the tests of this folder with PHP's own runner:
#
#     php/run-phpt.sh                   all of them
#     php/run-phpt.sh FILE ...          some of them
#     VALGRIND=1 php/run-phpt.sh        under valgrind, which takes minutes
#
# Tests of PDO need servers: ci/postgres.sh run -- ci/mariadb.sh run -- php/run-phpt.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
build_extension
options=()
if [[ -n "${VALGRIND:-}" ]]; then
    options+=(-m)
    export VALGRIND_OPTS="--suppressions=$php_folder/valgrind.supp ${VALGRIND_OPTS:-}"
    # Valgrind takes the assembly code of the TLS library for reads of uninitialised memory.
    [[ -z "${CENOTE_TEST_POSTGRES:-}" ]] || export CENOTE_TEST_POSTGRES="$CENOTE_TEST_POSTGRES;sslmode=disable"
    [[ -z "${CENOTE_TEST_MARIADB:-}" ]] || export CENOTE_TEST_MARIADB="$CENOTE_TEST_MARIADB;sslmode=disable"
fi
(($#)) || set -- "$php_folder/tests"
run_phpt "${options[@]}" --show-diff "$@"
