--TEST--
The memory limit is reached inside a coroutine
--INI--
memory_limit=8M
--FILE--
<?php
use function Async\{spawn, delay, await};
register_shutdown_function(function () { echo "shutdown function\n"; });
spawn(function () { delay(60_000); });
await(spawn(function () { $all = []; while (true) { $all[] = str_repeat('x', 100_000); } }));
echo "NOT REACHED\n";
?>
--EXPECTF--
Fatal error: Allowed memory size of %d bytes exhausted%s in %s on line %d
shutdown function
