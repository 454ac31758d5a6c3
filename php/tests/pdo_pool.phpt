--TEST--
PDO: a handle is a template, and statements and transactions pin a connection (D-core-001 to 015, D-lite-s014, s015)
--EXTENSIONS--
pdo
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await, await_all_or_fail, delay, suspend};

check('D-core-001', [PDO::ATTR_POOL_ENABLED, PDO::ATTR_POOL_MIN, PDO::ATTR_POOL_MAX, PDO::ATTR_POOL_HEALTHCHECK_INTERVAL],
    [22, 23, 24, 25]);
check('D-core-002', (new PDO('sqlite::memory:'))->getPool(), null);
check('D-core-008', outcome(fn() => new PDO('sqlite::memory:', null, null,
    [PDO::ATTR_POOL_ENABLED => true, PDO::ATTR_PERSISTENT => true])), PDOException::class);

each_database(function (PDO $pdo, string $table, string $driver, string $dsn) {
    check("D-core-003 $driver", $pdo->getPool()::class, Async\Pool::class);
    $fresh = pooled($dsn);
    $pool = $fresh->getPool();
    check("D-core-004a $driver", $pool->count(), 0);
    check("D-lite-s015a $driver", [$fresh->inTransaction(), $pool->count()], [false, 0]);
    check("the driver's name $driver", $fresh->getAttribute(PDO::ATTR_DRIVER_NAME), $driver);

    // Pins.
    await(spawn(function () use ($fresh, $pool, $driver, $table) {
        $one = $fresh->query('SELECT 1');
        $two = $fresh->prepare("SELECT * FROM $table WHERE id = ?");
        check("D-core-011a $driver", [$pool->count(), $pool->activeCount()], [1, 1]);
        $one = null;
        check("D-core-011a $driver, one left", $pool->idleCount(), 0);
        $two->execute([7]);
        check("D-core-010 $driver", $two->fetchAll(), []);
        $two = null;
        check("D-core-011b $driver", $pool->idleCount(), 1);

        $fresh->beginTransaction();
        $insert = $fresh->prepare("INSERT INTO $table VALUES (:id, :n)");
        foreach ([1, 2, 3] as $id) { $insert->execute(['id' => $id, 'n' => $id * 10]); }
        $insert = null;
        check("D-core-013a $driver", [$pool->idleCount(), $fresh->inTransaction()], [0, true]);
        $fresh->commit();
        check("D-core-013b $driver", [$pool->idleCount(), $fresh->inTransaction()], [1, false]);
    }));
    check("D-core-013b rows $driver", count_rows($pdo, $table), 3);

    // Two coroutines in turn: commit, roll back, and one that forgets.
    $work = fn(int $id, ?string $end) => function () use ($fresh, $table, $id, $end) {
        $fresh->beginTransaction();
        $fresh->exec("INSERT INTO $table VALUES ($id, 0)");
        $in = $fresh->inTransaction();
        if ($end) { $fresh->$end(); }
        return $in;
    };
    check("D-core-005 $driver", await_all_or_fail([spawn($work(11, 'commit')), spawn($work(12, 'rollBack'))]), [true, true]);
    await(spawn($work(13, null)));
    check("D-core-006 $driver", wait_until(fn() => $pool->activeCount() === 0));
    check("D-core-005a, 006 $driver",
        $fresh->query("SELECT id FROM $table WHERE id > 10")->fetchAll(PDO::FETCH_COLUMN), [11]);

    // What a coroutine leaves is rolled back however it ends.
    $end = fn(callable $how) => spawn(function () use ($fresh, $table, $how) {
        $fresh->beginTransaction();
        $fresh->exec("INSERT INTO $table VALUES (20, 0)");
        $how();
    });
    outcome(fn() => await($end(fn() => throw new RuntimeException('thrown'))));
    $cancelled = $end(fn() => delay(60_000));
    wait_until(fn() => $pool->activeCount() === 1);
    delay(5);
    $cancelled->cancel();
    outcome(fn() => await($cancelled));
    check("thrown and cancelled $driver", wait_until(fn() => $pool->activeCount() === 0));
    check("thrown and cancelled, rows $driver", $fresh->query("SELECT id FROM $table WHERE id = 20")->fetchAll(), []);

    // A statement that outlives its coroutine.
    $escaped = await(spawn(fn() => $fresh->query("SELECT id FROM $table ORDER BY id")));
    check("D-lite-s007 $driver", $escaped->fetchColumn(), 1);
    $escaped = null;
    check("D-lite-s007, back $driver", $pool->activeCount(), 0);
    check("D-lite-s015c $driver", outcome(fn() => $fresh->commit()), PDOException::class);
    check("begin twice $driver", outcome(fn() => $fresh->beginTransaction() && $fresh->beginTransaction()), PDOException::class);
    $fresh->rollBack();

    // The handle goes away while it is in use.
    $started = false;
    $late = spawn(function () use ($fresh, &$started) {
        $row = $fresh->query('SELECT 5')->fetchColumn();
        $started = true;
        suspend();
        return (int) $row;
    });
    wait_until(function () use (&$started) { return $started; });
    unset($fresh, $work, $end, $cancelled, $escaped);
    check("D-core-023 $driver", await($late), 5);
    $late = null;
    check("closed $driver", $pool->isClosed());

    $warm = pooled($dsn, 5, [PDO::ATTR_POOL_MIN => 2]);
    check("D-lite-s014a $driver", [$warm->getPool()->count(), $warm->getPool()->idleCount()], [2, 2]);
    $raised = pooled($dsn, 2, [PDO::ATTR_POOL_MIN => 4]);
    check("D-lite-s014d $driver", $raised->getPool()->count(), 4);
});
done();
?>
--EXPECTREGEX--
^\d+ checks$
