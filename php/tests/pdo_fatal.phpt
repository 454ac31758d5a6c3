--TEST--
PDO: a fatal error while coroutines wait in queries ends the program, and the handle works in shutdown functions
--EXTENSIONS--
pdo
--INI--
error_reporting=E_ALL & ~E_DEPRECATED
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, delay, await, suspend};

$handles = array_map(fn($dsn) => pooled($dsn, 2), databases());
register_shutdown_function(function () use ($handles) {
    foreach ($handles as $driver => $pdo) {
        check($driver, (int) await(spawn(fn() => $pdo->query('SELECT 6')->fetchColumn())), 6);
    }
    echo $GLOBALS['checks'] > 0 ? "works\n" : "";
});
foreach ($handles as $driver => $pdo) {
    $statement = $pdo->query('SELECT 1');
    spawn(function () use ($pdo, $driver) {
        $pdo->beginTransaction();
        $pdo->query(['sqlite' => 'SELECT 1', 'pgsql' => 'SELECT pg_sleep(30)', 'mysql' => 'SELECT sleep(30)'][$driver]);
        delay(60_000);
    });
    spawn(function () use ($pdo) { $pdo->beginTransaction(); $pdo->beginTransaction(); });
}
spawn(function () { delay(30); trigger_error('the end', E_USER_ERROR); });
try { delay(60_000); } catch (PDOException) { delay(60_000); }
echo "NOT REACHED\n";
?>
--EXPECTF--
%AFatal error: the end in %s on line %d
works
