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
# The server listens on 127.0.0.1, on a free port, with TLS signed by tls/ca.crt, and on a Unix socket. The variables
# CENOTE_TEST_MARIADB… of the command have its address: see `print_environment`. `write_users` creates its users.
#
# A test that kills its server has one of its own, without TLS, from a copy of the same data:
#
#     ci/mariadb.sh own HOME NAME PORT [--name=value ...]
#
# runs it in the foreground; a second call reuses the data. The end of `run` stops these servers, too. The script never
# touches a server that the machine runs for itself.

source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"
server_user=mysql

find_programs() {
    PATH="$PATH:/usr/sbin:/sbin"
    need_programs "mariadb-server openssl" mariadbd mariadb-install-db openssl
}

# ---- data, users and certificates -------------------------------------------

# The certificate names the host and not its address, so that a test can connect with the wrong name.
sign_certificates() {
    sign primary -sha256 "DNS:localhost"
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
    chmod 644 "$home/users.sql"
}

# The options of every server. The data need not survive the tests.
settings() {
    printf '%s\n' --no-defaults --skip-log-bin --skip-name-resolve --performance-schema=off \
        --innodb-buffer-pool-size=24M --innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=2 \
        --innodb-flush-method=nosync --innodb-doublewrite=0 --character-set-server=utf8mb4 \
        --key-buffer-size=1M --aria-pagecache-buffer-size=1M --max-connections=200 \
        --default-time-zone=+02:00 --local-infile=1
}

# One installation; every server is a copy of it.
make_template() {
    write_users
    mkdir "$home/template"
    own_by_server "$home/template"
    (as_server mariadb-install-db --no-defaults --datadir="$home/template" --skip-test-db \
        --auth-root-authentication-method=normal --innodb-log-file-size=8M --skip-log-bin \
        --innodb-buffer-pool-size=24M --innodb-flush-method=nosync) >"$home/install.log" 2>&1 || {
        cat "$home/install.log" >&2
        die "mariadb-install-db failed"
    }
}

# ---- start and stop --------------------------------------------------------

serve() {
    local port="$1" data="$2" socket given
    shift 2
    socket="$home/sockets/$(basename "$data")"
    mapfile -t given < <(settings)
    # A starting server deletes all files in its folder for temporary tables, so each server has its own folder.
    mkdir -p "$socket.tmp"
    own_by_server "$socket.tmp"
    as_server mariadbd "${given[@]}" --datadir="$data" --port="$port" --socket="$socket" \
        --tmpdir="$socket.tmp" --pid-file="$data/server.pid" --bind-address=127.0.0.1 --init-file="$home/users.sql" "$@"
}

start_servers() {
    copy_template primary
    start_server primary "ready for connections" serve "$home/primary" --ssl-ca="$home/tls/ca.crt" \
        --ssl-cert="$home/tls/primary.crt" --ssl-key="$home/tls/primary.key"
}

pid_files() {
    printf 'KILL %s\n' "$home"/primary/server.pid "$home"/own/*/server.pid
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

main "$@"
