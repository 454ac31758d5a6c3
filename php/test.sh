#!/usr/bin/env bash
#
# Every check of the extension that needs no foreign files: its tests, the stub, the examples, loading, php-fpm and the built-in
# server. It starts PostgreSQL and MariaDB by the scripts of ci/.
#
#     php/test.sh
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# The tests of PDO need servers.
if [[ -z "${CENOTE_TEST_POSTGRES:-}" ]]; then
    exec "$here/../ci/postgres.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
if [[ -z "${CENOTE_TEST_MARIADB:-}" ]]; then
    exec "$here/../ci/mariadb.sh" run -- "${BASH_SOURCE[0]}" "$@"
fi
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
build_extension
scratch="$(mktemp -d)"
server=""
stop() {
    [[ -z "$server" ]] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
    rm -rf "$scratch"
}
trap stop EXIT
php_with() { "$PHP" -n -d "extension=$extension" "$@"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

echo "-- tests"
run_phpt --show-diff "$php_folder/tests" | sed -n '/^FAIL/p; /DIFF/,/DONE/p; /^Tests passed/p; /^Tests failed/p' || status=$?
[[ -z "${status:-}" ]] || fail "the tests"
if [[ -f "$("$PHP_CONFIG" --extension-dir)/opcache.so" ]]; then
    for jit in disable tracing; do
        echo "-- tests with opcache, JIT $jit"
        run_phpt -d zend_extension=opcache -d opcache.enable_cli=1 -d opcache.jit_buffer_size=32M -d "opcache.jit=$jit" \
            "$php_folder/tests" | sed -n '/^FAIL/p; /^Tests passed/p' || fail "the tests with opcache, JIT $jit"
    done
fi

echo "-- stub"
php_with "$php_folder/stub_check.php"

echo "-- example"
php_with "$php_folder/examples/shop.php" >"$scratch/out"
grep -q "20 answers over 4 connections" "$scratch/out" || { cat "$scratch/out"; fail "the example"; }
grep -q "faster than one after the other" "$scratch/out" || { cat "$scratch/out"; fail "the example"; }

echo "-- PDO examples, on three databases"
pdo=()
[[ "$built_in" == *" PDO "* ]] || pdo=(-d extension=pdo)
for dsn in "sqlite:$scratch/example.db" "$CENOTE_TEST_POSTGRES" "$CENOTE_TEST_MARIADB"; do
    php_with "${pdo[@]}" "$php_folder/examples/pdo.php" "$dsn" >"$scratch/out" || { cat "$scratch/out"; fail "examples/pdo.php on ${dsn%%:*}"; }
    php_with "${pdo[@]}" "$php_folder/examples/bank.php" "$dsn" "${BANK_TRANSFERS:-2000}" >"$scratch/out" || { cat "$scratch/out"; fail "the bank on ${dsn%%:*}"; }
    head -1 "$scratch/out"
done
if [[ -f "$("$PHP_CONFIG" --extension-dir)/pdo_sqlite.so" ]]; then
    echo "-- beside PHP's own driver"
    php_with "${pdo[@]}" -d extension=pdo_sqlite "$php_folder/examples/pdo.php" >"$scratch/out" || { cat "$scratch/out"; fail "beside pdo_sqlite"; }
    for all in 0 1; do
        php_with "${pdo[@]}" -d extension=pdo_sqlite -d "cenote.pdo_unpooled=$all" -r '
            $pdo = new PDO("sqlite::memory:");
            echo $pdo->getAttribute(PDO::ATTR_DRIVER_NAME), " ", $pdo->getPool() === null ? "unpooled" : "pooled", " ";
            try { $pdo->prepare("SELECT 1", [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]); echo "stock"; }
            catch (PDOException $e) { echo str_contains($e->getMessage(), "do not exist here") ? "cenote" : "stock"; }' >"$scratch/out"
        [[ "$(cat "$scratch/out")" == "sqlite unpooled $([[ $all == 1 ]] && echo cenote || echo stock)" ]] || { cat "$scratch/out"; fail "cenote.pdo_unpooled=$all"; }
    done
fi

echo "-- random operations"
for seed in $(seq "${FUZZ_SEEDS:-60}"); do
    status=0
    timeout 60 "$PHP" -n -d memory_limit=32M -d "extension=$extension" "$php_folder/fuzz.php" "$seed" >"$scratch/out" 2>&1 || status=$?
    # 255 is an uncaught exception or a fatal error, which some seeds end with.
    ((status == 0 || status == 255)) || { tail -3 "$scratch/out"; fail "seed $seed ends with status $status"; }
    ! grep -q "cenote failed unexpectedly" "$scratch/out" || { cat "$scratch/out"; fail "seed $seed"; }
done

echo "-- a PHP that has Async\\Pool itself"
cat >"$scratch/other.c" <<'C'
#include "php.h"
static PHP_MINIT_FUNCTION(other)
{
	zend_class_entry ce;
	INIT_CLASS_ENTRY(ce, "Async\\Pool", NULL);
	zend_register_internal_class(&ce);
	return SUCCESS;
}
static zend_module_entry module = {
	STANDARD_MODULE_HEADER, "other", NULL, PHP_MINIT(other), NULL, NULL, NULL, NULL, "0", STANDARD_MODULE_PROPERTIES
};
ZEND_DLEXPORT zend_module_entry *get_module(void) { return &module; }
C
# shellcheck disable=SC2046
gcc -shared -fPIC -o "$scratch/other.so" $("$PHP_CONFIG" --includes) "$scratch/other.c"
"$PHP" -n -d display_startup_errors=1 -d "extension=$scratch/other.so" -d "extension=$extension" \
    -r 'var_dump(function_exists("Async\spawn"), method_exists("Async\Pool", "acquire"));' >"$scratch/out" 2>&1
grep -q "cenote is not loaded, because this PHP has Async.Pool already" "$scratch/out" || { cat "$scratch/out"; fail "no message"; }
[[ "$(grep -c 'bool(false)' "$scratch/out")" == 2 ]] || { cat "$scratch/out"; fail "it was loaded all the same"; }

echo "-- the built-in server"
cat >"$scratch/index.php" <<'P'
<?php
echo count(Async\get_coroutines()), ' ', Async\await(Async\spawn(function () { Async\delay(1); return 'ok'; })), "\n";
Async\spawn(fn() => Async\delay(60_000));
trigger_error('the end', E_USER_ERROR);
P
port=$((15000 + RANDOM % 15000))
php_with -S "127.0.0.1:$port" -t "$scratch" >/dev/null 2>&1 &
server=$!
for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    sleep 0.05
done
for _ in 1 2 3 4 5; do
    "$PHP" -n -r "echo @file_get_contents('http://127.0.0.1:$port/', false, stream_context_create(['http' => ['ignore_errors' => true]]));" >"$scratch/out"
    grep -q "^0 ok" "$scratch/out" || { cat "$scratch/out"; fail "the built-in server"; }
done

echo "-- php-fpm"
"$php_folder/fpm/test.sh" "${FPM_REQUESTS:-2000}"
