#!/usr/bin/env bash
#
# The MariaDB server that the tests need, for as long as a command runs:
#
#     ci/mariadb.sh run -- cargo test -p cenote --features mysql
#
# or, to keep it while one works:
#
#     eval "$(ci/mariadb.sh start /tmp/server)"
#     ci/mariadb.sh stop /tmp/server
#
# It listens on 127.0.0.1, on a free port, with TLS signed by tls/ca.crt, and on a unix socket. Where it is
# stands in the environment of the command, in CENOTE_TEST_MARIADB and its sisters: see
# `print_environment`. Its users are made in `write_users`.
#
# A test that kills its server has one of its own, without TLS, from a copy of the same data:
#
#     ci/mariadb.sh own HOME NAME PORT [--name=value ...]
#
# runs it in the foreground, again and again on the same data if asked to. The end of
# `run` ends those as well. Nothing here touches a server that the machine runs for itself.

set -euo pipefail

script="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")"
home=""
command_pid=""

die() {
    echo "ci/mariadb.sh: $*" >&2
    exit 1
}

# ---- the machine -----------------------------------------------------------

find_programs() {
    PATH="$PATH:/usr/sbin:/sbin"
    local name
    for name in mariadbd mariadb-install-db openssl; do
        command -v "$name" >/dev/null ||
            die "not found: $name. On Debian: apt-get install mariadb-server openssl"
    done
}

# MariaDB refuses to run as root. `setpriv` becomes the program, so that the process one starts is the
# one that serves.
as_server() {
    if ((EUID == 0)); then
        exec setpriv --reuid=mysql --regid=mysql --init-groups "$@"
    else
        exec "$@"
    fi
}

own_by_server() {
    if ((EUID == 0)); then
        chown -R mysql:mysql "$@"
    fi
}

# Ports are drawn from below the range that outgoing connections get theirs from.
draw_port() {
    echo $((15000 + RANDOM % 15000))
}

# ---- what the servers are made of ------------------------------------------

