--TEST--
exit in a hook of a pool, and in a coroutine after the script
--FILE--
<?php
use function Async\{spawn, delay};
register_shutdown_function(function () { echo "shutdown function\n"; });
spawn(function () {
    $pool = new Async\Pool(factory: function () { delay(1); echo "factory\n"; exit("bye\n"); });
    $pool->acquire();
    echo "NOT REACHED\n";
});
spawn(function () { delay(60_000); echo "NOT REACHED\n"; });
echo "end of script\n";
?>
--EXPECT--
end of script
factory
bye
shutdown function
