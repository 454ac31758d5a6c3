#!/usr/bin/env bash
#
# Checks the dependency tree against deny.toml: licences, bans, sources.
#
#     ci/deny.sh
#
# Runs cargo-deny if it is on the PATH; that also checks advisories if their database can be
# downloaded. Building cargo-deny takes longer than all of our tests, so without it this script
# reads deny.toml itself and checks the rest with cargo alone.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if command -v cargo-deny >/dev/null; then
    if cargo deny fetch db >/dev/null 2>&1; then
        exec cargo deny check
    fi
    echo "ci/deny.sh: could not download the advisory database; checking bans, licences and sources only" >&2
    exec cargo deny check bans licenses sources
fi

failures=0

complain() {
    echo "ci/deny.sh: $*" >&2
    failures=$((failures + 1))
}

# The texts in quotes between `allow = [` and `]` of a section: list SECTION NAME
list() {
    sed -n "/^\[$1\]/,/^\[/{/^$2 = \[/,/^\]/p}" deny.toml | grep -o '"[^"]*"' | tr -d '"'
}

allowed=" $(list licenses allow | tr '\n' ' ')"
exceptions="$(sed -n 's/.*{ crate = "\([^"]*\)", allow = \["\([^"]*\)"\] }.*/\1;\2/p' deny.toml)"
banned="$(sed -n 's/^    { crate = "\([^"]*\)", reason.*/\1/p' deny.toml)"
registry="$(list sources allow-registry || true)"
registry="${registry:-$(sed -n 's/^allow-registry = \["\(.*\)"\]/\1/p' deny.toml)}"
if [[ "$allowed" == " " || -z "$banned" || -z "$registry" ]]; then
    complain "deny.toml is not written as this script reads it"
fi

# Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` is allowed: every licence
# becomes 1 or 0, and the shell evaluates the result. AND binds tighter than OR in both.
is_allowed() {
    local expression="" word
    for word in $(sed 's|/| OR |g; s/[()]/ & /g; s/ WITH [^ )]*//g' <<<"$1"); do
        case "$word" in
        "(" | ")") expression+="$word" ;;
        AND) expression+="&&" ;;
        OR) expression+="||" ;;
        *) if [[ "$allowed" == *" $word "* ]]; then expression+=1; else expression+=0; fi ;;
        esac
    done
    [[ -n "$expression" ]] && (($expression))
}

count=0
while IFS=';' read -r package licence; do
    count=$((count + 1))
    name="${package%% *}"
    if ! is_allowed "$licence" && ! grep -qxF "$name;$licence" <<<"$exceptions"; then
        complain "$package has the licence '$licence', which deny.toml does not allow"
    fi
    if grep -qxF "$name" <<<"$banned"; then
        complain "$package is banned by deny.toml; \`cargo tree -i $name --all-features\` says who wants it"
    fi
done < <(cargo tree --locked --workspace --all-features --target all --edges normal,build,dev --prefix none \
    --format '{p};{l}' | sed 's/ (\*)$//; /^$/d' | sort -u)
((count > 100)) || complain "cargo tree has told of $count packages only"

# All workspaces, by their lock files.
locks=0
while read -r lock; do
    locks=$((locks + 1))
    if grep '^source = ' "$lock" | grep -vxF "source = \"registry+$registry\""; then
        complain "$lock has what is not from crates.io: see the lines above"
    fi
done < <(git ls-files 'Cargo.lock' '*/Cargo.lock')
((locks > 0)) || complain "there is no Cargo.lock"

((failures == 0)) || exit 1
echo "$count packages and $locks lock files are as deny.toml wants them; advisories need cargo-deny"
