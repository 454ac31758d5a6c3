#!/usr/bin/env bash
#
# Every check of this repository, in its fast form. Needs Rust; on Debian and
# Ubuntu it installs the servers and tools it lacks, elsewhere it names them.
#
#     ci/test.sh             every part
#     ci/test.sh core        one part, or several
#     ci/test.sh --help      the parts
#
# A new part is a function `part_NAME` below and its line in `parts`. On two cores `core` must
# stay under 15 minutes, every other part under 10, and all together under 45.
#
# Left out of the fast run, because they take long:
#
#   longer loom models     LOOM_MAX_PREEMPTIONS=3 ci/test.sh loom
#   longer property tests  CENOTE_PROPERTY_CASES=100000 ci/test.sh core
#   longer stress tests    CENOTE_STRESS_SECONDS=30 ci/test.sh core
#   longer chaos and load  CENOTE_CHAOS_SECONDS=60 CENOTE_LOAD_SECONDS=60 ci/test.sh core
#   longer load of a page  CENOTE_PAGE_SECONDS=60 ci/test.sh page
#   all with lanes         CENOTE_TEST_SHARE=1 ci/postgres.sh run -- cargo test --workspace --all-features --test postgres
#   the C API's races      CENOTE_TSAN=1 crates/capi/test.sh
#   pool sizes, ten times  ci/size.sh
#
# Nothing outlives the run: servers listen on loopback, on ports of their own,
# with their data in a temporary directory, and are stopped at the end, also
# when a check fails or the run is interrupted. A server that the machine runs
# for itself is never used and never touched.

set -euo pipefail
# Every step runs in a process group of its own, so that an interrupted run can
# end a step together with all that the step has started.
set -m

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# ---- the parts ---------------------------------------------------------------

# In the order in which they run: a name, and what it checks.
readonly parts=(
    "core    format, clippy, tests, documentation, public interface, instructions of a checkout"
    "matrix  other configurations: without features, each driver alone, shared connections, the oldest Rust"
    "loom    models of the pool's core, and of shared connections, in every order of their steps"
    "metrics cenote-otel with the SDK's exporter, the text for Prometheus with promtool, a pool in tokio-console"
    "page    cenote-dashboard: its tests, in Chromium as well, and what it costs the shop"
    "size    cenote size on databases whose right pool size is known"
    "adapters managers of other pools and SeaORM, with their examples, against real servers"
    "capi    the C API: installed, compiled and run as C programs, under valgrind"
    "php     the PHP extension: its tests with PostgreSQL and MariaDB, stub, examples and install script, php-fpm"
)

part_core() {
    need_servers
    need perl=perl-base valgrind=valgrind
    step "format" cargo fmt --all --check
    step "words" check_pool_words
    step "names in the documents" ci/doc-names.sh
    step "test names" check_test_names
    step "dependencies" ci/deny.sh
    step "clippy" cargo clippy --workspace --all-targets --all-features -- -D warnings
    step "tests" ci/postgres.sh run -- ci/mariadb.sh run -- cargo test --workspace --all-features --no-fail-fast
    start_redis
    step "example: redis" run_redis_example
    step "documentation" check_docs
    step "public interface" ci/public-api.sh
    step "instructions a checkout" bench/instructions.sh --check
    step "package" cargo package -p cenote-pool --allow-dirty --no-verify
}

part_matrix() {
    need_odbc
    step "pool without features" cargo clippy -p cenote-pool --no-default-features -- -D warnings
    step "database layer without drivers" cargo clippy -p cenote --no-default-features -- -D warnings
    step "each driver alone" check_drivers_alone
    # With --workspace the features are those of `core`, so that nothing is built again.
    step "SQLite without running in place" env CENOTE_SQLITE_IN_PLACE=off \
        cargo test --workspace --all-features --test handle --test sqlite
    need_servers
    step "PostgreSQL with shared connections" ci/postgres.sh run -- env CENOTE_TEST_SHARE=1 \
        cargo test --workspace --all-features --test postgres --test load -- "${shared_suites[@]}"
    step "oldest Rust" check_oldest_rust
}

# What runs a second time with shared connections: every handle shares, and every read that may. A program without a shared
# read fails. By design, this differs:
readonly shared_suites=(
    conformance:: suite:: cancel:: faults:: lost session:: transactions:: stream:: kept:: cache:: calls:: errors::
    pipeline order:: herd:: starvation::
    # The handle's first shared read asks once whether a pooler is in between: a round trip more.
    --skip calls::run_is_one_round_trip_and_knows_the_columns_of_no_rows
    # Its handles share already, by the usual rules.
    --skip lanes::
    # They take long, and share little.
    --skip listen:: --skip copy:: --skip cluster:: --skip replicas::
)

