--TEST--
PDO: where PHP's own driver is not loaded, handles without a pool are served too, also across coroutines (D-my-006b)
--EXTENSIONS--
pdo
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await, await_all_or_fail};

foreach (databases() as $driver => $dsn) {
    $pdo = new PDO($dsn, 'cenote', 'cenote-secret');
    $table = 'php_u' . getmypid();
    $pdo->exec("CREATE TEMPORARY TABLE $table (id integer PRIMARY KEY, n integer, b " . ($driver === 'pgsql' ? 'bytea' : 'blob') . ')');
    check("affected $driver", $pdo->exec("INSERT INTO $table (id, n) VALUES (1, 1), (2, 2)"), 2);
    // One connection for all coroutines, and its temporary table.
    $read = fn($id) => spawn(fn() => (int) $pdo->query("SELECT n FROM $table WHERE id = $id")->fetchColumn());
    check("one connection $driver", await_all_or_fail([$read(1), $read(2)]), [1, 2]);
    $pdo->beginTransaction();
    await(spawn(fn() => $pdo->exec("INSERT INTO $table (id, n) VALUES (3, 3)")));
    check("one transaction $driver", await(spawn(fn() => $pdo->inTransaction())));
    $pdo->rollBack();
    check("rolled back $driver", count_rows($pdo, $table), 2);

    $bytes = "\0\xff\x01'\\";
    $insert = $pdo->prepare("INSERT INTO $table VALUES (4, NULL, :b)");
    $insert->bindValue('b', $bytes, PDO::PARAM_LOB);
    $insert->execute();
    $got = $pdo->query("SELECT b FROM $table WHERE id = 4")->fetchColumn();
    check("bytes $driver", is_resource($got) ? stream_get_contents($got) : $got, $bytes);
    check("types $driver", $pdo->query('SELECT 7, NULL')->fetch(PDO::FETCH_NUM), [7, null]);
    check("quote $driver", $pdo->query('SELECT ' . $pdo->quote("it's \\ \"so\""))->fetchColumn(), "it's \\ \"so\"");
    check("in a destructor $driver", (function () use ($pdo) {
        $GLOBALS['seen'] = null;
        $object = new class($pdo) {
            function __construct(private PDO $pdo) {}
            function __destruct() { $GLOBALS['seen'] = (int) $this->pdo->query('SELECT 8')->fetchColumn(); }
        };
        unset($object);
        return $GLOBALS['seen'];
    })(), 8);
}
done();
?>
--EXPECTREGEX--
^\d+ checks$
