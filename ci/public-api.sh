#!/usr/bin/env bash
#
# Compares the public interface of every published crate with its listing in ci/public-api, so
# that no change of it goes unnoticed.
#
#     ci/public-api.sh            fails if an interface differs from its listing
#     ci/public-api.sh --write    writes the listings, to be committed with the change
#
# CONTRIBUTING.md says what a change means for the version. Another version of rustdoc may print an item
# differently: then write the listings again.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "ci/public-api.sh: $*" >&2
    exit 1
}

write=""
case "${1:-}" in
"") ;;
--write) write=1 ;;
*) die "unknown argument $1; the only one is --write" ;;
esac
command -v perl >/dev/null || die "not found: perl. Please install it."

# With the flags of `ci/test.sh`, which has built the same pages already.
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --all-features

# Prints the listing of a crate: its features, then its items.
listing() {
    local manifest="$1" name="$2"
    sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z0-9_-]*\) *=.*/feature \1/p' "$manifest" | LC_ALL=C sort
    LC_ALL=C perl ci/public-api.pl "${CARGO_TARGET_DIR:-target}/doc/${name//-/_}"
}

mkdir -p ci/public-api
status=0
count=0
for manifest in crates/*/Cargo.toml; do
    grep -qx 'publish = false' "$manifest" && continue
    name="$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)"
    file="ci/public-api/$name.txt"
    count=$((count + 1))
    if [[ -n "$write" ]]; then
        listing "$manifest" "$name" >"$file"
    elif ! diff -u --label "$file" --label "$name as it is" "$file" <(listing "$manifest" "$name"); then
        status=1
    fi
done
((count > 0)) || die "no crate is published"
if ((status != 0)); then
    die "the public interface has changed: see above. If it is meant to, run ci/public-api.sh --write"
fi
