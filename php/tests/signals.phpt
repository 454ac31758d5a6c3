--TEST--
Signals arrive while all coroutines wait
--EXTENSIONS--
pcntl
posix
--FILE--
<?php
require __DIR__ . '/check.inc';
use function Async\{spawn, delay, await, suspend};
pcntl_async_signals(true);
$parent = getmypid();

$child = pcntl_fork();
if ($child === 0) {
    for ($i = 0; $i < 3; $i++) { usleep(30_000); posix_kill($parent, SIGUSR1); }
    exit(0);
}
$arrived = [];
$state = new Async\FutureState;
pcntl_signal(SIGUSR1, function () use (&$arrived, $state) {
    $arrived[] = hrtime(true);
    suspend();                          // a handler may wait itself
    if (count($arrived) === 3) { $state->complete('three'); }
});
$begin = hrtime(true);
spawn(function () { delay(1500); });
$result = await(new Async\Future($state), Async\timeout(1400));
$took = (hrtime(true) - $begin) / 1e6;
check('all arrived', [$result, count($arrived)], ['three', 3]);
check('in time', $took < 1000);

pcntl_signal(SIGUSR2, fn() => throw new DomainException('from a handler'));
spawn(function () use ($parent) { delay(2); posix_kill($parent, SIGUSR2); });
check('an exception of a handler', outcome(fn() => delay(1000)), DomainException::class);
pcntl_waitpid($child, $status);
done();
foreach (Async\get_coroutines() as $coroutine) { $coroutine->cancel(); }
?>
--EXPECT--
3 checks