part_loom() {
    step "loom models" check_loom
}

part_metrics() {
    need promtool=prometheus
    step "format of cenote-otel" cargo fmt --manifest-path otel/Cargo.toml --check
    # The target directory of the root, so that what both need is built once.
    step "clippy of cenote-otel" env CARGO_TARGET_DIR="$target" \
        cargo clippy --manifest-path otel/Cargo.toml --locked --all-targets -- -D warnings
    step "tests of cenote-otel" env CARGO_TARGET_DIR="$target" CENOTE_NEED_PROMTOOL=1 \
        cargo test --manifest-path otel/Cargo.toml --locked
    step "format of the test with tokio-console" cargo fmt --manifest-path otel/console/Cargo.toml --check
    step "a pool in tokio-console" check_console
}

part_page() {
    # The tests start PostgreSQL clusters of their own.
    need chromium=chromium node=nodejs npm=npm valgrind=valgrind initdb=postgresql
    step "packages of the browser's tests" npm ci --prefix dashboard/tests/browser --no-audit --no-fund
    step "format of cenote-dashboard" cargo fmt --manifest-path dashboard/Cargo.toml --check
    # The target directory of the root, so that what both need is built once.
    step "clippy of cenote-dashboard" env CARGO_TARGET_DIR="$target" \
        cargo clippy --manifest-path dashboard/Cargo.toml --locked --all-targets -- -D warnings
    step "tests of cenote-dashboard" env CARGO_TARGET_DIR="$target" CENOTE_NEED_BROWSER=1 \
        cargo test --manifest-path dashboard/Cargo.toml --locked
    step "documentation of cenote-dashboard" env CARGO_TARGET_DIR="$target" RUSTDOCFLAGS="-D warnings" \
        cargo doc --manifest-path dashboard/Cargo.toml --locked --no-deps
    step "instructions that the page costs the shop" bench/page.sh --check
}

part_size() {
    need_servers
    # With the features of `core`, so that nothing is built again.
    step "recommended sizes" ci/size.sh 1
}

part_adapters() {
    need_servers
    need /usr/lib/rabbitmq/bin/rabbitmq-server=rabbitmq-server epmd=erlang-base
    local manifest=adapters/Cargo.toml
    step "format of the adapters" cargo fmt --manifest-path "$manifest" --all --check
    step "dependencies that the adapters must not add" check_core_dependencies
    # The target directory of the root, so that what both need is built once.
    step "clippy of the adapters" env CARGO_TARGET_DIR="$target" \
        cargo clippy --manifest-path "$manifest" --locked --workspace --all-targets -- -D warnings
    step "tests of the adapters" ci/postgres.sh run -- ci/mariadb.sh run -- env CARGO_TARGET_DIR="$target" \
        cargo test --manifest-path "$manifest" --locked --workspace
    start_redis
    step "examples of the adapters" ci/postgres.sh run -- ci/rabbitmq.sh run -- env CARGO_TARGET_DIR="$target" \
        adapters/examples.sh "redis://127.0.0.1:$redis_port"
}

part_capi() {
    need g++=g++ pkg-config=pkg-config nm=binutils libsqlite3.so=libsqlite3-dev valgrind=valgrind
    step "C API" crates/capi/test.sh
}

part_php() {
    need php8.2=php8.2-cli php-config8.2=php8.2-dev php-fpm8.2=php8.2-fpm cgi-fcgi=libfcgi-bin
    need_servers
    need "php/*/opcache.so=php8.2-opcache" "php/*/pdo_sqlite.so=php8.2-sqlite3"
    export PHP_CONFIG=php-config8.2
    step "format of the extension" cargo fmt --manifest-path php/Cargo.toml --check
    step "clippy of the extension" cargo clippy --manifest-path php/Cargo.toml --release --locked -- -D warnings
    step "PHP extension" php/test.sh
    step "its install script" env DESTDIR="$scratch/php" php/install.sh
}

# ---- arguments ---------------------------------------------------------------

wanted=()
for argument in "$@"; do
    case "$argument" in
    -h | --help)
        echo "Usage: ci/test.sh [PART ...]"
        echo "Without a part it runs all of them:"
        printf '    %s\n' "${parts[@]}"
        exit 0
        ;;
    esac
    if ! declare -F "part_$argument" >/dev/null; then
        echo "ci/test.sh: there is no part '$argument'; the parts are:" "${parts[@]%% *}" >&2
        exit 2
    fi
    wanted+=("$argument")
