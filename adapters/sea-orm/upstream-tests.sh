#!/usr/bin/env bash
#
# Runs SeaORM's own tests over the proxy (OrmDb::database_connection) on PostgreSQL, and prints how many passed:
#
#     ci/postgres.sh run -- adapters/sea-orm/upstream-tests.sh CHECKOUT [TEST ...]
#
# CHECKOUT is a clone of SeaORM's repository at a release of 2.0. It is copied and not changed. Without TEST it runs every
# test program of the checkout. UPSTREAM_TARGET is the target directory (default: one in the copy, removed at the end).
#
# Only the function that opens a test's database is changed: tests create their database with sqlx, and then use the proxy.

set -euo pipefail

checkout="${1:?the first argument is a checkout of SeaORM}"
shift
: "${CENOTE_TEST_POSTGRES_PORT:?run this inside ci/postgres.sh run}"
adapters="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
git -C "$checkout" archive HEAD | tar -x -C "$copy"
cd "$copy"

perl -0pi -e '
    my $n = 0;
    s{Database::connect\(options\)\.await\.unwrap\(\)}{
        ++$n == 2
            ? "{ let _ = options; let db = cenote::Db::open(&format!(\"{base_url}/{db_name}\")).await.unwrap(); "
            . "cenote_sea_orm::OrmDb::new(db).unwrap().database_connection() }"
            : $&
    }ge;
    die "the tests open their databases in another way: adapt this script\n" if $n < 2;
' tests/common/setup/mod.rs
cenote='cenote = { path = "'"$adapters"'/../crates/db", default-features = false, features = ["postgres"] }'
orm='cenote-sea-orm = { path = "'"$adapters"'/sea-orm" }'
sed -i "s|^\[dev-dependencies\]\$|&\n$cenote\n$orm|; /^\[patch.crates-io\]\$/d" Cargo.toml
cat >>Cargo.toml <<'TOML'

[patch.crates-io]
sea-orm = { path = "." }
sea-orm-macros = { path = "sea-orm-macros" }
TOML
grep -q cenote-sea-orm Cargo.toml || {
    echo "upstream-tests.sh: Cargo.toml has no [dev-dependencies]" >&2
    exit 1
}

programs=("$@")
if ((${#programs[@]} == 0)); then
    for file in tests/*_tests.rs tests/basic.rs; do
        programs+=("$(basename "$file" .rs)")
    done
fi
arguments=()
for program in "${programs[@]}"; do
    arguments+=(--test "$program")
done

export DATABASE_URL="postgres://cenote:cenote-secret@127.0.0.1:$CENOTE_TEST_POSTGRES_PORT"
export CARGO_TARGET_DIR="${UPSTREAM_TARGET:-$copy/target}"
# Each test creates the database that is named after it, so that they can run at once; two threads keep the
# connections below the server's limit.
RUST_BACKTRACE=0 CARGO_PROFILE_DEV_DEBUG=0 cargo test --no-fail-fast --features sqlx-postgres,runtime-tokio,proxy \
    "${arguments[@]}" -- --test-threads=2 >"$copy/log" 2>&1 || true

grep -E '^error(\[|:)' "$copy/log" | sort | uniq -c || true
awk '
    /Running tests\// { program = $2; sub("tests/", "", program) }
    /^test .* \.\.\. FAILED/ { print "failed: " program " " $2 }
    /^test result:/ { passed += $4; failed += $6 }
    END { printf "passed %d, failed %d\n", passed, failed }
' "$copy/log"
if [[ -n "${UPSTREAM_LOG:-}" ]]; then
    cp "$copy/log" "$UPSTREAM_LOG"
fi
