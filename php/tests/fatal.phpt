--TEST--
A fatal error in a coroutine ends the program; the shutdown functions may use coroutines again
--INI--
error_reporting=E_ALL & ~E_DEPRECATED
--FILE--
<?php
use function Async\{spawn, delay, await, suspend};
register_shutdown_function(function () {
    echo "shutdown function\n";
    echo await(spawn(function () { delay(1); return "coroutines work\n"; }));
    $pool = new Async\Pool(factory: fn() => "pools work\n", beforeRelease: fn() => true);
    echo $r = $pool->acquire();
    $pool->release($r);
});
$pool = new Async\Pool(factory: fn() => new stdClass, max: 1);
$held = $pool->acquire();
spawn(function () use ($pool) { $pool->acquire(); });
spawn(function () use ($pool) { $pool->acquire(60_000); });
spawn(function () { try { delay(60_000); } finally { echo "NOT REACHED\n"; } });
spawn(function () { Async\await_all([spawn(fn() => delay(60_000))]); });
spawn(function () { suspend(); suspend(); trigger_error('the end', E_USER_ERROR); });
delay(60_000);
echo "NOT REACHED\n";
?>
--EXPECTF--
Fatal error: the end in %s on line %d
shutdown function
coroutines work
pools work
