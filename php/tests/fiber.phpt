--TEST--
Coroutines: a Fiber of the program inside a coroutine
--FILE--
<?php
require __DIR__ . '/check.inc';
use function Async\{spawn, await, suspend, delay, await_all_or_fail};

$work = function (string $name) use (&$log) {
    $fiber = new Fiber(function () use ($name, &$log) {
        $log[] = "$name in";
        suspend();                 // suspends the coroutine, not the fiber
        $got = Fiber::suspend("$name out");
        delay(1);
        return "$name $got";
    });
    $out = $fiber->start();
    suspend();
    $fiber->resume('back');
    return [$out, $fiber->getReturn()];
};
$log = [];
$results = await_all_or_fail([spawn($work, 'a'), spawn($work, 'b')]);
check('interleaved', $log, ['a in', 'b in']);
check('values', $results, [['a out', 'a back'], ['b out', 'b back']]);

// The script itself in a fiber.
$fiber = new Fiber(fn() => await(spawn(function () { delay(1); return 5; })));
$fiber->start();
check('await in a fiber of the script', $fiber->getReturn(), 5);

// A coroutine inside a fiber that is thrown away.
$fiber = new Fiber(function () { Fiber::suspend(); });
await(spawn(fn() => $fiber->start()));
unset($fiber);
check('exception through both', outcome(fn() => await(spawn(function () {
    (new Fiber(function () { suspend(); throw new DomainException; }))->start();
}))), DomainException::class);
check('cancelled inside', outcome(function () {
    $c = spawn(fn() => (new Fiber(fn() => delay(60_000)))->start());
    suspend();
    $c->cancel();
    await($c);
}), Async\AsyncCancellation::class);
done();
?>
--EXPECT--
5 checks
