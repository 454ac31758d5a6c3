--TEST--
PDO: SQLite's functions, collations and memory databases (D-lite-008 to 018, s001, s004, s005)
--EXTENSIONS--
pdo
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await, await_all_or_fail};

foreach ([':memory:', '', 'file:x?mode=memory', 'file::memory:'] as $private) {
    check("D-lite-s001a $private", outcome(fn() => pooled("sqlite:$private")), PDOException::class);
}
foreach (['file:php-a?mode=memory&cache=shared', 'file:php-b?cache=shared&mode=memory'] as $shared) {
    $pdo = pooled("sqlite:$shared");
    $pdo->exec('CREATE TABLE t (n)');
    check("D-lite-s001b $shared", await(spawn(fn() => $pdo->query('SELECT count(*) FROM t')->fetchColumn())), 0);
}

$dsn = databases()['sqlite'];
$pdo = pooled($dsn, 2, [PDO::ATTR_POOL_MIN => 2]);
$pdo->sqliteCreateFunction('twice', fn($n) => 2 * $n, 1, PDO::SQLITE_DETERMINISTIC);
$pdo->sqliteCreateFunction('twice', fn($a, $b) => $a . $b . $a . $b, 2);
$pdo->sqliteCreateAggregate('longest', fn($context, $row, $text) => strlen($text) > strlen($context ?? '') ? $text : $context,
    fn($context, $rows) => "$context of $rows", 1);
$pdo->sqliteCreateCollation('by_length', fn($a, $b) => strlen($a) <=> strlen($b));
check('D-lite-014', outcome(fn() => $pdo->sqliteCreateFunction('TWICE', fn($n) => 3 * $n, 1)), PDOException::class);
$pdo->exec('CREATE TABLE t (s TEXT)');
$pdo->exec("INSERT INTO t VALUES ('ccc'), ('a'), ('bb')");
$read = fn() => spawn(function () use ($pdo) {
    $pdo->beginTransaction();
    $row = $pdo->query("SELECT twice(21) AS a, twice('x', 'y') AS b, longest(s) AS c FROM t")->fetch();
    $row['d'] = $pdo->query('SELECT s FROM t ORDER BY s COLLATE by_length')->fetchAll(PDO::FETCH_COLUMN);
    $pdo->rollBack();
    return $row;
});
$wanted = ['a' => 42, 'b' => 'xyxy', 'c' => 'ccc of 3', 'd' => ['a', 'bb', 'ccc']];
check('D-lite-010 to 013, s004, s005a', await_all_or_fail([$read(), $read(), $read()]), [$wanted, $wanted, $wanted]);
check('D-lite-015a', outcome(fn() => $pdo->sqliteCreateFunction('late', fn() => 1)), PDOException::class);
check('D-lite-015b', outcome(fn() => $pdo->sqliteCreateCollation('late', fn($a, $b) => 0)), PDOException::class);
foreach (['setAuthorizer', 'openBlob', 'loadExtension'] as $method) {
    check("D-lite-016 to 018 $method", outcome(fn() => $pdo->$method('t')), PDOException::class);
}

// Without a pool functions may come late, also on a database in memory.
$own = new PDO('sqlite::memory:');
$own->exec('CREATE TABLE t (n)');
$own->exec('INSERT INTO t VALUES (1), (2)');
$own->sqliteCreateFunction('thrice', fn($n) => 3 * $n);
check('late function', $own->query('SELECT sum(thrice(n)) FROM t')->fetchColumn(), 9);
$own->sqliteCreateFunction('thrice', fn($n) => 30 * $n);
check('replaced function', $own->query('SELECT sum(thrice(n)) FROM t')->fetchColumn(), 90);
$own->sqliteCreateFunction('fails', fn() => throw new DomainException('no'));
check('an exception of a function', outcome(fn() => $own->query('SELECT fails() FROM t')->fetchAll()), DomainException::class);
$own->sqliteCreateFunction('nested', fn() => $own->query('SELECT 1')->fetchColumn());
check('a function that uses its handle', outcome(fn() => $own->query('SELECT nested()')->fetchAll()), PDOException::class);
check('usable', $own->query('SELECT thrice(1)')->fetchColumn(), 30);

// The file keeps its journal mode.
check('journal mode', $pdo->query('PRAGMA journal_mode')->fetchColumn(), 'delete');
check('foreign keys', (int) $pdo->query('PRAGMA foreign_keys')->fetchColumn(), 0);
done();
?>
--EXPECTREGEX--
^\d+ checks$
