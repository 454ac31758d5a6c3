#!/usr/bin/env bash
#
# Runs foreign PDO tests, unmodified, against this extension. They are not part of this repository.
#
#     php/pdo-tests.sh upstream CHECKOUT [sqlite|pgsql|mysql ...]    TrueAsync's (github.com/true-async/php-async)
#     php/pdo-tests.sh common PHP-SRC [sqlite|pgsql|mysql ...]       PHP's tests for all drivers: ours, ours with
#                                                                    a pool, and PHP's own driver
#     php/pdo-tests.sh driver PHP-SRC [sqlite|pgsql|mysql ...]       PHP's tests of each driver
#
# PHP-SRC is a clone of github.com/php/php-src at the tag of the installed PHP. The servers are started by the scripts of
# `ci/`, unless CENOTE_TEST_POSTGRES and CENOTE_TEST_MARIADB_PORT are set. KEEP=FOLDER keeps the results of failed tests.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[[ $# -ge 2 && "$1" =~ ^(upstream|common|driver)$ && -d "$2" ]] || { sed -n '3,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
if [[ -z "${CENOTE_TEST_POSTGRES:-}" ]]; then
    exec "$here/../ci/postgres.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
if [[ -z "${CENOTE_TEST_MARIADB_PORT:-}" ]]; then
    exec "$here/../ci/mariadb.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
what="$1"
checkout="$(cd "$2" && pwd)"
shift 2
(($#)) || set -- sqlite pgsql mysql

source "$here/tools.sh"
build_extension
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# Modules that the tests name in their --EXTENSIONS--, and that do nothing: then our drivers have the names of PHP's.
empty_module() {
    cat >"$scratch/$1.c" <<C
#include "php.h"
static zend_module_entry module = {
	STANDARD_MODULE_HEADER, "$1", NULL, NULL, NULL, NULL, NULL, NULL, "0", STANDARD_MODULE_PROPERTIES
};
ZEND_DLEXPORT zend_module_entry *get_module(void) { return &module; }
C
    # shellcheck disable=SC2046
    gcc -shared -fPIC -O1 -o "$scratch/$1.so" $("$PHP_CONFIG" --includes) "$scratch/$1.c"
}

# The DSN for PHP's own driver as well: libpq takes blanks between its pairs.
pgsql_dsn="${CENOTE_TEST_POSTGRES//;/ }"
mysql_dsn="mysql:host=127.0.0.1;port=$CENOTE_TEST_MARIADB_PORT;dbname=cenote;charset=utf8mb4"
export PDO_PGSQL_TEST_DSN="$pgsql_dsn"
export PDO_MYSQL_TEST_DSN="$mysql_dsn" PDO_MYSQL_TEST_USER=cenote PDO_MYSQL_TEST_PASS=cenote-secret
export PDO_MYSQL_TEST_HOST=127.0.0.1 PDO_MYSQL_TEST_PORT="$CENOTE_TEST_MARIADB_PORT" PDO_MYSQL_TEST_DB=cenote
export MYSQL_TEST_HOST=127.0.0.1 MYSQL_TEST_PORT="$CENOTE_TEST_MARIADB_PORT" MYSQL_TEST_DB=cenote
export MYSQL_TEST_USER=cenote MYSQL_TEST_PASSWD=cenote-secret

pdo=()
[[ "$built_in" == *" PDO "* ]] || pdo=(-d extension=pdo)
stock() {
    [[ "$1" != mysql || "$built_in" == *" mysqlnd "* ]] || printf '%s\n' -d extension=mysqlnd
    [[ "$built_in" == *" pdo_$1 "* ]] || printf '%s\n' -d "extension=pdo_$1"
}

# run LABEL FOLDER OPTION ...: prints the counts and the failed tests.
run() {
    local label="$1" folder="$2" status=0
    shift 2
    local files=("$folder"/*.phpt)
    # It only leads to the common ones.
    files=("${files[@]/*\/common.phpt/}")
    mapfile -t files < <(printf '%s\n' "${files[@]}" | sed '/^$/d')
    run_phpt "$@" "${files[@]}" >"$scratch/log" 2>&1 || status=$?
    count() { sed -n "s/^Tests $1 *: *\([0-9]*\).*/\1/p" "$scratch/log"; }
    echo "$label: $(count passed) passed, $(count failed) failed, $(count skipped) skipped"
    sed -n '/^FAILED TEST SUMMARY/,/^=====/p' "$scratch/log" | sed -n 's/^\(.*\) \[.*\/\([^/]*\.phpt\)\]$/    \2  \1/p'
    if [[ -n "${KEEP:-}" ]]; then
        mkdir -p "$KEEP/$label" && cp -r "$folder/." "$KEEP/$label/"
    fi
    grep -q "^Tests passed" "$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
}

for driver in "$@"; do
    rm -rf "$scratch/tests"
    case "$what" in
        upstream)
            empty_module true_async
            mkdir "$scratch/tests"
            cp -r "$checkout/tests/pdo_$driver" "$checkout/tests/common" "$scratch/tests/"
            mapfile -t stock < <(stock "$driver")
            # Handles without a pool suspend only if they are ours.
            run "upstream-$driver" "$scratch/tests/pdo_$driver" "${pdo[@]}" "${stock[@]}" \
                -d cenote.pdo_unpooled=1 -d "extension=$scratch/true_async.so"
            ;;
        common | driver)
            empty_module "pdo_$driver"
            folder=ext/pdo_$driver/tests
            [[ "$what" == driver ]] || folder=ext/pdo/tests
            mapfile -t stock < <(stock "$driver")
            case "$driver" in
                sqlite) dsn=sqlite::memory: user="" password="" ;;
                pgsql) dsn="$pgsql_dsn" user="" password="" ;;
                mysql) dsn="$mysql_dsn" user=cenote password=cenote-secret ;;
            esac
            one() {
                rm -rf "$scratch/tests"
                mkdir -p "$scratch/tests/ext"
                cp -r "$checkout/ext/pdo" "$checkout/ext/pdo_$driver" "$scratch/tests/ext/"
                if [[ "$what" == common ]]; then
                    export REDIR_TEST_DIR="$scratch/tests/ext/pdo/tests/" PDOTEST_DSN="$dsn"
                    export PDOTEST_USER="$user" PDOTEST_PASS="$password"
                fi
                local label="$1"
                shift
                run "$label" "$scratch/tests/$folder" "$@"
            }
            one "$what-$driver-ours" "${pdo[@]}" -d "extension=$scratch/pdo_$driver.so"
            if [[ "$what" == common ]]; then
                # A private database in memory has one connection. CLEAN sections remove the tables of the tests.
                [[ "$driver" != sqlite ]] || dsn="sqlite:$scratch/pooled.db"
                # PDO::ATTR_POOL_ENABLED and PDO::ATTR_POOL_MAX.
                export PDOTEST_ATTR='a:2:{i:22;b:1;i:24;i:3;}'
                one "$what-$driver-pooled" "${pdo[@]}" -d "extension=$scratch/pdo_$driver.so"
                unset PDOTEST_ATTR
                [[ "$driver" != sqlite ]] || dsn=sqlite::memory:
            fi
            WITHOUT_CENOTE=1 one "$what-$driver-stock" "${pdo[@]}" "${stock[@]}"
            ;;
    esac
done
