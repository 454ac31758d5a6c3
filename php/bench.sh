#!/usr/bin/env bash
#
# Measures the basic operations next to plain Fiber code, and what the extension costs a program that does not
# use it:
#
#     php/bench.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
build_extension
"$PHP" -n -d "extension=$extension" "$php_folder/bench.php"

# What the extension costs a program that does not use it, in instructions: times vary more than that.
command -v valgrind >/dev/null || { echo "install valgrind to count instructions"; exit 0; }
cat >"$target/plain.php" <<'P'
<?php
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
fib(25);
$a = [];
for ($i = 0; $i < 300_000; $i++) { $a[$i % 1000] = md5((string) $i); }
usort($a, 'strcmp');
foreach (range(1, 200) as $i) { $f = new Fiber(function () { Fiber::suspend(1); }); $f->start(); $f->resume(); }
P
echo '<?php' >"$target/empty.php"
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$PHP" -n "$@" 2>&1 | sed -n 's/.*refs: *//p' | tr -d ,
}
with=$(($(instructions -d "extension=$extension" "$target/plain.php") - $(instructions -d "extension=$extension" "$target/empty.php")))
without=$(($(instructions "$target/plain.php") - $(instructions "$target/empty.php")))
awk "BEGIN { printf \"%-46s %8.2f %-3s (goal 1)\\n\", \"PHP code that uses nothing of it\", ($with / $without - 1) * 100, \"%\" }"
