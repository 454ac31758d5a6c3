#!/usr/bin/env bash
#
# 500 tests over 40 migrations on PostgreSQL, in parallel: in sandboxes, and by #[sqlx::test], which creates and migrates a
# database for each test. One run on one machine, both from the same server, without compiling.
#
#     bench/sandbox.sh [ROUNDS]      default: 3
#
# It starts a server of its own (ci/postgres.sh). Each round of ours begins without a schema, so that the migrations count.
#
# Fails if ours takes more than 1/20 of the time (medians), or leaves a database, a row or a session behind.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
script="$PWD/$(basename "${BASH_SOURCE[0]}")"

build() {
    cargo test --release --quiet --no-run --message-format=json --manifest-path "$1/Cargo.toml" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

if [[ -z "${CENOTE_TEST_POSTGRES_SOCKETS:-}" ]]; then
    [[ -d sandbox/migrations && -d sandbox-sqlx/migrations ]] || sandbox/migrations.sh
    OURS="$(build sandbox)" THEIRS="$(build sandbox-sqlx)"
    export OURS THEIRS
    exec ../ci/postgres.sh run -- "$script" "$@"
fi

rounds="${1:-3}"
sockets="$CENOTE_TEST_POSTGRES_SOCKETS" port="$CENOTE_TEST_POSTGRES_PORT"
export PGHOST="$sockets" PGPORT="$port" PGUSER=cenote PGPASSWORD=cenote-secret PGDATABASE=cenote
export DATABASE_URL="postgres://cenote:cenote-secret@127.0.0.1:$port/cenote"
export CENOTE_BENCH_DSN="pgsql:host=127.0.0.1;port=$port;dbname=sandbox_bench;user=cenote;password=cenote-secret;sslmode=disable"
results="$(mktemp -d)"
trap 'rm -rf "$results"' EXIT

ask() {
    psql -qAtX "$@"
}

# Runs one test program, and notes its time in milliseconds.
timed() {
    local name="$1" program="$2" began ended
    began="$(date +%s%N)"
    "$program" --quiet >"$results/$name.log" 2>&1 || { cat "$results/$name.log"; exit 1; }
    ended="$(date +%s%N)"
    grep -q "500 passed" "$results/$name.log" || { cat "$results/$name.log"; exit 1; }
    echo "$(((ended - began) / 1000000))" >>"$results/$name"
}

median() {
    sort -n "$results/$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

databases() {
    ask -c "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database"
}

for ((round = 1; round <= rounds; round++)); do
    ask -c "DROP DATABASE IF EXISTS sandbox_bench WITH (FORCE)" 2>/dev/null
    ask -c "CREATE DATABASE sandbox_bench"
    before="$(databases)"
    timed ours "$OURS"
    if [[ "$(databases)" != "$before" ]]; then
        echo "a database is left behind: $(databases)" >&2
        exit 1
    fi
    count="SELECT sum((xpath('//n/text()', query_to_xml(format('SELECT count(*) AS n FROM %I', tablename), false, true, '')))[1]::text::int)
           FROM pg_tables WHERE tablename LIKE 'item\\_%'"
    rows="$(ask -d sandbox_bench -c "$count")"
    sessions="$(ask -c "SELECT count(*) FROM pg_stat_activity WHERE datname = 'sandbox_bench'")"
    tables="$(ask -d sandbox_bench -c "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'item\\_%'")"
    if [[ "$rows $sessions $tables" != "0 0 40" ]]; then
        echo "left behind: $rows rows, $sessions sessions, in $tables tables" >&2
        exit 1
    fi
    timed theirs "$THEIRS"
done

ours="$(median ours)" theirs="$(median theirs)"
printf '%-30s %8s ms\n' "sandboxes" "$ours" "#[sqlx::test]" "$theirs"
printf '%-30s %8s\n' "ratio" "$(awk -v a="$theirs" -v b="$ours" 'BEGIN { printf "%.1f", a / b }')"
echo "left behind by the sandboxes: nothing (databases, rows, sessions)"
if ((ours * 20 > theirs)); then
    echo "the goal of 1/20 is missed" >&2
    exit 1
fi
