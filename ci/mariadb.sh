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
# runs it in the foreground; a second call reuses the data. A read-only replica that follows another server of this kind,
# which has a binary log since its first start (`--log-bin`), repeats all that one has ever written:
#
#     ci/mariadb.sh follow HOME NAME PORT PORT_OF_THE_OTHER [--name=value ...]
#
# A node of a Galera cluster joins that of these other nodes, or begins a new one if there are none. It uses the next three
# ports as well:
#
#     ci/mariadb.sh node HOME NAME PORT [PORT_OF_ANOTHER ...] [--name=value ...]
#
# The end of `run` stops these servers, too. The script never touches a server that the machine runs for itself.

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

# Run at every start, in one session; a line is a statement. Each server has them of its own, so a replica does not get them.
write_users() {
    cat >"$home/users.sql" <<'SQL'
SET SESSION sql_log_bin = 0;
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
    as_server mariadbd "${given[@]}" --datadir="$data" --port="$port" --server-id="$port" --socket="$socket" \
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

# Becomes a replica of the server on that port, by GTIDs; a second call reuses the data, and follows whom it followed.
follow() {
    (($# >= 4)) || die "follow HOME NAME PORT PORT_OF_THE_OTHER [setting ...]"
    home="$1"
    local name="$2" port="$3" followed="$4" init
    shift 4
    find_programs
    init="$home/users.sql"
    if [[ ! -e "$home/own/$name" ]]; then
        copy_template "own/$name"
        init="$home/own/$name.sql"
        {
            cat "$home/users.sql"
            echo "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = $followed, MASTER_USER = 'cenote'," \
                "MASTER_PASSWORD = 'cenote-secret', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos;"
            echo "START SLAVE;"
        } >"$init"
        chmod 644 "$init"
    fi
    serve "$port" "$home/own/$name" --read-only --init-file="$init" "$@"
}

# Becomes a node of a cluster; a second call reuses the data.
node() {
    (($# >= 3)) || die "node HOME NAME PORT [PORT_OF_ANOTHER ...] [setting ...]"
    home="$1"
    local name="$2" port="$3" others=() first=() provider=/usr/lib/galera/libgalera_smm.so
    shift 3
    while [[ "${1:-}" =~ ^[0-9]+$ ]]; do
        others+=("127.0.0.1:$(($1 + 1))")
        shift
    done
    find_programs
    need_programs "rsync lsof" rsync lsof
    [[ -e "$provider" ]] || die "not found: $provider. On Debian: apt-get install galera-4"
    [[ -e "$home/own/$name" ]] || copy_template "own/$name"
    ((${#others[@]})) || first=(--wsrep-new-cluster)
    # A lost node is missed after 2 s instead of 5 s.
    serve "$port" "$home/own/$name" --wsrep-on=1 --wsrep-provider="$provider" --wsrep-node-name="$name" \
        --wsrep-cluster-address="gcomm://$(IFS=,; echo "${others[*]}")" "${first[@]}" \
        --wsrep-node-address=127.0.0.1 --wsrep-sst-method=rsync --wsrep-sst-receive-address="127.0.0.1:$((port + 3))" \
        --wsrep-provider-options="$(
            printf '%s;' base_port=$((port + 1)) "gmcast.listen_addr=tcp://127.0.0.1:$((port + 1))" \
                "ist.recv_addr=127.0.0.1:$((port + 2))" gcache.size=16M evs.keepalive_period=PT0.3S \
                evs.inactive_check_period=PT0.3S evs.suspect_timeout=PT2S evs.inactive_timeout=PT6S
        )" --binlog-format=ROW --innodb-autoinc-lock-mode=2 "$@"
}

case "${1:-}" in
follow) follow "${@:2}" ;;
node) node "${@:2}" ;;
*) main "$@" ;;
esac
