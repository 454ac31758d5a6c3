--TEST--
PDO: each coroutine has its own error (D-core-016 to 021, 029; D-lite-s003b)
--EXTENSIONS--
pdo
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await, await_all_or_fail};

each_database(function (PDO $pdo, string $table, string $driver, string $dsn) {
    $missing = ['sqlite' => 'HY000', 'pgsql' => '42P01', 'mysql' => '42S02'][$driver];
    $native = ['sqlite' => 1, 'pgsql' => 7, 'mysql' => 1146][$driver];
    $silent = pooled($dsn, 1, [PDO::ATTR_ERRMODE => PDO::ERRMODE_SILENT]);
    await(spawn(function () use ($silent, $missing, $native, $driver) {
        check("D-core-016 $driver", $silent->query('SELECT * FROM nix'), false);
        check("D-core-016 info $driver", array_slice($silent->errorInfo(), 0, 2), [$missing, $native]);
        check("D-core-017 $driver", [$silent->exec('DELETE FROM nix'), $silent->errorCode()], [false, $missing]);
        check("D-core-017b $driver, better", $silent->errorInfo()[1], $native);
    }));
    await(spawn(function () use ($silent, $driver) {
        check("D-core-019b $driver", [$silent->errorCode() ?? '00000', $silent->errorInfo()[0] ?: '00000'], ['00000', '00000']);
        $silent->query('SELECT 1')->fetchAll();
        check("D-core-019b later $driver", [$silent->errorCode(), $silent->errorInfo()[0]], ['00000', '00000']);
    }));
    $active = 0;
    for ($i = 0; $i < 6; $i++) {
        $silent->query('SELECT * FROM nix');
        $active = max($active, $silent->getPool()->activeCount());
    }
    check("D-core-021a $driver", $active <= 1);
    check("D-core-021b $driver", (int) $silent->query('SELECT 4')->fetchColumn(), 4);

    // Errors of one do not reach the others while all wait.
    $codes = await_all_or_fail(array_map(fn($i) => spawn(function () use ($pdo, $i) {
        try {
            $pdo->query($i % 2 ? 'SELECT * FROM nix' : 'SELECT 1')->fetchAll();
            return $pdo->errorCode();
        } catch (PDOException $error) {
            return $error->errorInfo[0] . $pdo->errorCode();
        }
    }), range(0, 9)));
    check("D-core-020 $driver", array_unique($codes), [0 => '00000', 1 => $missing . $missing]);

    $error = null;
    try { $pdo->exec('DELETE FROM nix'); } catch (PDOException $error) {}
    check("D-core-029a $driver", [$error?->getCode(), $error?->errorInfo[1]], [$missing, $native]);
    check("D-core-029c $driver", wait_until(fn() => $pdo->getPool()->activeCount() === 0));
    check("parameters $driver", outcome(fn() => $pdo->prepare("SELECT * FROM $table WHERE id = ?")->execute([1, 2])), PDOException::class);
    check("a script is not prepared $driver", outcome(fn() => $pdo->prepare("DELETE FROM $table; DELETE FROM $table",
        [PDO::ATTR_EMULATE_PREPARES => false])->execute()), PDOException::class);
});

$bad = new PDO('pgsql:host=127.0.0.1;port=1;dbname=nix', 'nobody', 'nothing', [PDO::ATTR_POOL_ENABLED => true]);
check('D-core-018a', $bad->getPool()->count(), 0);
check('D-core-018b', outcome(fn() => await(spawn(fn() => $bad->query('SELECT 1')))), PDOException::class);
done();
?>
--EXPECTREGEX--
^\d+ checks$
