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
# | pgbouncer | in front of the primary, in transaction mode; in    | off                                     |
# |           | the mode that the name of the database says, if it  |                                         |
# |           | is `session` or `statement`                         |                                         |
#
# All listen on 127.0.0.1, on ::1 if the machine has it, on free ports, and on a Unix socket. The variables
# CENOTE_TEST_POSTGRES… of the command have their addresses: see `print_environment`. `make_template` creates the users;
# `write_hba` sets how each may log in.
#
# A test that kills its server has one of its own, from a copy of the same data:
#
#     ci/postgres.sh own HOME NAME PORT [--name=value ...]
#
# runs it in the foreground; a second call reuses the data. A standby that follows another server of this kind is a copy of
# that one:
#
#     ci/postgres.sh follow HOME NAME PORT PORT_OF_THE_OTHER [--name=value ...]
#
# The end of `run` stops these servers, too. The script never touches a server that the machine runs for itself.

source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"
server_user=postgres

# Debian keeps the programs of its server off the PATH, one directory a version.
find_programs() {
    local newest
    newest="$(compgen -G "/usr/lib/postgresql/*/bin/initdb" | sort -V | tail -n 1)" || true
    if [[ -n "$newest" ]]; then
        PATH="$(dirname "$newest"):$PATH"
    fi
    PATH="$PATH:/usr/sbin:/sbin"
    need_programs "postgresql pgbouncer openssl" initdb postgres pg_basebackup pgbouncer openssl
}

# ---- data, users and certificates -------------------------------------------

sign_certificates() {
    sign primary -sha256 "DNS:localhost,IP:127.0.0.1,IP:::1"
    sign second -sha384 "DNS:elsewhere.example"
    # Self-signed and marked as an authority, as the manuals of many servers recommend.
    sign_itself itself localhost "subjectAltName=DNS:localhost,IP:127.0.0.1"
    # A client certificate of the user "certified", with its key in several forms.
    sign certified -sha256 "DNS:certified"
    local key="$home/tls/certified.key"
    openssl pkey -in "$key" -outform DER -out "$home/tls/certified-der.key"
    openssl pkcs8 -topk8 -in "$key" -v2 aes-256-cbc -passout pass:key-secret -out "$home/tls/certified-encrypted.key"
    openssl pkcs8 -topk8 -in "$key" -scrypt -passout pass:key-secret -out "$home/tls/certified-scrypt.key"
    openssl ec -in "$key" -aes256 -passout pass:key-secret -out "$home/tls/certified-old.key" 2>/dev/null
}

write_hba() {
    cat >"$home/template/pg_hba.conf" <<'HBA'
# type     database  user            address  method
local      all       cenote          trust
local      all       trusted         trust
local      all       plain           password
local      all       hashed          md5
local      all       scram,odd       scram-sha-256
local      replication cenote        trust
host       all       cenote          all      scram-sha-256
host       all       trusted         all      trust
host       all       plain           all      password
host       all       hashed          all      md5
host       all       scram,odd       all      scram-sha-256
hostssl    all       tls_only        all      scram-sha-256
hostssl    all       certified       all      cert
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
CREATE ROLE certified LOGIN
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

# ---- start and stop --------------------------------------------------------

serve() {
    as_server postgres -D "$2" -p "$1" -k "$home/sockets" --listen_addresses=127.0.0.1 "${@:3}"
}

serve_pgbouncer() {
    printf '"%s" "%s"\n' cenote cenote-secret >"$home/pgbouncer.users"
    cat >"$home/pgbouncer.ini" <<INI
[databases]
session = host=127.0.0.1 port=$(<"$home/primary.port") dbname=cenote pool_mode=session
statement = host=127.0.0.1 port=$(<"$home/primary.port") dbname=cenote pool_mode=statement
* = host=127.0.0.1 port=$(<"$home/primary.port")
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir = $home/sockets
pidfile = $home/sockets/pgbouncer.pid
auth_type = scram-sha-256
auth_file = $home/pgbouncer.users
admin_users = cenote
pool_mode = transaction
default_pool_size = 4
INI
    as_server pgbouncer "$home/pgbouncer.ini"
}

# start_postgres NAME [--name=value ...]
start_postgres() {
    start_server "$1" "ready to accept (read-only )?connections" \
        serve "$home/$1" --listen_addresses=localhost "${@:2}"
}

start_primary() {
    start_postgres primary --ssl=on --ssl_ca_file="$home/tls/ca.crt" \
        --ssl_cert_file="$home/tls/primary.crt" --ssl_key_file="$home/tls/primary.key"
}

start_second() {
    start_postgres second --ssl=on --default_transaction_read_only=on \
        --ssl_cert_file="$home/tls/second.crt" --ssl_key_file="$home/tls/second.key"
}

start_standby() {
    # Without a primary to follow it stays in recovery; to clients it is a standby.
    touch "$home/standby/standby.signal"
    own_by_server "$home/standby/standby.signal"
    start_postgres standby
}

start_servers() {
    copy_template primary
    copy_template second
    copy_template standby
    at_once start_primary start_second start_standby
    start_server pgbouncer "process up" serve_pgbouncer
}

# QUIT is PostgreSQL's "immediate".
pid_files() {
    echo "TERM $home/sockets/pgbouncer.pid"
    printf 'QUIT %s\n' "$home"/{primary,second,standby}/postmaster.pid "$home"/own/*/postmaster.pid
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

# Becomes a standby of the server on that port; a second call reuses the data, whatever the server is by then.
follow() {
    (($# >= 4)) || die "follow HOME NAME PORT PORT_OF_THE_OTHER [setting ...]"
    home="$1"
    local name="$2" port="$3" followed="$4"
    shift 4
    find_programs
    local data="$home/own/$name"
    if [[ ! -e "$data" ]]; then
        (as_server pg_basebackup --pgdata="$data" --checkpoint=fast --wal-method=stream --no-sync \
            --write-recovery-conf --dbname="host=$home/sockets port=$followed user=cenote application_name=$name")
    fi
    serve "$port" "$data" "$@"
}

case "${1:-}" in
follow) follow "${@:2}" ;;
*) main "$@" ;;
esac
