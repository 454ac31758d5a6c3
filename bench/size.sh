#!/usr/bin/env bash
#
# Measures the curves of the guide page "How large should my pool be": the bank on PostgreSQL, MariaDB and SQLite.
#
#     bench/size.sh [SECONDS]      for each database (60)
#
# Prints a table in Markdown, and writes a report for each database to target/size. Needs the servers of ci/postgres.sh and
# ci/mariadb.sh, perl, and a quiet machine.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z "${CENOTE_TEST_POSTGRES:-}" || -z "${CENOTE_TEST_MARIADB:-}" ]]; then
    exec ci/postgres.sh run -- ci/mariadb.sh run -- bench/size.sh "$@"
fi

seconds="${1:-60}"
target="${CARGO_TARGET_DIR:-target}"
cargo build --quiet --release -p cenote-cli --features postgres,mysql
mkdir -p "$target/size"

# measure NAME [option ...]: runs the command and prints the rows of one database.
measure() {
    local name="$1" status=0
    shift
    "$target/release/cenote" size --json --max 32 --seed 1 --seconds "$seconds" \
        --report "$target/size/$name.html" "$@" >"$target/size/$name.json" || status=$?
    # 1 means that there was noise: the notes say so.
    ((status <= 1)) || exit "$status"
    perl -MJSON::PP -0777 -ne '
        my $r = decode_json($_);
        print "\n### '"$name"'\n\n| size | ops/s | statement p50 | p99 | wait p50 | p99 |\n|---|---|---|---|---|---|\n";
        for my $row (@{$r->{sizes}}) {
            printf "| %d%s | %.0f | %.2f ms | %.2f ms | %.2f ms | %.2f ms |\n", $row->{size},
                $row->{size} == $r->{knee}{connections} ? " (knee)" : "", $row->{throughput},
                @{$row->{statement_ms}}{qw(p50 p99)}, @{$row->{wait_ms}}{qw(p50 p99)};
        }
        printf "\nRecommended: %d; limit: %s (%s). Certainty %.0f %%, repeats differ by %.1f %%.\n",
            $r->{recommendation}{max}, $r->{limit}, $r->{evidence}, $r->{knee}{confidence} * 100, $r->{knee}{noise} * 100;
        print "Note: $_.\n" for @{$r->{notes}};
    ' "$target/size/$name.json"
}

measure PostgreSQL --dsn "$CENOTE_TEST_POSTGRES"
measure MariaDB --dsn "$CENOTE_TEST_MARIADB"
measure SQLite
