--TEST--
Async\Pool: waiting, order, reservations, timeouts
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\{Pool, AsyncCancellation, TimeoutException, PoolException};
use function Async\{spawn, await, await_all_or_fail, suspend, delay};

// The holder takes the only resource, and gives it back when the waiters wait.
function scene(Pool $pool, callable ...$waiters): array
{
    $held = $pool->acquire();
    $tasks = array_map(fn($waiter) => spawn($waiter), $waiters);
    suspend();
    return [$held, $tasks];
}

$pool = new Pool(factory: counter(), max: 1);
[$held, [$a, $b, $c]] = scene($pool, ...array_fill(0, 3, function () use ($pool) {
    $r = $pool->acquire();
    suspend();
    $pool->release($r);
    return $r;
}));
check('P-029 waits', [$a->isCompleted(), $a->isSuspended()], [false, true]);
$pool->release($held);
check('P-029, P-030, P-034, P-035', [await_all_or_fail([$a, $b, $c]), $pool->count()], [[1, 1, 1], 1]);

// A resource that is refused on release frees the place for a waiter.
$keep = false;
$pool = new Pool(factory: function () { static $n = 0; delay(1); return ++$n; },
    beforeRelease: function () use (&$keep) { return $keep; }, max: 1);
[$held, $tasks] = scene($pool, ...array_fill(0, 2, function () use ($pool) { $r = $pool->acquire(); $pool->release($r); return $r; }));
$pool->release($held);
$keep = true;
check('P-054a', await_all_or_fail($tasks), [2, 2]);

$pool = new Pool(factory: counter(), max: 1);
$order = [];
$loop = function ($name) use ($pool, &$order) {
    for ($i = 0; $i < 3; $i++) { $r = $pool->acquire(); $order[] = $name . $i; suspend(); $pool->release($r); }
};
await_all_or_fail([spawn($loop, 'A'), spawn($loop, 'B')]);
check('P-058', implode(' ', $order), 'A0 B0 A1 B1 A2 B2');

$pool = new Pool(factory: counter(), max: 1);
$order = '';
$tasks = [];
for ($i = 0; $i < 6; $i++) {
    $tasks[] = spawn(function () use ($pool, $i, &$order) {
        for ($k = 0; $k < 3; $k++) { $r = $pool->acquire(); $order .= $i; suspend(); $pool->release($r); suspend(); }
    });
}
await_all_or_fail($tasks);
check('P-059', $order, str_repeat('012345', 3));

$take = fn(Pool $pool) => fn() => outcome(function () use ($pool) { $r = $pool->acquire(); $pool->release($r); return $r; });
$pool = new Pool(factory: counter(), max: 1);
[$held, [$w1, $w2]] = scene($pool, $take($pool), $take($pool));
$pool->release($held);
$w1->cancel();
check('P-060a', await($w1), AsyncCancellation::class);
check('P-060b', [await($w2), $pool->idleCount()], [1, 1]);

$pool = new Pool(factory: counter(), max: 1);
[$held, [$w]] = scene($pool, $take($pool));
$pool->release($held);
check('P-061', $pool->tryAcquire(), null);
check('P-061 waiter', [await($w), $pool->idleCount()], [1, 1]);

$pool = new Pool(factory: counter($made), max: 3);
$held = [$pool->acquire(), $pool->acquire(), $pool->acquire()];
$w = spawn($take($pool));
suspend();
array_map($pool->release(...), $held);
check('P-065a', $pool->idleCount(), 3);
$surplus = $pool->tryAcquire();
check('P-065b', [$surplus !== null, await($w) !== null, $made], [true, true, 3]);

$pool = new Pool(factory: counter(), max: 1);
$held = $pool->acquire();
$begin = hrtime(true);
check('P-031', outcome(fn() => await(spawn(fn() => $pool->acquire(50)))), TimeoutException::class);
check('P-031 waits', (hrtime(true) - $begin) / 1e6 >= 49);
check('P-038a', outcome(fn() => $pool->acquire(1)), TimeoutException::class);
$pool->release($held);
check('P-038b', $pool->tryAcquire(), 1);
try { $pool->acquire(timeout: 1); } catch (Exception $e) {
    check('P-055a', [$e instanceof TimeoutException, $e instanceof PoolException], [true, false]);
    check('P-055a says why', preg_match('/^timed out after \d+ ms waiting for a resource \(1 of 1 in use/', $e->getMessage()), 1);
}
$pool->close();
check('P-055b, P-055c', outcome(fn() => $pool->acquire()), PoolException::class);

// Nobody can ever give the resource back.
$pool = new Pool(factory: counter(), max: 1);
$held = $pool->acquire();
check('deadlock', outcome(fn() => $pool->acquire()), Async\DeadlockError::class);
check('deadlock left no waiter', [$pool->release($held), $pool->acquire()], [null, 1]);
done();
?>
--EXPECT--
20 checks
