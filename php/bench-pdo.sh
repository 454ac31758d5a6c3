#!/usr/bin/env bash
#
# Measures pooled PDO next to PHP's own drivers in the same run, and prints the ratios:
#
#     php/bench-pdo.sh                  needs a quiet machine, and php8.2-sqlite3, php8.2-pgsql, php8.2-mysql (Debian)
#     ROUNDS=2000 php/bench-pdo.sh      shorter
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [[ -z "${CENOTE_TEST_POSTGRES:-}" ]]; then
    exec "$here/../ci/postgres.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
if [[ -z "${CENOTE_TEST_MARIADB_PORT:-}" ]]; then
    exec "$here/../ci/mariadb.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
source "$here/tools.sh"
build_extension
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
pdo=()
[[ "$built_in" == *" PDO "* ]] || pdo=(-d extension=pdo)
declare -A dsn=(
    [sqlite]="sqlite:$scratch/bench.db"
    [pgsql]="${CENOTE_TEST_POSTGRES//;/ }"
    [mysql]="mysql:host=127.0.0.1;port=$CENOTE_TEST_MARIADB_PORT;dbname=cenote;charset=utf8mb4"
)
stock() {
    local modules=("${pdo[@]}")
    [[ "$1" != mysql || "$built_in" == *" mysqlnd "* ]] || modules+=(-d extension=mysqlnd)
    [[ "$built_in" == *" pdo_$1 "* ]] || modules+=(-d "extension=pdo_$1")
    "$PHP" -n "${modules[@]}" "$php_folder/bench-pdo.php" "$2" "${dsn[$1]}" stock
}
ours() { "$PHP" -n "${pdo[@]}" -d "extension=$extension" "$php_folder/bench-pdo.php" "$2" "${dsn[$1]}" pooled; }

# compare DRIVER WHAT GOAL TEXT: twice each, in turn; the better one counts.
compare() {
    local a b c d
    a="$(stock "$1" "$2")" b="$(ours "$1" "$2")" c="$(stock "$1" "$2")" d="$(ours "$1" "$2")"
    awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" -v more="$([[ $2 == transactions ]] && echo 1 || echo 0)" \
        -v what="$1: $4" -v goal="$3" 'BEGIN {
            stock = more ? (a > c ? a : c) : (a < c ? a : c); ours = more ? (b > d ? b : d) : (b < d ? b : d)
            printf "%-58s %10.1f %10.1f %8.2f  (goal %s)\n", what, stock, ours, ours / stock, goal }'
}
printf '%-58s %10s %10s %8s\n' "" "PHP's own" "pooled" "ratio"
for driver in sqlite pgsql mysql; do
    case "$driver" in sqlite) goal=1.1 ;; pgsql) goal=1.15 ;; *) goal=1.5 ;; esac
    compare "$driver" execute "<= $goal" "execute a prepared point read and fetch, us"
    compare "$driver" prepare - "prepare, execute and fetch, us"
    [[ "$driver" == pgsql ]] && compare "$driver" query "<= 1.0" "query() with a new text, us" || compare "$driver" query - "query() with a new text, us"
    [[ "$driver" == pgsql ]] && compare "$driver" transactions ">= 1.8" "100 coroutines over 5 connections, transactions/s" ||
        compare "$driver" transactions - "100 coroutines over 5 connections, transactions/s"
done
