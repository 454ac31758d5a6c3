#!/usr/bin/env bash
#
# Runs the tests of this folder with PHP's own runner:
#
#     php/run-phpt.sh                   all of them
#     php/run-phpt.sh FILE ...          some of them
#     VALGRIND=1 php/run-phpt.sh        under valgrind, which takes minutes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
build_extension
options=()
[[ -z "${VALGRIND:-}" ]] || options+=(-m)
(($#)) || set -- "$php_folder/tests"
run_phpt "${options[@]}" --show-diff "$@"