# Elliptic curves, because an RSA key takes longer than the rest of this script.
make_certificates() {
    mkdir "$home/tls"
    local name
    for name in ca stranger; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 30 \
            -keyout "$home/tls/$name.key" -out "$home/tls/$name.crt" -subj "/CN=Cenote tests: $name" \
            -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
    done
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=primary" \
        -keyout "$home/tls/primary.key" -out "$home/tls/primary.csr" 2>/dev/null
    # For the name, and not for the address: so that a test can ask by the wrong one.
    openssl x509 -req -in "$home/tls/primary.csr" -CA "$home/tls/ca.crt" -CAkey "$home/tls/ca.key" \
        -CAcreateserial -sha256 -days 30 -out "$home/tls/primary.crt" \
        -extfile <(echo "subjectAltName=DNS:localhost") 2>/dev/null
    own_by_server "$home/tls"
    chmod 755 "$home/tls"
    chmod 644 "$home"/tls/*.crt
}

# Run at every start, in one session; a line is a statement.
write_users() {
    cat >"$home/users.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS cenote CHARACTER SET utf8mb4;
CREATE OR REPLACE USER 'cenote'@'%' IDENTIFIED BY 'cenote-secret';
GRANT ALL ON *.* TO 'cenote'@'%' WITH GRANT OPTION;
CREATE OR REPLACE USER 'odd'@'%' IDENTIFIED BY 'ö d;"=\\%@:/#';
GRANT ALL ON cenote.* TO 'odd'@'%';
CREATE OR REPLACE USER 'tls_only'@'%' IDENTIFIED BY 'tls-secret' REQUIRE SSL;
GRANT ALL ON cenote.* TO 'tls_only'@'%';
CREATE OR REPLACE USER 'few'@'%' IDENTIFIED BY 'few-secret' WITH MAX_USER_CONNECTIONS 2;
GRANT ALL ON cenote.* TO 'few'@'%';
CREATE OR REPLACE USER 'plain'@'%' IDENTIFIED BY 'plain-secret';
GRANT ALL ON cenote.* TO 'plain'@'%';
CREATE OR REPLACE ROLE auditor WITH ADMIN 'cenote'@'%';
SQL
}

# What every server is told. Nothing of the data outlives the tests.
settings() {
    printf '%s\n' --no-defaults --skip-log-bin --skip-name-resolve --performance-schema=off \
        --innodb-buffer-pool-size=24M --innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=2 \
        --innodb-flush-method=nosync --innodb-doublewrite=0 --character-set-server=utf8mb4 \
        --key-buffer-size=1M --aria-pagecache-buffer-size=1M --max-connections=200 \
        --default-time-zone=+02:00 --local-infile=1
}

# One installation; every server is a copy of it.
make_template() {
    mkdir "$home/template"
    own_by_server "$home/template"
    (as_server mariadb-install-db --no-defaults --datadir="$home/template" --skip-test-db \
        --auth-root-authentication-method=normal --innodb-log-file-size=8M --skip-log-bin \
        --innodb-buffer-pool-size=24M --innodb-flush-method=nosync) >"$home/install.log" 2>&1 || {
        cat "$home/install.log" >&2
        die "mariadb-install-db failed"
    }
}

copy_template() {
    cp -a "$home/template" "$1"
}

# Becomes the server: serve DATA PORT SOCKET [--name=value ...]
serve() {
    local data="$1" port="$2" socket="$3" given
    shift 3
    mapfile -t given < <(settings)
    # A server that starts clears up where it keeps temporary tables, those of others included.
    mkdir -p "$socket.tmp"
    own_by_server "$socket.tmp"
    as_server mariadbd "${given[@]}" --datadir="$data" --port="$port" --socket="$socket" \
        --tmpdir="$socket.tmp" --pid-file="$data/server.pid" --bind-address=127.0.0.1 --init-file="$home/users.sql" "$@"
}

# ---- to start and to stop --------------------------------------------------

start_primary() {
    local try port pid log
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port="$(draw_port)"
        log="$home/primary-$try.log"
        (serve "$home/primary" "$port" "$home/sockets/primary" --ssl-ca="$home/tls/ca.crt" \
            --ssl-cert="$home/tls/primary.crt" --ssl-key="$home/tls/primary.key") \
            </dev/null >"$log" 2>&1 &
        pid=$!
        # Nobody has to be told how it ended.
        disown "$pid"
        # It ends at once if the port is taken, and says so when it is ready.
        while kill -0 "$pid" 2>/dev/null; do
            if grep -sq "ready for connections" "$log"; then
                echo "$port" >"$home/primary.port"
                return 0
            fi
            sleep 0.02
        done
    done
    cat "$log" >&2
    die "MariaDB does not start"
}

start_all() {
    find_programs
    mkdir -p "$home/sockets" "$home/own"
    chmod 755 "$home"
    own_by_server "$home/sockets" "$home/own"
    write_users
    chmod 644 "$home/users.sql"
    local jobs=() job
    make_certificates &
    jobs+=($!)
    make_template &
    jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job"; done
    copy_template "$home/primary"
    start_primary
}

stop_all() {
    local pids=() pid file wait_until
    for file in "$home"/primary/server.pid "$home"/own/*/server.pid; do
        [[ -e "$file" ]] || continue
        pid="$(head -n 1 "$file" 2>/dev/null)" || continue
        [[ "$pid" =~ ^[0-9]+$ ]] || continue
        # Nothing of the data is needed any more; one that a test has frozen ends by this, too.
        kill -KILL "$pid" 2>/dev/null || continue
        pids+=("$pid")
    done
    wait_until=$((SECONDS + 10))
    for pid in "${pids[@]}"; do
        while kill -0 "$pid" 2>/dev/null && ((SECONDS < wait_until)); do sleep 0.02; done
    done
    rm -rf "$home"
}

print_environment() {
    local who="dbname=cenote;user=cenote;password=cenote-secret" port
    port="$(<"$home/primary.port")"
    cat <<VARIABLES
export CENOTE_TEST_MARIADB='mysql:host=127.0.0.1;port=$port;$who'
export CENOTE_TEST_MARIADB_UNIX='mysql:unix_socket=$home/sockets/primary;$who'
export CENOTE_TEST_MARIADB_PORT='$port'
export CENOTE_TEST_MARIADB_SOCKETS='$home/sockets'
export CENOTE_TEST_MARIADB_TLS='$home/tls'
export CENOTE_TEST_MARIADB_HOME='$home'
export CENOTE_TEST_MARIADB_SCRIPT='$script'
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
    (($#)) || die "run what? For example: ci/mariadb.sh run -- cargo test -p cenote --features mysql"
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
    home="$(realpath -m "${1:?start where? ci/mariadb.sh start DIRECTORY}")"
    [[ ! -e "$home" ]] || die "$home is there already: ci/mariadb.sh stop $home"
    mkdir -p "$home"
    trap 'stop_all' ERR
    start_all >&2
    trap - ERR
    print_environment
}

run_own() {
    (($# >= 3)) || die "ci/mariadb.sh own HOME NAME PORT [--name=value ...]"
    home="$1"
    local name="$2" port="$3"
    shift 3
    find_programs
    [[ -e "$home/own/$name" ]] || copy_template "$home/own/$name"
    serve "$home/own/$name" "$port" "$home/sockets/$name" "$@"
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
    home="$(realpath -m "${2:?stop what? ci/mariadb.sh stop DIRECTORY}")"
    [[ -d "$home/template" ]] || die "$home has no server in it"
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
