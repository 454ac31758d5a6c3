<?php
// One measurement of bench-pdo.sh: php bench-pdo.php WHAT DSN POOLED. Prints microseconds an operation, or transactions a second.
use function Async\{spawn, await_all_or_fail};

[, $what, $dsn, $pooled] = $argv;
$pooled = $pooled === 'pooled';
$options = $pooled ? [22 => true, 24 => 5] : [];
if (str_starts_with($dsn, 'mysql')) {
    $options[PDO::ATTR_EMULATE_PREPARES] = false;      // Against native prepares.
}
$pdo = new PDO($dsn, 'cenote', 'cenote-secret', $options);
$rounds = (int) (getenv('ROUNDS') ?: 20_000);

function best(int $rounds, callable $run): float
{
    $best = INF;
    for ($i = 0; $i < 5; $i++) {
        $start = hrtime(true);
        $run($rounds);
        $best = min($best, (hrtime(true) - $start) / $rounds / 1000);
    }
    return $best;
}

$pdo->exec('DROP TABLE IF EXISTS php_bench');
$pdo->exec('CREATE TABLE php_bench (id integer PRIMARY KEY, n integer, t varchar(40))');
$insert = $pdo->prepare('INSERT INTO php_bench VALUES (?, ?, ?)');
$pdo->beginTransaction();
for ($i = 1; $i <= 1000; $i++) { $insert->execute([$i, $i, "row number $i"]); }
$pdo->commit();
unset($insert);
switch ($what) {
    case 'execute':
        $statement = $pdo->prepare('SELECT id, n, t FROM php_bench WHERE id = ?');
        $result = best($rounds, function (int $rounds) use ($statement) {
            for ($i = 0; $i < $rounds; $i++) { $statement->execute([1 + $i % 1000]); $statement->fetch(PDO::FETCH_NUM); }
        });
        break;
    case 'prepare':
        $result = best($rounds, function (int $rounds) use ($pdo) {
            for ($i = 0; $i < $rounds; $i++) {
                $statement = $pdo->prepare('SELECT id, n, t FROM php_bench WHERE id = ?');
                $statement->execute([1 + $i % 1000]);
                $statement->fetch(PDO::FETCH_NUM);
            }
        });
        break;
    case 'query':
        $result = best($rounds, function (int $rounds) use ($pdo) {
            static $n = 0;
            for ($i = 0; $i < $rounds; $i++) { $n++; $pdo->query("SELECT id, n, t, $n AS text FROM php_bench WHERE id = 1 + $n % 1000")->fetch(PDO::FETCH_NUM); }
        });
        break;
    case 'transactions':
        // A hundred coroutines over five connections; PHP's own driver in sequence.
        $each = max(1, intdiv($rounds, 1000));
        $work = function (int $id) use ($pdo, $each) {
            for ($i = 0; $i < $each; $i++) {
                $pdo->beginTransaction();
                $pdo->exec("UPDATE php_bench SET n = n + 1 WHERE id = $id");
                $pdo->commit();
            }
        };
        $best = 0;
        for ($round = 0; $round < 3; $round++) {
            $start = hrtime(true);
            if ($pooled) {
                await_all_or_fail(array_map(fn($id) => spawn($work, $id), range(1, 100)));
            } else {
                array_map($work, range(1, 100));
            }
            $best = max($best, 100 * $each / ((hrtime(true) - $start) / 1e9));
        }
        $result = $best;
        break;
}
$statement = null;
$pdo->exec('DROP TABLE php_bench');
printf("%.2f\n", $result);
