--TEST--
A fatal error in a hook of a pool, at once and after it suspended
--INI--
error_reporting=E_ALL & ~E_DEPRECATED
--FILE--
<?php
use function Async\{spawn, delay};
$hook = function () { delay(1); trigger_error('in a hook', E_USER_ERROR); };
register_shutdown_function(function () {
    echo "shutdown function\n";
    $pool = new Async\Pool(factory: function () { trigger_error('in another hook', E_USER_ERROR); });
    register_shutdown_function(function () { echo "NOT REACHED after a second fatal error\n"; });
    $pool->acquire();
});
$pool = new Async\Pool(factory: fn() => 1, beforeRelease: $hook);
spawn(fn() => $pool->acquire());
$pool->release($pool->acquire());
echo "NOT REACHED\n";
?>
--EXPECTF--
Fatal error: in a hook in %s on line %d
shutdown function

Fatal error: in another hook in %s on line %d
