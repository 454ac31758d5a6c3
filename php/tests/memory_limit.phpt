--TEST--
The memory limit is reached inside a coroutine
--SKIPIF--
<?php
if (getenv('USE_ZEND_ALLOC') === '0') die('skip PHP has no memory limit without its allocator');
?>
--INI--
memory_limit=8M
--FILE--
<?php
use function Async\{spawn, delay, await};
register_shutdown_function(function () { echo "shutdown function\n"; });
spawn(function () { delay(60_000); });
await(spawn(function () { $all = []; for ($i = 0; $i < 1000; $i++) { $all[] = str_repeat('x', 100_000); } }));
echo "NOT REACHED\n";
?>
--EXPECTF--
Fatal error: Allowed memory size of %d bytes exhausted%s in %s on line %d
shutdown function
