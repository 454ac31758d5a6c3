#!/usr/bin/env bash
#
# The PostgreSQL servers and the PgBouncer that the tests need, for as long as a command runs:
#
#     ci/postgres.sh run -- cargo test -p cenote --features postgres
#
# or, to keep them while one works:
#
#     eval "$(ci/postgres.sh start /tmp/servers)"
#     ci/postgres.sh stop /tmp/servers
#
# | server    | is                                                  | TLS                                     |
# |-----------|-----------------------------------------------------|-----------------------------------------|
# | primary   | the one to write to                                 | signed by ca.crt, for localhost and IPs |
# | second    | refuses to write (default_transaction_read_only)    | the same, SHA-384, for another name     |
# | standby   | in recovery for ever                                | off                                     |
# | pgbouncer | in front of the primary, in transaction mode        | off                                     |
#
# All listen on 127.0.0.1 and ::1 where there is one, on free ports, and on a unix socket. Where
# they are stands in the environment of the command, in CENOTE_TEST_POSTGRES and its sisters: see
# `print_environment`. Their users are made in `make_template`; who may come in how, in `write_hba`.
#
# A test that kills its server has one of its own, from a copy of the same data:
#
#     ci/postgres.sh own HOME NAME PORT [-c name=value ...]
#
# runs it in the foreground, again and again on the same data if asked to. The end of
# `run` ends those as well. Nothing here touches a server that the machine runs for itself.

set -euo pipefail

script="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")"
home=""
command_pid=""

die() {
    echo "ci/postgres.sh: $*" >&2
    exit 1
}

# ---- the machine -----------------------------------------------------------

