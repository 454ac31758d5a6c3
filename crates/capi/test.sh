#!/usr/bin/env bash
#
# Tests the C API from C: installs the library into a temporary folder, compiles the
# tests and the examples against that, and runs them, plainly and under valgrind.
#
#     crates/capi/test.sh                  everything but the next
#     CENOTE_TSAN=1 crates/capi/test.sh    the tests under ThreadSanitizer instead
#
# ThreadSanitizer has to instrument Rust's standard library, or it reports its locks as races.
# So the script builds that library, too, which needs the component rust-src (rustup adds it)
# and takes a minute. Helgrind and DRD know only the locks of pthreads and would report every
# lock of Rust, so they are not used.
#
# Needs gcc, g++, valgrind, pkg-config and the headers of SQLite.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

readonly tests=(conformance endings handles resources reentry async host guests events)
# Not run under ThreadSanitizer, which forbids threads in the child of a process with threads.
readonly forks=(fork)
# The tests that take a number of rounds.
readonly crowds=(hammer crowd)
readonly flags=(-g -O1 -Wall -Wextra -Werror)
readonly c99=(-std=c99 -D_XOPEN_SOURCE=700 "${flags[@]}")
# Memory that is still reachable at the end belongs to the background thread, which runs until
# the process ends. "Possibly lost" blocks are those that Rust points into the middle of.
readonly memcheck=(valgrind -q --fair-sched=yes --leak-check=full --child-silent-after-fork=yes
    --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect
    --error-exitcode=99)

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

die() {
    echo "crates/capi/test.sh: $*" >&2
    exit 1
}

say() {
    printf -- '-- [%3d s] %s\n' "$SECONDS" "$*"
}

for command in gcc g++ valgrind pkg-config nm; do
    command -v "$command" >/dev/null || die "not found: $command. Please install it."
done

# ---- ThreadSanitizer ---------------------------------------------------------

under_tsan() {
    local target rust status=0
    target="$(rustc -vV | sed -n 's/^host: //p')"
    rust="$(rustc --print sysroot)/lib/rustlib/src/rust/library"
    [[ -d "$rust" ]] || rustup component add rust-src || die "rust-src cannot be added"
    say "the library and Rust's own, with ThreadSanitizer"
    # This variable makes a stable compiler accept the unstable flag.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../../target}/tsan" \
        cargo build --quiet -p cenote-c --target "$target" -Zbuild-std=std,panic_unwind
    local built="${CARGO_TARGET_DIR:-../../target}/tsan/$target/debug"
    cp "$built/libcenote.so" "$scratch/libcenote.so.0"
    ln -s libcenote.so.0 "$scratch/libcenote.so"
    compile_tsan() {
        gcc "${c99[@]}" -fsanitize=thread -Iinclude "tests/c/$1.c" tests/c/tsan.c "${@:2}" -o "$scratch/$1" \
            -L"$scratch" -lcenote -pthread -Wl,-rpath,"$scratch"
    }
    for name in "${tests[@]}"; do
        compile_tsan "$name"
        say "$name"
        "$scratch/$name" >/dev/null
    done
    for name in "${crowds[@]}"; do
        compile_tsan "$name"
        say "$name"
        "$scratch/$name" "${CENOTE_HAMMER_ROUNDS:-5000}"
    done
    # Proves that the sanitizer finds a race that exists.
    compile_tsan hammer -DRACE
    "$scratch/hammer" 500 >"$scratch/log" 2>&1 || status=$?
    ((status == 66)) || die "ThreadSanitizer does not see a race that is there"
    grep -q "data race .*hammer.c.* in use_it" "$scratch/log" || die "it sees another race than the one there"
    say "no race but the one that was put there"
}

if [[ -n "${CENOTE_TSAN:-}" ]]; then
    under_tsan
    exit 0
fi

# ---- the library as it is installed --------------------------------------------

pkg-config --exists sqlite3 || die "not found: sqlite3.h. Please install libsqlite3-dev."
say "install"
prefix="$scratch/prefix"
CENOTE_PROFILE=dev ./install.sh "$prefix" >/dev/null
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
read -ra cenote < <(pkg-config --cflags --libs cenote)
cenote+=(-pthread "-Wl,-rpath,$prefix/lib")

say "header"
echo '#include <cenote.h>' >"$scratch/header.c"
cp "$scratch/header.c" "$scratch/header.cpp"
gcc -std=c99 -pedantic "${flags[@]}" -I"$prefix/include" -c "$scratch/header.c" -o "$scratch/header.o"
gcc -std=c17 -pedantic "${flags[@]}" -I"$prefix/include" -c "$scratch/header.c" -o "$scratch/header.o"
for standard in c++11 c++17 c++20; do
    g++ "-std=$standard" -pedantic "${flags[@]}" -I"$prefix/include" -c "$scratch/header.cpp" -o "$scratch/header.o"
done

say "symbols"
nm -D --defined-only "$prefix/lib/libcenote.so.0" | awk '{ print $3 }' | sort >"$scratch/exported"
grep -v '^typedef' include/cenote.h | sed -nE 's/^[a-z].*[ *](cenote_[a-z_]+)\(.*/\1/p' |
    sort >"$scratch/declared"
diff "$scratch/declared" "$scratch/exported" || die "what the header declares is not what the library exports"

# ---- tests ---------------------------------------------------------------------

for name in "${tests[@]}" "${forks[@]}" "${crowds[@]}"; do
    gcc "${c99[@]}" "tests/c/$name.c" "${cenote[@]}" -o "$scratch/$name"
done
for name in "${tests[@]}" "${forks[@]}" "${crowds[@]}"; do
    say "$name"
    "$scratch/$name"
done
for name in "${tests[@]}" "${forks[@]}"; do
    say "$name under valgrind"
    "${memcheck[@]}" "$scratch/$name" >/dev/null
done
for name in "${crowds[@]}"; do
    say "$name under valgrind"
    "${memcheck[@]}" "$scratch/$name" 400
done

say "conformance, linked to the static library"
read -ra private < <(sed -n 's/^Libs.private: //p' "$prefix/lib/pkgconfig/cenote.pc")
gcc "${c99[@]}" tests/c/conformance.c -I"$prefix/include" "$prefix/lib/libcenote.a" -pthread "${private[@]}" \
    -o "$scratch/static"
"$scratch/static" >/dev/null

# ---- examples ------------------------------------------------------------------

lines="$(wc -l <examples/cenote.hpp)"
((lines <= 100)) || die "examples/cenote.hpp has $lines lines, but is promised to have 100 at most"
read -ra sqlite < <(pkg-config --cflags --libs sqlite3)
gcc "${c99[@]}" examples/hello.c "${cenote[@]}" -o "$scratch/hello"
gcc "${c99[@]}" examples/sqlite.c "${cenote[@]}" "${sqlite[@]}" -o "$scratch/sqlite"
gcc "${c99[@]}" -I"$prefix/include" examples/dlopen.c -ldl -o "$scratch/dlopen"
g++ -std=c++14 "${flags[@]}" examples/raii.cpp "${cenote[@]}" -o "$scratch/raii"
say "examples, under valgrind"
"${memcheck[@]}" "$scratch/hello"
"${memcheck[@]}" "$scratch/sqlite"
"${memcheck[@]}" "$scratch/dlopen" "$prefix/lib/libcenote.so.0"
"${memcheck[@]}" "$scratch/raii"
say "all of it is well"
