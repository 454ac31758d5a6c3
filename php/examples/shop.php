<?php
// A pool of connections, and twenty coroutines that share four of them. Run it:
//
//     php php/examples/shop.php
//
// The "connection" here answers after 20 ms. Twenty requests over four connections take 100 ms, not 400.

use Async\{Pool, TimeoutException};
use function Async\{spawn, await_all_or_fail, delay};

final class Connection
{
    private static int $opened = 0;
    public readonly int $id;
    public bool $broken = false;

    public function __construct()
    {
        delay(5);                       // connecting takes a while; other coroutines go on
        $this->id = ++self::$opened;
    }

    public function query(string $sql): string
    {
        delay(20);
        return "connection $this->id: $sql";
    }

    public function close(): void
    {
        echo "connection $this->id is closed\n";
    }
}

$pool = new Pool(
    factory: fn() => new Connection,
    destructor: fn(Connection $connection) => $connection->close(),
    beforeRelease: fn(Connection $connection) => !$connection->broken,
    max: 4,
);

/** Takes a connection for the time of one function. */
function with_connection(Pool $pool, callable $use): mixed
{
    $connection = $pool->acquire(timeout: 1000);
    try {
        return $use($connection);
    } finally {
        $pool->release($connection);
    }
}

$begin = hrtime(true);
$requests = [];
foreach (range(1, 20) as $number) {
    $requests[$number] = spawn(with_connection(...), $pool, fn(Connection $c) => $c->query("request $number"));
}
$answers = await_all_or_fail($requests);
$took = (hrtime(true) - $begin) / 1e6;

echo $answers[1], "\n";
printf("%d answers over %d connections\n", count($answers), $pool->count());
echo $took < 400 ? "faster than one after the other\n" : "SLOW\n";

// A connection that is marked as broken does not come back.
with_connection($pool, function (Connection $connection) { $connection->broken = true; });
printf("%d connections are left\n", $pool->count());

// An acquire that exceeds its time-out throws a TimeoutException; the pool stays usable.
$held = array_map(fn() => $pool->acquire(), range(1, 4));
try {
    $pool->acquire(timeout: 10);
} catch (TimeoutException $e) {
    echo $e->getMessage(), "\n";
}
array_map($pool->release(...), $held);
$pool->close();
