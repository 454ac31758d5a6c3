--TEST--
exit in a coroutine ends the program: no finally blocks, but shutdown functions and destructors
--FILE--
<?php
use function Async\{spawn, delay, await};
class Resource { function __destruct() { echo "destructor\n"; } }
register_shutdown_function(function () { echo "shutdown function\n"; });
$pool = new Async\Pool(factory: fn() => 1, destructor: function () { echo "pool closed\n"; }, min: 1);
spawn(function () { $r = new Resource; try { delay(60_000); } finally { echo "NOT REACHED\n"; } });
spawn(function () { delay(1); echo "exit\n"; exit(3); });
try {
    await(spawn(fn() => delay(60_000)));
    echo "NOT REACHED\n";
} finally {
    echo "NOT REACHED\n";
}
?>
--EXPECT--
exit
destructor
shutdown function
pool closed
