--TEST--
Async\Pool: invalid arguments and failing factories
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\Pool;
use function Async\{spawn, await};

$message = function (callable $f) { try { $f(); } catch (ValueError $e) { return $e->getMessage(); } return null; };
check('P-010a', $message(fn() => new Pool(factory: fn() => 1, min: -1)), 'Async\Pool::__construct(): Argument #6 ($min) must be >= 0');
check('P-010b', $message(fn() => new Pool(factory: fn() => 1, max: 0)), 'Async\Pool::__construct(): Argument #7 ($max) must be >= 1');
check('P-010c', $message(fn() => new Pool(factory: fn() => 1, min: 10, max: 5)), 'Async\Pool::__construct(): Argument #6 ($min) must be <= max');
check('interval', $message(fn() => new Pool(factory: fn() => 1, healthcheckInterval: -1)), 'Async\Pool::__construct(): Argument #8 ($healthcheckInterval) must be >= 0');
check('timeout', $message(fn() => (new Pool(factory: fn() => 1))->acquire(-1)), 'Async\Pool::acquire(): Argument #1 ($timeout) must be >= 0');
check('no callable', outcome(fn() => new Pool(factory: 'no such function')), TypeError::class);

class MyError extends Exception {}
$pool = new Pool(factory: fn() => throw new MyError('mine'));
check('P-017', outcome(fn() => $pool->tryAcquire()), MyError::class);
check('P-017 acquire', outcome(fn() => $pool->acquire()), MyError::class);
check('P-017 count', $pool->count(), 0);

foreach ([[5, 10], [3, 5]] as [$min, $max]) {
    $calls = 0;
    $destroyed = [];
    $factory = function () use (&$calls) { return ++$calls < 2 ? $calls : throw new MyError("at $calls"); };
    $destructor = function ($r) use (&$destroyed) { $destroyed[] = $r; };
    $made = outcome(fn() => new Pool($factory, $destructor, min: $min, max: $max));
    check('P-025, P-050', [$made, $calls, $destroyed], [MyError::class, 2, [1]]);
}

$calls = 0;
$pool = new Pool(factory: function () use (&$calls) { return ++$calls > 2 ? new stdClass : throw new MyError; }, max: 2);
$try = fn() => outcome(fn() => await(spawn(fn() => $pool->acquire()::class)));
check('a failed creation leaves the pool whole', [$try(), $try(), $try(), $pool->count()], [MyError::class, MyError::class, 'stdClass', 1]);

check('constructed twice', outcome(fn() => $pool->__construct(fn() => 1)), Error::class);
check('clone', outcome(fn() => clone new Pool(factory: fn() => 1)), Error::class);
check('serialize', outcome(fn() => serialize(new Pool(factory: fn() => 1))), Exception::class);
done();
?>
--EXPECT--
15 checks
