--TEST--
PDO: raw transactions, session state and cancelled queries do not reach the next coroutine (D-core-025 to 028, D-pg-030, D-my-019)
--EXTENSIONS--
pdo
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await, await_all_or_fail, delay};

each_database(function (PDO $pdo, string $table, string $driver, string $dsn) {
    $one = pooled($dsn, 1);
    await(spawn(function () use ($one, $table, $driver) {
        $one->exec('BEGIN');
        $one->exec("INSERT INTO $table VALUES (1, 1)");
        check("D-core-025a $driver", [$one->inTransaction(), (int) $one->query("SELECT count(*) FROM $table")->fetchColumn()], [true, 1]);
    }));
    await(spawn(function () use ($one, $table, $driver) {
        check("D-core-025b $driver", [$one->inTransaction(), count_rows($one, $table)], [false, 0]);
        $one->exec('BEGIN');
        $one->exec("INSERT INTO $table VALUES (2, 2)");
        check("commit of a raw transaction $driver", [$one->commit(), $one->inTransaction()], [true, false]);
    }));
    await(spawn(function () use ($one, $driver) {
        $one->exec('CREATE TEMPORARY TABLE php_temporary (n int)');
        $one->exec('INSERT INTO php_temporary VALUES (1)');
        check("D-core-026f $driver", (int) $one->query('SELECT n FROM php_temporary')->fetchColumn(), 1);
    }));
    check("D-core-026d $driver", await(spawn(fn() => outcome(fn() => $one->query('SELECT n FROM php_temporary')->fetchAll()))),
        PDOException::class);

    if ($driver !== 'sqlite') {
        $sleep = $driver === 'pgsql' ? 'SELECT pg_sleep(30)' : 'SELECT sleep(30)';
        $started = microtime(true);
        $slow = spawn(function () use ($one, $table, $sleep) {
            try {
                $one->beginTransaction();
                $one->exec("INSERT INTO $table VALUES (3, 3)");
                $one->query($sleep);
            } catch (Async\AsyncCancellation) {
                return 'cancelled';
            }
        });
        wait_until(fn() => $one->getPool()->activeCount() === 1);
        delay(50);
        $slow->cancel();
        check("cancelled $driver", await($slow), 'cancelled');
        check("D-pg-030b, D-my-019b $driver", await(spawn(fn() => $one->query("SELECT id FROM $table WHERE id = 3")->fetchAll())), []);
        check("no wait for the query $driver", microtime(true) - $started < 20);

        // A query suspends its own coroutine only.
        $started = microtime(true);
        $wait = $driver === 'pgsql' ? 'SELECT pg_sleep(0.3)' : 'SELECT sleep(0.3)';
        await_all_or_fail(array_map(fn() => spawn(fn() => $pdo->query($wait)->fetchAll()), range(1, 6)));
        $took = microtime(true) - $started;
        check("D-pg-s006 $driver", $took > 0.55 && $took < 1.5);
    }
});
done();
?>
--EXPECTREGEX--
^\d+ checks$
