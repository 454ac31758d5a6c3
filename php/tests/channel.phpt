--TEST--
Async\Channel: order, capacity, closing, cancellation
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\{Channel, ChannelException, AsyncCancellation};
use function Async\{spawn, await, suspend, timeout};

$channel = new Channel;
$log = [];
$sender = spawn(function () use ($channel, &$log) { foreach ([1, 2, 3] as $n) { $channel->send($n); $log[] = "sent $n"; } $channel->close(); });
$received = [];
foreach ($channel as $key => $value) { $received[$key] = $value; }
check('unbuffered', $received, [1, 2, 3]);
check('closed', [$channel->isClosed(), outcome(fn() => $channel->recv()), outcome(fn() => $channel->send(1))], [true, ChannelException::class, ChannelException::class]);

$channel = new Channel(2);
check('buffer', [$channel->sendAsync('a'), $channel->sendAsync('b'), $channel->sendAsync('c'), $channel->isFull(), count($channel), $channel->capacity()], [true, true, false, true, 2, 2]);
$late = spawn(fn() => $channel->send('c'));
suspend();
check('waits', $late->isCompleted(), false);
$channel->close();
check('a closed buffer is drained', [$channel->recv(), $channel->recv(), $channel->isEmpty()], ['a', 'b', true]);
check('a waiting sender', outcome(fn() => await($late)), ChannelException::class);

$channel = new Channel;
$first = spawn(fn() => $channel->recv());
$second = spawn(fn() => $channel->recv());
suspend();
$channel->send('value');
$first->cancel();
check('a cancelled receiver', outcome(fn() => await($first)), AsyncCancellation::class);
check('passes its value on', await($second), 'value');
check('token', outcome(fn() => $channel->recv(timeout(3))), Async\OperationCanceledException::class);

$channel = new Channel(1);
$channel->send('full');
$s1 = spawn(fn() => $channel->send('one'));
$s2 = spawn(fn() => $channel->send('two'));
suspend();
$taken = $channel->recv();
$s1->cancel();
check('a cancelled sender', [$taken, outcome(fn() => await($s1))], ['full', AsyncCancellation::class]);
check('sends nothing', [outcome(fn() => await($s2)), $channel->recv(), count($channel)], [null, 'two', 0]);
check('negative', outcome(fn() => new Channel(-1)), ValueError::class);
done();
?>
--EXPECT--
12 checks
