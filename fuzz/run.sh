#!/usr/bin/env bash
#
# Fuzzes, guided by coverage, on a stable Rust: needs a C++ compiler and unixODBC.
#
#     fuzz/run.sh                    every target for a minute
#     fuzz/run.sh 3600               every target for an hour
#     fuzz/run.sh 600 session dsn    these for ten minutes each
#     fuzz/run.sh merge              keeps the smallest set of inputs that reaches the same code
#
# New inputs go to fuzz/found/TARGET, which is not committed; `merge` copies those that reach new
# code to fuzz/corpus, which is. An input that breaks a promise is written to fuzz/found/crash-…;
# the last lines show the failure, and the next run tries that input first.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds=60
merge=""
case "${1:-}" in
merge)
    merge=yes
    shift
    ;;
[0-9]*)
    seconds="$1"
    shift
    ;;
esac
targets=("$@")
((${#targets[@]})) || targets=(dsn placeholders session decoder copy arrays notifications)

# What `cargo fuzz` sets, without the sanitizers, which need a nightly compiler. The target is
# named so that the flags are not those of build scripts, too.
host="$(rustc -vV | sed -n 's/^host: //p')"
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
target_dir="${CARGO_TARGET_DIR:-target}"
cargo build --release --target "$host" --target-dir "$target_dir"

for target in "${targets[@]}"; do
    program="$target_dir/$host/release/$target"
    mkdir -p "found/$target" "corpus/$target"
    if [[ -n "$merge" ]]; then
        fewest="$(mktemp -d)"
        "$program" -merge=1 -use_counters=0 -max_len=200 "$fewest" "corpus/$target" "found/$target"
        rm -rf "corpus/$target"
        mv "$fewest" "corpus/$target"
        chmod 755 "corpus/$target"
        continue
    fi
    printf '\n== %s: %s s\n' "$target" "$seconds"
    "$program" -max_total_time="$seconds" -max_len=2000 -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix=found/ "found/$target" "corpus/$target"
done
