#!/usr/bin/env bash
#
# Runs the examples of the adapters against real servers:
#
#     ci/postgres.sh run -- ci/rabbitmq.sh run -- adapters/examples.sh REDIS_URL
#
# Each example verifies its own results and fails otherwise.

set -euo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"

redis="${1:?the argument is the address of a Redis}"
: "${CENOTE_TEST_POSTGRES_PORT:?run this inside ci/postgres.sh run}"
: "${CENOTE_TEST_AMQP:?run this inside ci/rabbitmq.sh run}"
postgres="postgres://cenote:cenote-secret@127.0.0.1:$CENOTE_TEST_POSTGRES_PORT/cenote"

cargo build --quiet --locked --manifest-path "$here/Cargo.toml" --workspace --examples
examples="${CARGO_TARGET_DIR:-$here/target}/debug/examples"

run() {
    printf '%s: ' "$1"
    timeout 60 "$examples/$1" "$2"
}

run bb8_postgres "$postgres"
run deadpool_lapin "$CENOTE_TEST_AMQP"
run deadpool_redis "$redis"
run diesel_async "$postgres"
run r2d2_postgres "$postgres"