# Debian keeps the programs of its server off the PATH, one directory a version.
find_programs() {
    local newest
    newest="$(compgen -G "/usr/lib/postgresql/*/bin/initdb" | sort -V | tail -n 1)" || true
    if [[ -n "$newest" ]]; then
        PATH="$(dirname "$newest"):$PATH"
    fi
    PATH="$PATH:/usr/sbin:/sbin"
    local name
    for name in initdb postgres pgbouncer openssl; do
        command -v "$name" >/dev/null ||
            die "not found: $name. On Debian: apt-get install postgresql pgbouncer openssl"
    done
}

# PostgreSQL and PgBouncer refuse to run as root. `setpriv` becomes the program, so that
# the process one starts is the one that serves.
as_server() {
    if ((EUID == 0)); then
        exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
    else
        exec "$@"
    fi
}

own_by_server() {
    if ((EUID == 0)); then
        chown -R postgres:postgres "$@"
    fi
}

# Ports are drawn from below the range that outgoing connections get theirs from.
draw_port() {
    echo $((15000 + RANDOM % 15000))
}

# ---- what the servers are made of ------------------------------------------

# Elliptic curves, because an RSA key takes longer than the rest of this script.
make_certificates() {
    local name
    mkdir "$home/tls"
    for name in ca stranger; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 30 \
            -keyout "$home/tls/$name.key" -out "$home/tls/$name.crt" -subj "/CN=Cenote tests: $name" \
            -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
    done
    # Signed by itself, and an authority: what comes of following the manual of many a server.
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 30 \
        -keyout "$home/tls/itself.key" -out "$home/tls/itself.crt" -subj "/CN=localhost" \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" 2>/dev/null
    sign primary -sha256 "DNS:localhost,IP:127.0.0.1,IP:::1"
    sign second -sha384 "DNS:elsewhere.example"
    own_by_server "$home/tls"
    chmod 600 "$home"/tls/*.key
}

sign() {
    local name="$1" digest="$2" names="$3"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" \
        -keyout "$home/tls/$name.key" -out "$home/tls/$name.csr" 2>/dev/null
    openssl x509 -req -in "$home/tls/$name.csr" -CA "$home/tls/ca.crt" -CAkey "$home/tls/ca.key" \
        -CAcreateserial "$digest" -days 30 -out "$home/tls/$name.crt" \
        -extfile <(echo "subjectAltName=$names") 2>/dev/null
}

write_hba() {
    cat >"$home/template/pg_hba.conf" <<'HBA'
# type     database  user            address  method
local      all       cenote          trust
local      all       trusted         trust
local      all       plain           password
local      all       hashed          md5
local      all       scram,odd       scram-sha-256
host       all       cenote          all      scram-sha-256
host       all       trusted         all      trust
host       all       plain           all      password
host       all       hashed          all      md5
host       all       scram,odd       all      scram-sha-256
hostssl    all       tls_only        all      scram-sha-256
hostnossl  all       no_tls          all      scram-sha-256
HBA
}

write_settings() {
    cat >>"$home/template/postgresql.conf" <<'CONF'
fsync = off
synchronous_commit = off
full_page_writes = off
shared_buffers = 16MB
max_connections = 100
max_wal_size = 256MB
autovacuum = off
jit = off
log_destination = stderr
logging_collector = off
timezone = 'UTC'
log_timezone = 'UTC'
CONF
}

# One `initdb`; every server is a copy of it. In single-user mode a line is a statement.
make_template() {
    mkdir "$home/template"
    own_by_server "$home/template"
    (as_server initdb --pgdata="$home/template" --username=cenote --auth=trust --encoding=UTF8 \
        --locale=C --no-sync --no-instructions) >"$home/initdb.log" 2>&1 || {
        cat "$home/initdb.log" >&2
        die "initdb failed"
    }
    write_settings
    write_hba
    (as_server postgres --single -D "$home/template" postgres) >"$home/roles.log" 2>&1 <<'SQL'
ALTER ROLE cenote PASSWORD 'cenote-secret'
CREATE ROLE trusted LOGIN
CREATE ROLE plain LOGIN PASSWORD 'plain-secret'
CREATE ROLE scram LOGIN PASSWORD 'scram-secret'
CREATE ROLE odd LOGIN PASSWORD 'ö d''d;"=\%@:/#'
CREATE ROLE tls_only LOGIN PASSWORD 'tls-secret'
CREATE ROLE no_tls LOGIN PASSWORD 'open-secret'
SET password_encryption = 'md5'
CREATE ROLE hashed LOGIN PASSWORD 'hashed-secret'
CREATE DATABASE cenote
SQL
    if grep -qE "(ERROR|FATAL|PANIC):" "$home/roles.log"; then
        cat "$home/roles.log" >&2
        die "the users of the tests cannot be made"
    fi
}

copy_template() {
    cp -a "$home/template" "$1"
}

# ---- to start and to stop --------------------------------------------------

# Starts a server on a free port; writes the port to NAME.port: start_server NAME [-c name=value ...]
start_server() {
    local name="$1" try port pid log
    shift
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port="$(draw_port)"
        log="$home/$name-$try.log"
        (as_server postgres -D "$home/$name" -p "$port" -k "$home/sockets" \
            -c listen_addresses=localhost "$@") </dev/null >"$log" 2>&1 &
        pid=$!
        # It ends at once if the port is taken, and says so when it is ready.
        while kill -0 "$pid" 2>/dev/null; do
            if grep -sqE "ready to accept (read-only )?connections" "$log"; then
                echo "$port" >"$home/$name.port"
                return 0
            fi
            sleep 0.02
        done
    done
    cat "$log" >&2
    die "$name does not start"
}

start_pgbouncer() {
    local try port pid log
    printf '"%s" "%s"\n' cenote cenote-secret >"$home/pgbouncer.users"
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port="$(draw_port)"
        log="$home/pgbouncer-$try.log"
        cat >"$home/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=$(<"$home/primary.port")
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir = $home/sockets
pidfile = $home/sockets/pgbouncer.pid
auth_type = scram-sha-256
auth_file = $home/pgbouncer.users
admin_users = cenote
pool_mode = transaction
default_pool_size = 4
INI
        (as_server pgbouncer "$home/pgbouncer.ini") </dev/null >"$log" 2>&1 &
        pid=$!
        while kill -0 "$pid" 2>/dev/null; do
            if grep -sq "process up" "$log"; then
                echo "$port" >"$home/pgbouncer.port"
                return 0
            fi
            sleep 0.02
        done
    done
    cat "$log" >&2
    die "pgbouncer does not start"
}

start_all() {
    find_programs
    mkdir -p "$home/sockets" "$home/own"
    chmod 755 "$home"
    own_by_server "$home/sockets" "$home/own"
    local jobs=() job
    make_certificates &
    jobs+=($!)
    make_template &
    jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job"; done

    jobs=()
    copy_template "$home/primary"
    copy_template "$home/second"
    copy_template "$home/standby"
    # With nobody to follow it stays in recovery, which is what a standby is to its clients.
    touch "$home/standby/standby.signal"
    own_by_server "$home/standby/standby.signal"
    start_server primary -c ssl=on -c ssl_ca_file="$home/tls/ca.crt" \
        -c ssl_cert_file="$home/tls/primary.crt" -c ssl_key_file="$home/tls/primary.key" &
    jobs+=($!)
    start_server second -c ssl=on -c default_transaction_read_only=on \
        -c ssl_cert_file="$home/tls/second.crt" -c ssl_key_file="$home/tls/second.key" &
    jobs+=($!)
    start_server standby &
    jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job"; done
    start_pgbouncer
}

# Ends a server by what it wrote down itself, so that those which tests have started end as well.
end_by_file() {
    local pid signal="$2"
    pid="$(head -n 1 "$1" 2>/dev/null)" || return 0
    [[ "$pid" =~ ^[0-9]+$ ]] || return 0
    # One that a test has frozen wakes up to end.
    kill -CONT "$pid" 2>/dev/null || return 0
    kill "-$signal" "$pid" 2>/dev/null || return 0
    echo "$pid"
}

stop_all() {
    local pids=() pid file wait_until
    pid="$(end_by_file "$home/sockets/pgbouncer.pid" TERM)"
    [[ -z "$pid" ]] || pids+=("$pid")
    for file in "$home"/{primary,second,standby}/postmaster.pid "$home"/own/*/postmaster.pid; do
        [[ -e "$file" ]] || continue
        # "Immediate": nothing of the data is needed any more.
        pid="$(end_by_file "$file" QUIT)"
        [[ -z "$pid" ]] || pids+=("$pid")
    done
    wait_until=$((SECONDS + 10))
    for pid in "${pids[@]}"; do
        while kill -0 "$pid" 2>/dev/null && ((SECONDS < wait_until)); do sleep 0.02; done
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$home"
}

