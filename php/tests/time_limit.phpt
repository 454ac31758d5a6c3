--TEST--
PHP's time limit and memory limit inside a coroutine
--INI--
memory_limit=16M
--FILE--
<?php
use function Async\{spawn, delay, await};
register_shutdown_function(function () { echo "shutdown function\n"; });
spawn(function () { delay(60_000); });
set_time_limit(1);
await(spawn(function () { while (true) {} }));
?>
--EXPECTF--
Fatal error: Maximum execution time of 1 second exceeded in %s on line %d
shutdown function
