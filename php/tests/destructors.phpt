--TEST--
Destructors of PHP objects, where PHP blocks the switch to another coroutine
--SKIPIF--
<?php
if (PHP_VERSION_ID >= 80400) die('skip since PHP 8.4 the garbage collector lets destructors switch');
?>
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\Pool;
use function Async\{spawn, await, delay, suspend};

class Cleaner {
    public $cycle;
    public function __construct(public Closure $clean) { $this->cycle = $this; }
    public function __destruct() { ($this->clean)(); }
}
$in_destructor = function (Closure $clean): mixed {
    $got = null;
    new Cleaner(function () use ($clean, &$got) { $got = outcome($clean); });
    gc_collect_cycles();
    return $got;
};
$begin = hrtime(true);
check('delay blocks', $in_destructor(function () { delay(3); return 'slept'; }), 'slept');
check('for its time', (hrtime(true) - $begin) / 1e6 >= 3);
check('spawn works', $in_destructor(fn() => spawn(fn() => 1)::class), Async\Coroutine::class);
check('await cannot wait', $in_destructor(fn() => await(spawn(fn() => 1))), Error::class);
$pool = new Pool(factory: fn() => 'made', beforeRelease: fn() => true, max: 1);
check('a pool works', $in_destructor(function () use ($pool) { $r = $pool->acquire(); $pool->release($r); return $r; }), 'made');
$held = $pool->acquire();
check('acquire cannot wait', $in_destructor(fn() => $pool->acquire()), Error::class);
check('acquire with a timeout neither', $in_destructor(fn() => $pool->acquire(5)), Error::class);
$pool->release($held);
check('the pool is whole', [$pool->idleCount(), $pool->acquire()], [1, 'made']);
suspend();
done();
?>
--EXPECT--
8 checks