done
((${#wanted[@]})) || wanted=("${parts[@]%% *}")

# ---- running steps -----------------------------------------------------------

export CARGO_BUILD_JOBS="${CARGO_BUILD_JOBS:-2}"
# One run compiles everything once: what would speed up the next is only disk space.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
target="${CARGO_TARGET_DIR:-target}"
scratch="$(mktemp -d)"
step_pid=""
server_pids=()
policy_file=""

die() {
    echo "ci/test.sh: $*" >&2
    exit 1
}

headline() {
    printf '\n== [%4d s] %s\n' "$SECONDS" "$*"
}

# Runs a step in the background and waits for it: unlike a step in the
# foreground, waiting is interrupted by a signal at once.
run() {
    local status=0
    "$@" </dev/null &
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=""
    return "$status"
}

step() {
    local title="$1"
    shift
    headline "$title"
    run "$@"
}

stop_everything() {
    local status=$?
    trap - EXIT INT TERM
    if [[ -n "$step_pid" ]]; then
        kill -TERM -- "-$step_pid" 2>/dev/null || true
        wait "$step_pid" 2>/dev/null || true
    fi
    local pid
    for pid in "${server_pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    remove_start_guard
    rm -rf "$scratch"
    if ((status == 0)); then
        printf '\n== [%4d s] passed: %s\n' "$SECONDS" "${wanted[*]}"
        echo "Left out: longer loom models (LOOM_MAX_PREEMPTIONS=3), property tests" \
            "(CENOTE_PROPERTY_CASES=100000), stress (CENOTE_STRESS_SECONDS=30), chaos (CENOTE_CHAOS_SECONDS=60)" \
            "and load (CENOTE_LOAD_SECONDS=60); set these and run ci/test.sh." \
            "And ThreadSanitizer: CENOTE_TSAN=1 crates/capi/test.sh."
    else
        printf '\n== [%4d s] FAILED, exit code %d\n' "$SECONDS" "$status" >&2
        echo "Disk space left: $(df -h --output=avail . | tail -1)" >&2
    fi
    exit "$status"
}
trap stop_everything EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- the machine -----------------------------------------------------------

as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Debian starts a server as soon as its package is installed, unless this file
# forbids it. A machine that has such a file keeps its own.
place_start_guard() {
    if [[ -d /usr/sbin && ! -e /usr/sbin/policy-rc.d ]]; then
        policy_file=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy_file" >/dev/null
        as_root chmod 755 "$policy_file"
    fi
}

remove_start_guard() {
    if [[ -n "$policy_file" ]]; then
        as_root rm -f "$policy_file"
        policy_file=""
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

# Debian keeps the programs of PostgreSQL's server off the PATH, and libraries in a folder
# named after the architecture.
have() {
    case "$1" in
    *.so) compgen -G "/usr/lib/$1" >/dev/null || compgen -G "/usr/lib/*/$1" >/dev/null ;;
    *) command -v "$1" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null ;;
    esac
}

# Installs the package of every command or library that is missing: need WHAT=PACKAGE ...
need() {
    local packages=() pair
    for pair in "$@"; do
        have "${pair%%=*}" || packages+=("${pair#*=}")
    done
    ((${#packages[@]})) || return 0
    if ! command -v apt-get >/dev/null; then
        die "not found: ${packages[*]}. Please install it, and see that it is on the PATH."
    fi
    if ((EUID != 0)) && ! sudo -n true 2>/dev/null; then
        die "not installed: ${packages[*]}. Please run: sudo apt-get install ${packages[*]}"
    fi
    headline "apt-get install ${packages[*]}"
    place_start_guard
    # The list of packages may be missing or old; only then is it fetched.
    if ! run apt install -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1; then
        run apt update
        run apt install -y --no-install-recommends "${packages[@]}" >/dev/null
    fi
    remove_start_guard
    for pair in "$@"; do
        have "${pair%%=*}" || die "${pair#*=} was installed, but there is no ${pair%%=*}"
    done
}

# The servers of the tests. Debian has dblink in PostgreSQL's own package, other systems in a separate one.
need_servers() {
    need redis-server=redis-server initdb=postgresql "postgresql/*/lib/dblink.so=postgresql-contrib" \
        pgbouncer=pgbouncer mariadbd=mariadb-server openssl=openssl \
        galera/libgalera_smm.so=galera-4 rsync=rsync lsof=lsof
    need_odbc
    # A path and not an address: the tests kill their servers and start them again.
    CENOTE_TEST_REDIS_SERVER="$(command -v redis-server)"
    export CENOTE_TEST_REDIS_SERVER
}

need_odbc() {
    need libodbc.so=unixodbc-dev odbc/libsqlite3odbc.so=libsqliteodbc odbc/psqlodbcw.so=odbc-postgresql \
        odbc/libmaodbc.so=odbc-mariadb
}

# Starts a Redis on a free port and sets `redis_port`. Ports are drawn from below
# the range of ports for outgoing connections.
start_redis() {
    local try log port pid
    for try in 1 2 3 4 5 6 7 8 9 10; do
        port=$((15000 + RANDOM % 15000))
        log="$scratch/redis-$try.log"
        redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no \
            --dir "$scratch" --daemonize no </dev/null >"$log" 2>&1 &
        pid=$!
        server_pids+=("$pid")
        # Redis exits at once if the port is taken, and logs a line when it is ready.
        while kill -0 "$pid" 2>/dev/null; do
            if grep -q "Ready to accept connections" "$log"; then
                redis_port="$port"
                return 0
            fi
            sleep 0.05
        done
    done
    cat "$log" >&2
    die "redis-server does not start"
}

# ---- checks that are not one command ---------------------------------------

# Code that only one driver uses must not be compiled without it.
check_drivers_alone() {
    local driver
    for driver in sqlite postgres mysql odbc; do
        cargo clippy --quiet -p cenote --no-default-features --features "$driver" -- -D warnings || return 1
    done
}

# The `rust-version` of Cargo.toml is a promise. Its compiler is downloaded where rustup can.
check_oldest_rust() {
    local version
    version="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
    [[ -n "$version" ]] || die "Cargo.toml has no rust-version"
    if ! command -v rustup >/dev/null; then
        echo "SKIPPED: there is no rustup to install Rust $version"
        return
    fi
    if ! rustup run "$version" rustc --version 2>/dev/null &&
        ! timeout 300 rustup toolchain install "$version" --profile minimal --no-self-update; then
        echo "SKIPPED: rustup cannot install Rust $version here"
        return
    fi
    # A target directory of its own, or the next build would start from scratch. Dependencies of
    # tests may need a newer compiler: the promise is about the libraries and the command.
    CARGO_TARGET_DIR="$target/oldest-rust" rustup run "$version" \
        cargo check --locked --workspace --all-features
}

run_redis_example() {
    cargo build --workspace --all-features --example redis
    "$target/debug/examples/redis" "redis://127.0.0.1:$redis_port"
}

# The libraries that the adapters are for never reach users of the core.
check_core_dependencies() {
    local found
    found="$(cargo tree --locked --edges normal --prefix none -p cenote-pool -p cenote --all-features |
        grep -E '^(bb8|deadpool|diesel|r2d2|sea-orm|sea-query|sqlx)' || true)"
    if [[ -n "$found" ]]; then
        echo "a dependency of the core that belongs into adapters/: $found" >&2
        return 1
    fi
}

# The pool serves any kind of resource: it must not know of databases.
check_pool_words() {
    if grep -rniwE 'sql|transactions?|statements?' crates/pool/src; then
        echo "crates/pool/src must not speak of databases: see the lines above" >&2
        return 1
    fi
}

# A test's name is its promise. A longer name holds two promises, or a vague one.
check_test_names() {
    if git grep -nE '\bfn [a-z0-9_]{61,}' -- '*.rs'; then
        echo "a function's name has at most 60 characters: see the lines above" >&2
        return 1
    fi
}

check_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
}

# A target directory of its own, because the flag rebuilds every dependency.
check_console() {
    local command
    for command in "clippy --all-targets" test; do
        # The flag that programs for tokio-console are built with. Not quoted: a command has words.
        RUSTFLAGS="--cfg tokio_unstable -D warnings" CARGO_TARGET_DIR="$target/tokio-console" \
            cargo $command --locked --manifest-path otel/console/Cargo.toml || return 1
    done
}

check_loom() {
    # Its own target directory, because the flag rebuilds every dependency, and
    # no features, because Tokio has a meaning of its own for the flag.
    LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}" RUSTFLAGS="--cfg loom" \
        CARGO_TARGET_DIR="$target/loom" \
        cargo test --release -p cenote-pool --no-default-features --test loom &&
        LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}" RUSTFLAGS="--cfg loom" \
            CARGO_TARGET_DIR="$target/loom" \
            cargo test --release -p cenote-lane-model models::
}

# ---- the run ---------------------------------------------------------------

command -v cargo >/dev/null || die "not found: cargo. Please install Rust first."
need gcc=gcc libc.so=libc6-dev git=git
for part in "${wanted[@]}"; do
    "part_$part"
done
