# What ci/mariadb.sh and ci/postgres.sh share: starting and stopping servers, and the commands for that. Each of them
# sources this file, defines the functions
#
#     server_user        the user that runs the servers if the caller is root
#     find_programs      puts the programs on the PATH, or dies
#     make_template      makes $home/template, of which every server is a copy
#     sign_certificates  by `sign`
#     serve              becomes a server: serve PORT DATA [setting ...]
#     start_servers      by `copy_template` and `start_server`
#     pid_files          a line for each server there may be: the signal that ends it, and the file of its pid
#     print_environment  prints the variables for the tests
#
# and ends with `main "$@"`.

set -euo pipefail

script="$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
home=""
command_pid=""

die() {
    echo "ci/$(basename "$script"): $*" >&2
    exit 1
}

# Runs these functions in parallel.
at_once() {
    local jobs=() job
    for job in "$@"; do
        "$job" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

# ---- the machine -----------------------------------------------------------

need_programs() {
    local packages="$1" name
    shift
    for name in "$@"; do
        command -v "$name" >/dev/null || die "not found: $name. On Debian: apt-get install $packages"
    done
}

# Database servers refuse to run as root. `setpriv` replaces itself by the program, so that the pid of the started
# process is the server's.
as_server() {
    if ((EUID == 0)); then
        exec setpriv --reuid="$server_user" --regid="$server_user" --init-groups "$@"
    else
        exec "$@"
    fi
}

own_by_server() {
    if ((EUID == 0)); then
        chown -R "$server_user:$server_user" "$@"
    fi
}

# ---- data and certificates ---------------------------------------------------

# An authority that the tests trust and one that they do not. Elliptic curves: an RSA key takes longer than
# everything else here.
make_certificates() {
    mkdir "$home/tls"
    local name
    for name in ca stranger; do
        sign_itself "$name" "Cenote tests: $name" "keyUsage=critical,keyCertSign,cRLSign"
    done
    sign_certificates
    own_by_server "$home/tls"
    chmod 755 "$home/tls"
    chmod 644 "$home"/tls/*.crt
    chmod 600 "$home"/tls/*.key
}

sign_itself() {
    local name="$1" subject="$2" extension="$3"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 30 \
        -keyout "$home/tls/$name.key" -out "$home/tls/$name.crt" -subj "/CN=$subject" \
        -addext "$extension" 2>/dev/null
}

# Signs a certificate by the authority.
sign() {
    local name="$1" digest="$2" names="$3"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" \
        -keyout "$home/tls/$name.key" -out "$home/tls/$name.csr" 2>/dev/null
    openssl x509 -req -in "$home/tls/$name.csr" -CA "$home/tls/ca.crt" -CAkey "$home/tls/ca.key" \
        -CAcreateserial "$digest" -days 30 -out "$home/tls/$name.crt" \
        -extfile <(echo "subjectAltName=$names") 2>/dev/null
}

copy_template() {
    cp -a "$home/template" "$home/$1"
}

# ---- start and stop --------------------------------------------------------

# Starts a server on a free port, waits for its message that it is ready, and writes the port to NAME.port:
# start_server NAME WHAT_IT_SAYS FUNCTION [argument ...] calls FUNCTION PORT [argument ...]
start_server() {
    local name="$1" says="$2" function="$3" try port pid log
    shift 3
    for try in 1 2 3 4 5 6 7 8 9 10; do
        # Below the range of ports for outgoing connections.
        port=$((15000 + RANDOM % 15000))
        log="$home/$name-$try.log"
        ("$function" "$port" "$@") </dev/null >"$log" 2>&1 &
        pid=$!
        # The shell should not report how the server ended.
        disown "$pid"
        # It ends at once if the port is taken.
        while kill -0 "$pid" 2>/dev/null; do
            if grep -sqE "$says" "$log"; then
                echo "$port" >"$home/$name.port"
                return 0
            fi
            sleep 0.02
        done
    done
    cat "$log" >&2
    die "$name does not start"
}

start_all() {
    find_programs
    mkdir -p "$home/sockets" "$home/own"
    chmod 755 "$home"
    own_by_server "$home/sockets" "$home/own"
    at_once make_certificates make_template
    start_servers
}

# Stops all servers that have a pid file, including those that tests have started, and deletes the data.
stop_all() {
    local pids=() pid signal file wait_until
    while read -r signal file; do
        pid="$(head -n 1 "$file" 2>/dev/null)" || continue
        [[ "$pid" =~ ^[0-9]+$ ]] || continue
        # A server that a test has stopped with SIGSTOP has to continue first.
        kill -CONT "$pid" 2>/dev/null || continue
        kill "-$signal" "$pid" 2>/dev/null || continue
        pids+=("$pid")
    done < <(pid_files)
    wait_until=$((SECONDS + 10))
    for pid in "${pids[@]}"; do
        while kill -0 "$pid" 2>/dev/null && ((SECONDS < wait_until)); do sleep 0.02; done
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$home"
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
    (($#)) || die "run what? The first lines of $script give an example."
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
    [[ -n "${1:-}" ]] || die "start where? Name a directory that is not there yet"
    home="$(realpath -m "$1")"
    [[ ! -e "$home" ]] || die "$home is there already: ci/$(basename "$script") stop $home"
    mkdir -p "$home"
    trap 'stop_all' ERR
    start_all >&2
    trap - ERR
    print_environment
}

stop_what_stayed() {
    [[ -n "${1:-}" ]] || die "stop what? Name the directory that was started in"
    home="$(realpath -m "$1")"
    [[ -d "$home/template" ]] || die "$home has no server in it"
    stop_all
}

run_own() {
    (($# >= 3)) || die "own HOME NAME PORT [setting ...]"
    home="$1"
    local name="$2" port="$3"
    shift 3
    find_programs
    [[ -e "$home/own/$name" ]] || copy_template "own/$name"
    serve "$port" "$home/own/$name" "$@"
}

main() {
    case "${1:-}" in
    run) run_command "${@:2}" ;;
    start) start_to_stay "${2:-}" ;;
    stop) stop_what_stayed "${2:-}" ;;
    own) run_own "${@:2}" ;;
    *) die "run, start, stop or own? The first lines of $script say what each does." ;;
    esac
}
