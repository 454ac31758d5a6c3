#!/usr/bin/env bash
#
# Runs php-fpm on a private socket and sends it a few thousand requests: work, fatal errors, exit, time
# limits, memory limits, killed workers. Nothing may leak from one request into the next, and the memory of
# a worker must stay flat.
#
#     php/fpm/test.sh [REQUESTS]        2000 unless told otherwise
#
# With CENOTE_TEST_POSTGRES and CENOTE_TEST_MARIADB (see ci/), requests also leave PDO handles in the middle of transactions; at the
# end the servers must have no open transaction and no connection of theirs.
#
# Needs php-fpm (Debian: php8.2-fpm) and cgi-fcgi (Debian: libfcgi-bin).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../tools.sh"
requests="${1:-2000}"
build_extension
scratch="$(mktemp -d)"
chmod 755 "$scratch"
fpm="$(command -v "php-fpm${php_version%.*}" || command -v php-fpm || true)"
[[ -n "$fpm" ]] || { echo "php-fpm is not found (Debian: apt-get install php8.2-fpm)" >&2; exit 1; }
master=""
stop() {
    [[ -z "$master" ]] || { kill -TERM "$master" 2>/dev/null || true; wait "$master" 2>/dev/null || true; }
    rm -rf "$scratch"
}
trap stop EXIT

cat >"$scratch/fpm.conf" <<CONF
[global]
error_log = $scratch/fpm.log
daemonize = no
[www]
listen = $scratch/socket
user = $(id -un)
group = $(id -gn)
pm = static
pm.max_children = 1
pm.max_requests = 0
request_terminate_timeout = 5s
php_admin_value[error_log] = $scratch/php.log
php_admin_value[memory_limit] = 32M
php_admin_flag[display_errors] = on
env[CENOTE_TEST_POSTGRES] = "${CENOTE_TEST_POSTGRES:-}"
env[CENOTE_TEST_MARIADB] = "${CENOTE_TEST_MARIADB:-}"
CONF
pdo=()
[[ "$built_in" == *" PDO "* ]] || pdo=(-d extension=pdo)
opcache=()
if [[ -f "$("$PHP_CONFIG" --extension-dir)/opcache.so" ]]; then
    opcache=(-d zend_extension=opcache -d opcache.enable=1)
fi
as_root=()
((EUID)) || as_root=(-R)
"$fpm" -n "${as_root[@]}" -F -y "$scratch/fpm.conf" "${opcache[@]}" "${phpt_options[@]}" "${pdo[@]}" -d "extension=$extension" &
master=$!
for _ in $(seq 200); do
    [[ -S "$scratch/socket" ]] && break
    kill -0 "$master" 2>/dev/null || { cat "$scratch/fpm.log" >&2; exit 1; }
    sleep 0.05
done

# Prints the body of one request.
get() {
    QUERY_STRING="do=$1" REQUEST_METHOD=GET SCRIPT_FILENAME="$php_folder/fpm/page.php" \
        cgi-fcgi -bind -connect "$scratch/socket" 2>/dev/null | sed '1,/^\r*$/d'
}
fail() {
    echo "FAILED: $*" >&2
    tail -5 "$scratch/fpm.log" >&2
    exit 1
}
expect() {
    local body
    body="$(get "$1" || true)"
    [[ "$body" != *LEAKED* ]] || fail "$1: something of an earlier request is left"
    [[ "$body" == *"$2"* ]] || fail "$1: expected '$2', got: $body"
}
# What may happen in a request, and what its body says then. Slow ones come rarely.
often=(work=ok fatal=fatal fatal-hook=fatal fatal-main=fatal exit=bye uncaught=uncaught left=left memory=exhausted work=ok)
rarely=(time="Maximum execution time" kill= hang=)
if [[ -n "${CENOTE_TEST_POSTGRES:-}" ]]; then
    often+=(pdo=ok pdo-fatal=fatal pdo-exit=bye pdo-left=ok pdo=ok)
    rarely+=(pdo-kill= pdo-hang=)
fi

# Prints how many connections of the page the servers have, and how many are in a transaction.
foreign_connections() {
    "$PHP" -n "${pdo[@]}" -d "extension=$extension" -r '
        $pg = new PDO(getenv("CENOTE_TEST_POSTGRES") . ";application_name=watcher");
        $my = new PDO(getenv("CENOTE_TEST_MARIADB"));
        $all = $pg->query("SELECT count(*) FROM pg_stat_activity WHERE application_name = \x27php-fpm page\x27")->fetchColumn();
        $open = $pg->query("SELECT count(*) FROM pg_stat_activity WHERE application_name = \x27php-fpm page\x27 AND state LIKE \x27idle in%\x27")->fetchColumn();
        $all += $my->query("SELECT count(*) - 1 FROM information_schema.processlist WHERE user = \x27cenote\x27 AND id <> connection_id()")->fetchColumn() + 1;
        $open += $my->query("SELECT count(*) FROM information_schema.innodb_trx")->fetchColumn();
        echo "$all $open\n";'
}

one() {
    local case="${often[$1 % ${#often[@]}]}"
    expect "${case%%=*}" "${case#*=}"
}
# Warm up: the allocator and opcache take what they need.
for i in $(seq 100); do one "$i"; done
read -r pid before maps_before files_before < <(get memory-use)
for i in $(seq "$requests"); do one "$i"; done
read -r pid_after after maps_after files_after < <(get memory-use)
[[ "$pid" == "$pid_after" ]] || fail "the worker has died"
echo "$requests requests: anonymous memory $before KB before, $after KB after;" \
    "mappings $maps_before and $maps_after; files $files_before and $files_after"
((after - before < 512)) || fail "the memory of the worker grows"
((maps_after - maps_before < 8)) || fail "mappings grow: stacks are not freed"
((files_after == files_before)) || fail "open files grow"

for case in "${rarely[@]}" "${rarely[@]}"; do
    expect "${case%%=*}" "${case#*=}"
    for i in $(seq 20); do one "$i"; done
done
read -r pid_last _ < <(get memory-use)
[[ "$pid_last" != "$pid_after" ]] || fail "the killed worker still runs"
echo "time limits, killed and hanging workers: the next requests are clean"

if [[ -n "${CENOTE_TEST_POSTGRES:-}" ]]; then
    for _ in $(seq 100); do
        read -r all open < <(foreign_connections)
        ((all + open)) || break
        sleep 0.1
    done
    ((all == 0)) || fail "$all connections of ended requests are still open"
    ((open == 0)) || fail "$open transactions of ended requests are still open"
    echo "no connection of an ended request is left, and no transaction"
fi
