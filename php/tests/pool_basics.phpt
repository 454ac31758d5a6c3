--TEST--
Async\Pool: construction, counters, acquire and release
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\Pool;
use function Async\{spawn, await, await_all_or_fail, suspend};

$counts = fn(Pool $pool) => [$pool->count(), $pool->idleCount(), $pool->activeCount()];

$pool = new Pool(factory: counter($made));
check('P-001', [...$counts($pool), $pool->isClosed(), $made], [0, 0, 0, false, 0]);

$pool = new Pool(factory: counter($made), min: 3, max: 5);
check('P-002a', $made, 3);
check('P-002b', $counts($pool), [3, 3, 0]);

$pool = new Pool(factory: counter($made), max: 2);
check('P-003a', [$pool->tryAcquire(), $pool->activeCount(), $pool->tryAcquire(), $pool->activeCount()], [1, 1, 2, 2]);
check('P-003b', [$pool->tryAcquire(), $made], [null, 2]);
$pool->release(1);
check('P-004a', $counts($pool), [2, 1, 1]);
check('P-004b', $pool->tryAcquire(), 1);

$log = [];
$pool = new Pool(factory: counter($made), destructor: function ($r) use (&$log) { $log[] = $r; }, min: 1, max: 2);
check('P-007a', [$pool->acquire(), $made], [1, 1]);
$pool->release(1);
check('P-007b before', $log, []);
$pool->close();
check('P-007b', $log, [1]);

$pool = new Pool(factory: counter(), min: 2, max: 5);
$before = count($pool);
$r = $pool->acquire();
$during = count($pool);
$pool->release($r);
check('P-011a', [$before, $during, count($pool)], [2, 2, 2]);
check('P-011b', $pool instanceof Countable);

$pool = new Pool(factory: counter($made), max: 2);
$result = await(spawn(function () use ($pool) {
    $r = $pool->acquire();
    $pool->release($r);
    return "used $r";
}));
check('P-012a', $made, 1);
check('P-012b', [$result, $pool->count(), $pool->idleCount()], ['used 1', 1, 1]);

class Connection { public function __construct(public int $id) {} }
$gone = [];
$n = 0;
$pool = new Pool(factory: function () use (&$n) { return new Connection(++$n); },
    destructor: function (Connection $c) use (&$gone) { $gone[] = $c->id; }, min: 2, max: 5);
$c = $pool->tryAcquire();
check('P-016a', [$c instanceof Connection, $c->id], [true, 1]);
$pool->release($c);
$pool->close();
sort($gone);
check('P-016b', $gone, [1, 2]);

$pool = new Pool(factory: counter($made), max: 3);
for ($i = 0; $i < 3; $i++) { $pool->tryAcquire(); }
check('P-019', [$pool->tryAcquire(), $made], [null, 3]);

$pool = new Pool(factory: counter($made), max: 2);
for ($i = 0; $i < 3; $i++) { $pool->release($r = $pool->acquire()); check('P-020', $r, 1); }
check('P-020 made', $made, 1);

foreach ([42, 'text', ['a' => 1], 3.14, true, false] as $value) {
    $pool = new Pool(factory: fn() => $value);
    check('P-023', $pool->tryAcquire(), $value);
    $pool->release($value);
    check('P-023 released', $pool->idleCount(), 1);
}

$pool = new Pool(factory: counter($made), max: 2);
$use = fn() => (function () use ($pool) { $r = $pool->acquire(); $pool->release($r); return $r; })();
check('P-024', [await_all_or_fail([spawn($use), spawn($use), spawn($use)]), $made], [[1, 1, 1], 1]);

$pool = new Pool(factory: counter(), min: 2, max: 2);
$idle = fn() => [$pool->idleCount(), $pool->activeCount()];
$seen = [$idle()];
$a = $pool->tryAcquire(); $seen[] = $idle();
$b = $pool->tryAcquire(); $seen[] = $idle();
check('P-026', $seen, [[2, 0], [1, 1], [0, 2]]);
check('P-026 none', $pool->tryAcquire(), null);
$pool->release($a);
check('P-026 again', [$idle(), $pool->tryAcquire()], [[1, 1], $a]);

$log = [];
$note = function ($name) use (&$log) { return function () use ($name, &$log) { $log[] = $name; return true; }; };
$pool = new Pool(factory: $note('factory'), destructor: $note('destructor'), beforeAcquire: $note('beforeAcquire'),
    beforeRelease: $note('beforeRelease'), min: 1, max: 2);
$pool->release($pool->acquire());
$pool->close();
check('P-027', $log, ['factory', 'beforeAcquire', 'beforeRelease', 'destructor']);

$pool = new Pool(factory: counter(), max: 15);
$go = new Async\FutureState;
$future = new Async\Future($go);
$tasks = [];
for ($i = 0; $i < 15; $i++) {
    $tasks[] = spawn(function () use ($pool, $future) { $r = $pool->acquire(); await($future); $pool->release($r); });
}
while ($pool->activeCount() < 15) { suspend(); }
$go->complete(null);
await_all_or_fail($tasks);
check('P-046', $counts($pool), [15, 15, 0]);
check('P-046 reuse', $pool->acquire() <= 15);

check('release of a foreign value', outcome(fn() => $pool->release('foreign')), Async\PoolException::class);
done();
?>
--EXPECT--
41 checks
