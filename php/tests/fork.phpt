--TEST--
fork: refused while coroutines run; the pool of the parent stays with the parent
--EXTENSIONS--
pcntl
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\Pool;
use function Async\{spawn, delay, await};

$c = spawn(fn() => delay(60_000));
check('refused', outcome(fn() => pcntl_fork()), Error::class);
$c->cancel();
outcome(fn() => await($c));

$gone = [];
$pool = new Pool(factory: fn() => new stdClass, destructor: function () use (&$gone) { $gone[] = getmypid(); }, min: 2);
$held = $pool->acquire();
await(spawn(fn() => delay(1)));

$child = pcntl_fork();
if ($child === 0) {
    try {
        $pool->acquire();
        exit(10);
    } catch (Async\PoolException $e) {
        str_contains($e->getMessage(), 'parent process') || exit(11);
    }
    $pool->release($held);
    $own = new Pool(factory: fn() => 'own');
    await(spawn(function () use ($own) { delay(1); return $own->acquire(); })) === 'own' || exit(12);
    unset($pool);
    exit($gone === [] ? 0 : 13);
}
pcntl_waitpid($child, $status);
check('the child', pcntl_wexitstatus($status), 0);
$pool->release($held);
check('the parent', [$pool->idleCount(), await(spawn(fn() => $pool->acquire()::class))], [2, 'stdClass']);
$pool->close();
check('destroyed in the parent', $gone, [getmypid()]);
done();
?>
--EXPECT--
4 checks
