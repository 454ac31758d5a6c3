--TEST--
Coroutines: await_all, await_all_or_fail, await_any and their relatives
--FILE--
<?php
require __DIR__ . '/check.inc';
use function Async\{spawn, await_all, await_all_or_fail, await_any, await_any_or_fail, await_first_success, await_any_of, await_any_of_or_fail, delay, timeout, suspend};

$value = fn($v, $ms = 0) => spawn(function () use ($v, $ms) { delay($ms); return $v; });
$error = fn($ms = 0) => spawn(function () use ($ms) { delay($ms); throw new DomainException("after $ms"); });

check('all_or_fail', await_all_or_fail(['x' => $value(1, 5), 'y' => $value(2)]), ['x' => 1, 'y' => 2]);
check('completion order', await_all_or_fail(['x' => $value(1, 5), 'y' => $value(2)], null, false), ['y' => 2, 'x' => 1]);
check('the first failure ends it', outcome(fn() => await_all_or_fail([$value(1, 60_000), $error()])), DomainException::class);
[$results, $errors] = await_all([$value('a'), $error(), $value('c')]);
check('all', [$results, array_map(fn($e) => $e::class, $errors)], [[0 => 'a', 2 => 'c'], [1 => DomainException::class]]);
check('fill null', await_all([$value('a'), $error()], null, true, true)[0], ['a', null]);
check('any', [await_any([$value('slow', 20), $value('fast')]), await_any_or_fail([$value('only')])], ['fast', 'only']);
check('any fails', outcome(fn() => await_any([$value('slow', 20), $error()])), DomainException::class);
[$first, $errors] = await_first_success([$error(), $value('ok', 2)]);
check('first success', [$first, count($errors)], ['ok', 1]);
check('some', count(await_any_of(2, [$value(1, 60_000), $value(2), $value(3)])[0]), 2);
check('some or fail', await_any_of_or_fail(1, [$value(1, 60_000), $value(2)]), [1 => 2]);
check('nothing', [await_all_or_fail([]), await_all([]), await_any([])], [[], [[], []], null]);
check('done before', await_all_or_fail([Async\Future::completed(1), Async\Future::completed(2)]), [1, 2]);
check('a generator', await_all_or_fail((function () use ($value) { yield 'k' => $value(1); yield 'l' => $value(2); })()), ['k' => 1, 'l' => 2]);
check('a generator that throws', outcome(fn() => await_all((function () use ($value) { yield $value(1); throw new LengthException; })())), LengthException::class);
check('not awaitable', outcome(fn() => await_all([1])), Error::class);
check('token', outcome(fn() => await_all([$value(1, 60_000)], timeout(5))), Async\OperationCanceledException::class);
foreach (Async\get_coroutines() as $left) { $left->cancel(); }
suspend();
done();
?>
--EXPECT--
16 checks
