--TEST--
Coroutines: spawn, await, states, cancel, completion callbacks
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\{Coroutine, AsyncCancellation, OperationCanceledException, TimeoutException, DeadlockError};
use function Async\{spawn, await, suspend, delay, timeout, protect, current_coroutine, get_coroutines};

$log = [];
$a = spawn(function (int $x, int ...$named) use (&$log) { $log[] = 'a1'; suspend(); $log[] = 'a2'; return $x + $named['y']; }, 1, y: 2);
$b = spawn(function () use (&$log) { $log[] = 'b1'; suspend(); $log[] = 'b2'; });
check('starts later', [$log, $a->isStarted(), $a->isQueued(), $a->isRunning()], [[], false, true, false]);
check('result', await($a), 3);
check('await again', await($a), 3);
check('fair order', $log, ['a1', 'b1', 'a2', 'b2']);
check('states', [$a->isCompleted(), $a->isCancelled(), $a->getResult(), $a->getException()], [true, false, 3, null]);
check('location', $a->getSpawnFileAndLine(), [__FILE__, 7]);
check('final', (new ReflectionClass(Coroutine::class))->isFinal());
check('no constructor', outcome(fn() => new Coroutine), Error::class);

$c = spawn(fn() => throw new DomainException('mine'));
check('exception', outcome(fn() => await($c)), DomainException::class);
check('getException', $c->getException()::class, DomainException::class);

$me = spawn(fn() => current_coroutine());
check('current', await($me) === $me);
check('ids differ', $a->getId() !== $b->getId());

// delay: by duration, those of the same length in the order of their calls.
$order = '';
$tasks = [];
foreach ([[3, 'c'], [1, 'a'], [2, 'b'], [3, 'd']] as [$ms, $name]) {
    $tasks[] = spawn(function () use ($ms, $name, &$order) { delay($ms * 25); $order .= $name; });
}
Async\await_all_or_fail($tasks);
check('delay', $order, 'abcd');
$begin = hrtime(true);
$sleepers = [spawn(fn() => usleep(300_000)), spawn(fn() => time_nanosleep(0, 300_000_000)), spawn(fn() => sleep(0)), spawn(fn() => delay(300))];
Async\await_all_or_fail($sleepers);
$took = (hrtime(true) - $begin) / 1e6;
check('sleeps overlap', $took >= 299 && $took < 880);
check('delay of a negative time', outcome(fn() => delay(-1)), ValueError::class);

// Cancellation arrives where the coroutine waits; finally blocks run.
$log = [];
$c = spawn(function () use (&$log) {
    try { delay(60_000); } catch (Exception) { $log[] = 'an Exception'; } finally { $log[] = 'finally'; }
});
suspend();
$c->cancel(new AsyncCancellation('enough'));
check('requested', [$c->isCancellationRequested(), $c->isCancelled()], [true, false]);
try { await($c); } catch (AsyncCancellation $e) { $log[] = $e->getMessage(); }
check('cancelled', [$log, $c->isCancelled(), $c->isCompleted()], [['finally', 'enough'], true, true]);
$c = spawn(function () use (&$log) { $log[] = 'never'; });
$c->cancel();
check('cancelled before it starts', [outcome(fn() => await($c)), count($log)], [AsyncCancellation::class, 2]);

$log = [];
$c = spawn(function () use (&$log) {
    protect(function () use (&$log) { delay(5); $log[] = 'protected'; });
    $log[] = 'not reached';
});
suspend();
$c->cancel();
check('protect', [outcome(fn() => await($c)), $log], [AsyncCancellation::class, ['protected']]);

// Completion callbacks get the coroutine.
$seen = [];
$c = spawn(fn() => 7);
$c->finally(function (Coroutine $c) use (&$seen) { $seen[] = $c->getResult(); });
await($c);
suspend();
$c->finally(function (Coroutine $c) use (&$seen) { $seen[] = 'late'; });
suspend();
check('finally', $seen, [7, 'late']);

// A token ends the waiting, not the coroutine.
$slow = spawn(function () { delay(30); return 'slow'; });
try {
    await($slow, timeout(5));
} catch (OperationCanceledException $e) {
    check('timeout', [$e->getPrevious()::class, $slow->isCompleted()], [TimeoutException::class, false]);
}
check('goes on', await($slow), 'slow');
check('in time', await(spawn(fn() => 1), timeout(60_000)), 1);
$token = spawn(fn() => throw new DomainException('token'));
check('any completable is a token', outcome(fn() => await(spawn(fn() => delay(50)), $token)), OperationCanceledException::class);
check('timeout of nothing', outcome(fn() => timeout(0)), ValueError::class);

check('deadlock', outcome(fn() => await(new Async\Future(new Async\FutureState))), DeadlockError::class);
check('nothing is left', get_coroutines(), []);

// Many at once, and stacks that are used again.
$many = [];
for ($i = 0; $i < 1000; $i++) { $many[] = spawn(function () use ($i) { suspend(); return $i; }); }
check('many', array_sum(Async\await_all_or_fail($many)), 499500);
done();
?>
--EXPECT--
28 checks
