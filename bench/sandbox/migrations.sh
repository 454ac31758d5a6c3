#!/usr/bin/env bash
#
# Writes the same 40 migrations for both programs, each with the file names that its library expects.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ours="$PWD/migrations"
theirs="$PWD/../sandbox-sqlx/migrations"
rm -rf "$ours" "$theirs"
mkdir -p "$ours" "$theirs"
before=1
for n in $(seq 40); do
    cat >"$ours/V${n}__table_$n.sql" <<SQL
CREATE TABLE item_$n (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    parent bigint REFERENCES item_$before,
    created timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX item_${n}_created ON item_$n (created);
SQL
    cp "$ours/V${n}__table_$n.sql" "$theirs/${n}_table_$n.sql"
    before=$n
done
