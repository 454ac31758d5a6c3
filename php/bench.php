<?php
// Times of the basic operations, next to plain Fiber code in the same run. See bench.sh.
use Async\Pool;
use function Async\{spawn, await, suspend};

function best(int $rounds, callable $run): float {
    $best = INF;
    for ($i = 0; $i < $rounds; $i++) {
        $start = hrtime(true);
        $operations = $run();
        $best = min($best, (hrtime(true) - $start) / $operations / 1000);
    }
    return $best;
}
function show(string $what, float $value, string $unit, float $goal): void {
    printf("%-46s %8.3f %-3s (goal %g)\n", $what, $value, $unit, $goal);
}

$n = 200_000;
$loop = best(5, function () use ($n) { for ($i = 0; $i < $n; $i++) {} return $n; });

$pool = new Pool(factory: fn() => new stdClass, max: 4);
show('acquire and release, nobody waits', best(7, function () use ($pool, $n) {
    for ($i = 0; $i < $n; $i++) { $pool->release($pool->acquire()); }
    return $n;
}) - $loop, 'us', 0.15);

show('suspend and switch, two coroutines', best(7, function () use ($n) {
    $work = function () use ($n) { for ($i = 0; $i < $n; $i++) { suspend(); } };
    $a = spawn($work); $b = spawn($work);
    await($a); await($b);
    return 2 * $n;
}) - $loop, 'us', 0.3);

show('  plain Fiber: suspend and resume', best(7, function () use ($n) {
    $fiber = new Fiber(function () use ($n) { for ($i = 0; $i < $n; $i++) { Fiber::suspend(); } });
    $fiber->start();
    while (!$fiber->isTerminated()) { $fiber->resume(); }
    return $n;
}) - $loop, 'us', 0.16);

show('spawn and await, stacks reused', best(7, function () {
    $n = 50_000; $work = static fn() => 1;
    for ($i = 0; $i < $n; $i++) { await(spawn($work)); }
    return $n;
}), 'us', 3);

show('  plain Fiber: create, start, end', best(7, function () {
    $n = 20_000; $work = static fn() => 1;
    for ($i = 0; $i < $n; $i++) { $f = new Fiber($work); $f->start(); }
    return $n;
}), 'us', 15);

function resident(): int {
    return (int) explode(' ', file_get_contents('/proc/self/statm'))[1] * 4096;
}
$count = 10_000;
$before = resident();
$coroutines = [];
for ($i = 0; $i < $count; $i++) { $coroutines[] = spawn(function () { Async\delay(60_000); }); }
suspend();
suspend();
show('memory of a parked coroutine', (resident() - $before) / $count / 1024, 'KB', 10);
foreach ($coroutines as $coroutine) { $coroutine->cancel(); }
Async\await_all($coroutines);
