#!/usr/bin/env bash
#
# Fails if the documents name a test or a file that does not exist.
#
#     ci/doc-names.sh
#
# A test is a name in backticks with three or more underscores, or one that begins with an H-number (`h25_*`);
# a trailing `*` or `…` stands for the rest. A file is a name in backticks that ends in .rs, .sh, .toml or .txt, or a folder that
# ends in a slash; a path may leave out its beginning (`lost.rs`), and braces stand for several (`{a,b}.rs`).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

documents=(README.md ARCHITECTURE.md SECURITY.md CONTRIBUTING.md docs/*.md)
missing=0

report() {
    echo "$1: no such $2: $3"
    missing=1
}

names="$(git ls-files | sed 's|^|/|')"
tests="$(git grep -hoE 'fn [a-z0-9_]+' -- 'crates/**/*.rs' 'dashboard/**/*.rs' 'examples/**/*.rs' 'fuzz/**/*.rs' | cut -c4- | sort -u)"

for document in "${documents[@]}"; do
    while read -r name; do
        pattern="${name//\*/.*}"
        pattern="${pattern//…/.*}"
        grep -qxE "$pattern" <<<"$tests" || report "$document" test "$name"
    done < <(grep -oE '`[a-z][a-z0-9]*(_[a-z0-9]+){3,}_?[*…]?`|`h[0-9]+[a-z]?_[a-z0-9_]*[*…]?`' "$document" | tr -d '`' | sort -u)

    while read -r path; do
        for each in $(eval "printf '%s\n' ${path#./}"); do
            # Inside a crate a path may begin at its folder or at its src.
            grep -qF "/${each#/}" <<<"$names" || report "$document" file "$each"
        done
    done < <(grep -oE '`[a-zA-Z0-9_./{},-]+(\.(rs|sh|toml|txt)|/)`' "$document" | tr -d '`' | sort -u)
done

exit "$missing"
