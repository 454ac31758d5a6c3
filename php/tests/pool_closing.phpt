--TEST--
Async\Pool: closing, and the end of the object
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\{Pool, PoolException};
use function Async\{spawn, await, suspend};

$gone = [];
$log = function ($r) use (&$gone) { $gone[] = $r; };

$pool = new Pool(factory: counter(), destructor: $log, min: 2, max: 5);
check('P-005b before', $pool->isClosed(), false);
$pool->close();
check('P-005a, P-005b', [$gone, $pool->isClosed()], [[1, 2], true]);
check('P-006', outcome(fn() => await(spawn(fn() => $pool->acquire()))), PoolException::class);
check('P-013a, P-013b', [$pool->close(), $gone], [null, [1, 2]]);
check('P-014', $pool->tryAcquire(), null);

$gone = [];
$pool = new Pool(factory: counter(), destructor: $log);
$r = $pool->acquire();
$pool->close();
check('P-015a', $gone, []);
$pool->release($r);
check('P-015b', $gone, [1]);

$pool = new Pool(factory: counter(), destructor: fn() => throw new RuntimeException('no'), min: 1);
check('P-018', outcome(fn() => $pool->close()), RuntimeException::class);

$gone = [];
(function () use ($log) { $pool = new Pool(factory: counter(), destructor: $log, min: 2); })();
check('P-028', $gone, [1, 2]);

$pool = new Pool(factory: counter(), max: 1);
$r = $pool->acquire();
$order = [];
$waiters = [];
for ($i = 0; $i < 3; $i++) {
    $waiters[] = spawn(function () use ($pool, &$order) {
        try { $pool->acquire(); } catch (PoolException $e) { $order[] = $e->getMessage(); }
    });
}
suspend();
$pool->close();
$order[] = 'close returned';
Async\await_all_or_fail($waiters);
check('P-032a, P-032b, P-036', $order, ['close returned', 'Pool is closed', 'Pool is closed', 'Pool is closed']);

$gone = [];
function unwinding(Closure $log) { $pool = new Pool(factory: counter(), destructor: $log, min: 1); throw new LogicException('original'); }
try { unwinding($log); } catch (LogicException $e) { check('P-057', [$e->getMessage(), $gone, $e->getPrevious()], ['original', [1], null]); }

$gone = [];
$pool = new Pool(factory: counter($made), destructor: $log, max: 1);
$r = $pool->acquire();
$w = spawn(fn() => outcome(fn() => $pool->acquire()));
suspend();
$pool->release($r);
$pool->close();
check('P-063a', await($w), PoolException::class);
check('P-063b', [$gone, $made, $pool->idleCount()], [[1], 1, 0]);

// A resource that is in use when its pool goes away stays with its user.
$gone = [];
$pool = new Pool(factory: fn() => new ArrayObject(['mine']), destructor: fn() => $log('destroyed'), max: 1);
$r = $pool->acquire();
unset($pool);
check('in use', [$r[0], $gone], ['mine', []]);

// Memory: cycles through hooks and idle resources, and the caller's own reference.
class Watched { public $pool; public static int $alive = 0; function __construct() { self::$alive++; } function __destruct() { self::$alive--; } }
$owner = new Watched;
$owner->pool = new Pool(factory: function () use ($owner) { return 1; });
unset($owner);
gc_collect_cycles();
check('P-053a', Watched::$alive, 0);
$owner = new Watched;
$owner->pool = new Pool(factory: fn() => 1, beforeRelease: function () use ($owner) { return true; });
unset($owner);
gc_collect_cycles();
check('P-053b', Watched::$alive, 0);
$resource = new Watched;
$resource->pool = new Pool(factory: fn() => $resource, min: 1);
unset($resource);
gc_collect_cycles();
check('a cycle through an idle resource', Watched::$alive, 0);
$destroyed = 0;
$pool = new Pool(factory: fn() => new stdClass, destructor: function () use (&$destroyed) { $destroyed++; }, beforeRelease: fn() => false);
$r = $pool->acquire();
$r->tag = 'mine';
$pool->release($r);
check('P-067', [$destroyed, $r->tag, $pool->idleCount()], [1, 'mine', 0]);
done();
?>
--EXPECT--
18 checks
