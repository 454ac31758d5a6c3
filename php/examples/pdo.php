<?php
// 1,000 coroutines, one $pdo, five connections.
//
//     php examples/pdo.php [DSN [USER PASSWORD]]     default: a new SQLite file
use function Async\{spawn, await_all_or_fail};

$dsn = $argv[1] ?? 'sqlite:' . ($file = tempnam(sys_get_temp_dir(), 'pdo_example_'));
$pdo = new PDO($dsn, $argv[2] ?? null, $argv[3] ?? null, [
    PDO::ATTR_POOL_ENABLED => true,
    PDO::ATTR_POOL_MAX     => 5,
]);
$pdo->exec('DROP TABLE IF EXISTS visit');
$pdo->exec('CREATE TABLE visit (id INTEGER PRIMARY KEY, page VARCHAR(20))');

// Each coroutine has its own connection while it is in a transaction, and gives it back at the end.
$coroutines = [];
foreach (range(1, 1_000) as $id) {
    $coroutines[] = spawn(function () use ($pdo, $id) {
        $pdo->beginTransaction();
        $pdo->prepare('INSERT INTO visit (id, page) VALUES (:id, :page)')->execute(['id' => $id, 'page' => "page $id"]);
        if ($id % 10 === 0) {
            return 0;                          // No commit: it is rolled back.
        }
        $pdo->commit();
        return 1;
    });
}
$committed = array_sum(await_all_or_fail($coroutines));
$stored = (int) $pdo->query('SELECT COUNT(*) FROM visit')->fetchColumn();
$pool = $pdo->getPool();
echo "1000 coroutines over {$pool->count()} connections: $committed committed, $stored stored\n";
$pdo->exec('DROP TABLE visit');
if (isset($file)) {
    unlink($file);
}
exit($stored === $committed && $committed === 900 && $pool->count() <= 5 ? 0 : 1);