print_environment() {
    local who="dbname=cenote;user=cenote;password=cenote-secret"
    local primary second standby pgbouncer
    primary="$(<"$home/primary.port")"
    second="$(<"$home/second.port")"
    standby="$(<"$home/standby.port")"
    pgbouncer="$(<"$home/pgbouncer.port")"
    cat <<VARIABLES
export CENOTE_TEST_POSTGRES='pgsql:host=127.0.0.1;port=$primary;$who'
export CENOTE_TEST_POSTGRES_UNIX='pgsql:host=$home/sockets;port=$primary;$who'
export CENOTE_TEST_POSTGRES_SECOND='pgsql:host=127.0.0.1;port=$second;$who'
export CENOTE_TEST_POSTGRES_STANDBY='pgsql:host=127.0.0.1;port=$standby;$who'
export CENOTE_TEST_POSTGRES_PGBOUNCER='pgsql:host=127.0.0.1;port=$pgbouncer;$who'
export CENOTE_TEST_POSTGRES_PORT='$primary'
export CENOTE_TEST_POSTGRES_SECOND_PORT='$second'
export CENOTE_TEST_POSTGRES_STANDBY_PORT='$standby'
export CENOTE_TEST_POSTGRES_SOCKETS='$home/sockets'
export CENOTE_TEST_POSTGRES_TLS='$home/tls'
export CENOTE_TEST_POSTGRES_HOME='$home'
export CENOTE_TEST_POSTGRES_SCRIPT='$script'
VARIABLES
}

# ---- commands --------------------------------------------------------------

end_run() {
    local status=$?
    trap - EXIT INT TERM
    if [[ -n "$command_pid" ]]; then
        kill -TERM "$command_pid" 2>/dev/null || true
        wait "$command_pid" 2>/dev/null || true
    fi
    stop_all
    exit "$status"
}

run_command() {
    [[ "${1:-}" == "--" ]] && shift
    (($#)) || die "run what? For example: ci/postgres.sh run -- cargo test -p cenote --features postgres"
    home="$(mktemp -d)"
    trap end_run EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    start_all
    eval "$(print_environment)"
    local status=0
    # In the background, because a signal interrupts `wait` and nothing else.
    "$@" <&0 &
    command_pid=$!
    wait "$command_pid" || status=$?
    command_pid=""
    exit "$status"
}

start_to_stay() {
    home="$(realpath -m "${1:?start where? ci/postgres.sh start DIRECTORY}")"
    [[ ! -e "$home" ]] || die "$home is there already: ci/postgres.sh stop $home"
    mkdir -p "$home"
    trap 'stop_all' ERR
    start_all >&2
    trap - ERR
    print_environment
}

run_own() {
    (($# >= 3)) || die "ci/postgres.sh own HOME NAME PORT [-c name=value ...]"
    home="$1"
    local data="$home/own/$2" port="$3"
    shift 3
    find_programs
    [[ -e "$data" ]] || copy_template "$data"
    as_server postgres -D "$data" -p "$port" -k "$home/sockets" -c listen_addresses=127.0.0.1 "$@"
}

case "${1:-}" in
run)
    shift
    run_command "$@"
    ;;
start)
    start_to_stay "${2:-}"
    ;;
stop)
    home="$(realpath -m "${2:?stop what? ci/postgres.sh stop DIRECTORY}")"
    [[ -d "$home/template" ]] || die "$home has no servers in it"
    stop_all
    ;;
own)
    shift
    run_own "$@"
    ;;
*)
    die "run, start, stop or own? The first lines of $script say what each does."
    ;;
esac
