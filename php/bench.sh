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

# The same program with and without the extension, in turns; the best run of each counts.
cat >"$target/plain.php" <<'P'
<?php
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
$begin = hrtime(true);
fib(25);
$a = [];
for ($i = 0; $i < 300_000; $i++) { $a[$i % 1000] = md5((string) $i); }
usort($a, 'strcmp');
foreach (range(1, 200) as $i) { $f = new Fiber(function () { Fiber::suspend(1); }); $f->start(); $f->resume(); }
echo (hrtime(true) - $begin) / 1e6, "\n";
P
best_without=1000000 best_with=1000000
for _ in $(seq "${ROUNDS:-25}"); do
    without="$("$PHP" -n "$target/plain.php")"
    with="$("$PHP" -n -d "extension=$extension" "$target/plain.php")"
    best_without="$(awk "BEGIN { print ($without < $best_without) ? $without : $best_without }")"
    best_with="$(awk "BEGIN { print ($with < $best_with) ? $with : $best_with }")"
done
awk "BEGIN { printf \"%-46s %8.2f %-3s (goal 1)\n\", \"PHP code that uses nothing of it\", ($best_with / $best_without - 1) * 100, \"%\" }"
