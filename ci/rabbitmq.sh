#!/usr/bin/env bash
#
# The RabbitMQ that an example of the adapters needs, for as long as a command runs:
#
#     ci/rabbitmq.sh run -- adapters/examples.sh …
#
# or, to keep it while one works:
#
#     eval "$(ci/rabbitmq.sh start /tmp/server)"
#     ci/rabbitmq.sh stop /tmp/server
#
# The server listens on 127.0.0.1, on free ports, without plugins; the variable CENOTE_TEST_AMQP of the command has its
# address. The script never touches a server that the machine runs for itself.

source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"
server_user=rabbitmq

find_programs() {
    # Debian's command on the PATH is a wrapper that writes to /var/log.
    PATH="/usr/lib/rabbitmq/bin:$PATH:/usr/sbin"
    need_programs "rabbitmq-server" rabbitmq-server epmd
}

# The server makes its data itself, and nothing here uses TLS.
sign_certificates() {
    :
}

make_template() {
    mkdir "$home/template"
    own_by_server "$home/template"
}

# ---- start and stop --------------------------------------------------------

# Erlang's register of names. One of its own, because the server would start one that outlives it.
serve_names() {
    export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$1"
    echo "$BASHPID" >"$home/names.pid"
    as_server epmd -d
}

serve() {
    local port="$1" data="$2"
    export HOME="$data" ERL_EPMD_ADDRESS=127.0.0.1
    ERL_EPMD_PORT="$(<"$home/names.port")"
    export ERL_EPMD_PORT
    export RABBITMQ_NODENAME="cenote@localhost" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$port"
    export RABBITMQ_DIST_PORT=$((port + 15000)) RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$data/none"
    export RABBITMQ_MNESIA_BASE="$data" RABBITMQ_LOG_BASE="$data" RABBITMQ_LOGS=- RABBITMQ_PID_FILE="$data/server.pid"
    export RABBITMQ_ENABLED_PLUGINS_FILE="$data/plugins"
    export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
    # The shell script in front of the server replaces itself by it.
    export RUNNING_UNDER_SYSTEMD=true
    cd "$data"
    as_server rabbitmq-server
}

start_servers() {
    copy_template primary
    start_server names "epmd running" serve_names
    start_server primary "Server startup complete" serve "$home/primary"
}

# The server first: it would complain about the lost register.
pid_files() {
    printf 'KILL %s\n' "$home/primary/server.pid" "$home/names.pid"
}

print_environment() {
    cat <<VARIABLES
export CENOTE_TEST_AMQP='amqp://guest:guest@127.0.0.1:$(<"$home/primary.port")/%2f'
VARIABLES
}

main "$@"
