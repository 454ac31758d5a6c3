--TEST--
Async\Pool: hooks, also hooks that suspend, and health checks
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\Pool;
use function Async\{spawn, await, delay};

$log = [];
$asked = 0;
$pool = new Pool(factory: counter(), destructor: function ($r) use (&$log) { $log[] = "gone $r"; },
    beforeAcquire: function ($r) use (&$asked, &$log) { $log[] = "check $r"; return ++$asked > 1; }, min: 1, max: 5);
$r = $pool->tryAcquire();
check('P-008a, P-008b', [$r, $log], [2, ['check 1', 'gone 1']]);
$pool->release($r);
check('P-008c', [$pool->tryAcquire(), $asked], [2, 2]);

$log = [];
$pool = new Pool(factory: counter(), destructor: function ($r) use (&$log) { $log[] = 'destructor'; },
    beforeRelease: function ($r) use (&$log) { $log[] = 'beforeRelease'; return false; });
$pool->release($pool->acquire());
check('P-009a', $log, ['beforeRelease', 'destructor']);
check('P-009b', [$pool->idleCount(), $pool->count()], [0, 0]);

$gone = [];
$pool = new Pool(factory: counter(), destructor: function ($r) use (&$gone) { $gone[] = $r; },
    beforeAcquire: fn() => throw new Exception('no'), min: 1, max: 2);
check('P-021a, P-021b', [$pool->tryAcquire(), $gone], [2, [1]]);

$gone = [];
$pool = new Pool(factory: counter(), destructor: function ($r) use (&$gone) { $gone[] = $r; },
    beforeRelease: fn() => throw new Exception('no'));
$pool->release($pool->acquire());
check('P-022', [$gone, $pool->idleCount(), $pool->count()], [[1], 0, 0]);

$pool = new Pool(factory: counter(), destructor: fn($r) => $r === 1 && throw new RuntimeException("destroying $r"),
    beforeAcquire: fn() => false, min: 1, max: 4);
check('P-051', outcome(fn() => await(spawn(fn() => $pool->acquire()))), RuntimeException::class);
check('P-051 goes on', $pool->acquire(), 2);

// A hook that suspends: its resource counts, and other coroutines run.
$pool = new Pool(factory: counter($made), beforeAcquire: function () { delay(6); return true; },
    beforeRelease: function () { delay(6); return true; }, max: 1);
$pool->release($pool->acquire());
$user = spawn(function () use ($pool) { $r = $pool->acquire(); delay(4); $pool->release($r); });
$counts = [];
while (!$user->isCompleted()) { $counts[] = $pool->count(); delay(1); }
check('P-056', [array_unique($counts), $made, count($counts) > 3], [[1], 1, true]);

// A factory that suspends reserves its place first.
$pool = new Pool(factory: function () { static $n = 0; delay(5); return ++$n; }, max: 3);
$peak = 0;
$tasks = [];
for ($i = 0; $i < 10; $i++) {
    $tasks[] = spawn(function () use ($pool, &$peak) {
        $r = $pool->acquire();
        $peak = max($peak, $pool->count());
        delay(2);
        $pool->release($r);
        return $r;
    });
}
check('P-024x', [max(Async\await_all_or_fail($tasks)), $peak, $pool->count()], [3, 3, 3]);

// Cancelled inside its beforeAcquire: the hook is cancelled too, and the place is free again.
$pool = new Pool(factory: counter(), beforeAcquire: function () { delay(60_000); return true; }, max: 1);
$pool->release($pool->acquire());
$c = spawn(fn() => $pool->acquire());
delay(1);
$c->cancel();
check('cancelled in a hook', outcome(fn() => await($c)), Async\AsyncCancellation::class);
check('its place is free', $pool->tryAcquire(), 2);

$seen = [];
$pool = new Pool(factory: counter(), healthcheck: function ($r) use (&$seen) { $seen[$r] = true; return $r !== 1; },
    min: 2, max: 4, healthcheckInterval: 5);
for ($i = 0; $i < 200 && !isset($seen[3]); $i++) { delay(5); }
check('P-048a', [isset($seen[1], $seen[2], $seen[3]), $pool->count()], [true, 2]);
$pool->close();
check('P-048b', [$pool->isClosed(), $pool->count()], [true, 0]);

$gone = [];
$pool = new Pool(factory: counter(), destructor: function ($r) use (&$gone) { $gone[] = $r; },
    healthcheck: fn($r) => $r === 1 ? throw new RuntimeException('boom') : true, min: 2, max: 4, healthcheckInterval: 5);
for ($i = 0; $i < 200 && !$gone; $i++) { delay(5); }
check('P-049a', $gone, [1]);
// A destructor that throws in the background: into the log, not into the program.
ini_set('error_log', $file = tempnam(sys_get_temp_dir(), 'cenote'));
$noisy = new Pool(factory: counter(), destructor: fn($r) => $r === 1 && throw new DomainException('in the background'),
    healthcheck: fn($r) => $r !== 1, min: 1, healthcheckInterval: 5);
for ($i = 0; $i < 200 && !str_contains($logged = file_get_contents($file), 'background'); $i++) { delay(5); }
check('the log', str_contains($logged, 'a hook of an Async\Pool threw in the background: DomainException: in the background'));
unlink($file);
$noisy->close();
check('P-049b', outcome(fn() => $pool->close()), null);
done();
?>
--EXPECT--
17 checks
