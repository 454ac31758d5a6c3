--TEST--
Coroutines that the script leaves run to their end, before shutdown functions
--FILE--
<?php
use function Async\{spawn, delay, suspend, await};
register_shutdown_function(function () {
    echo "shutdown function\n";
    spawn(function () { delay(1); echo "spawned in a shutdown function\n"; });
    echo await(spawn(fn() => "awaited in a shutdown function\n"));
});
spawn(function () { delay(2); echo "slow\n"; spawn(function () { suspend(); echo "nested\n"; }); });
spawn(function () { echo "fast\n"; });
class Last { function __destruct() { echo "destructor\n"; } }
$last = new Last;
echo "end of script\n";
?>
--EXPECT--
end of script
fast
slow
nested
shutdown function
awaited in a shutdown function
spawned in a shutdown function
destructor
