--TEST--
PDO: PostgreSQL's spelling of values, COPY, large objects and ids
--EXTENSIONS--
pdo
--SKIPIF--
<?php if (!getenv('CENOTE_TEST_POSTGRES')) { die('skip CENOTE_TEST_POSTGRES is not set'); } ?>
--FILE--
<?php
require __DIR__ . '/pdo.inc';
use function Async\{spawn, await};

$pdo = pooled(getenv('CENOTE_TEST_POSTGRES'));
$values = [
    "1.5::float8" => '1.5', "'Infinity'::float4" => 'Infinity', "1e300::float8" => '1e+300', "12.50::numeric" => '12.50',
    "'{1,NULL,3}'::int[]" => '{1,NULL,3}', "'1 day 02:03:04'::interval" => '1 day 02:03:04', "true" => true, "7::int2" => 7,
    "9223372036854775807::int8" => PHP_INT_MAX, "'2024-02-29 09:05:00.25+02'::timestamptz AT TIME ZONE 'UTC'" => '2024-02-29 07:05:00.25',
    "'24:00'::time" => '24:00:00', "'infinity'::date" => 'infinity', "'{\"a\": 1}'::jsonb" => '{"a": 1}', "NULL::int" => null,
];
foreach ($values as $sql => $wanted) {
    // The second and the third run are those of a cached statement.
    $statement = $pdo->prepare("SELECT $sql AS v, ?::text AS t");
    for ($run = 1; $run <= 3; $run++) {
        $statement->execute(["run $run"]);
        check("$sql, run $run", $statement->fetch(), ['v' => $wanted, 't' => "run $run"]);
    }
}
await(spawn(function () use ($pdo) {
    $pdo->exec('CREATE TEMPORARY TABLE php_copy (id serial PRIMARY KEY, a text, b text)');
    check('copy in', $pdo->pgsqlCopyFromArray('php_copy', ["1\tx\ty", "2\tz\t\\N"]));
    check('copy out', $pdo->pgsqlCopyToArray('php_copy', ',', 'none'), ["1,x,y\n", "2,z,none\n"]);
    check('copy into nothing', outcome(fn() => $pdo->pgsqlCopyFromArray('php_nix', ['1'])), PDOException::class);
    $pdo->exec("INSERT INTO php_copy (id, a) VALUES (DEFAULT, 'q') ON CONFLICT (id) DO NOTHING");
    check('last id', $pdo->lastInsertId('php_copy_id_seq'), '1');
    $pdo->beginTransaction();
    $oid = $pdo->pgsqlLOBCreate();
    $stream = $pdo->pgsqlLOBOpen($oid, 'w');
    check('written', fwrite($stream, "large \0 object"), 14);
    fseek($stream, 6);
    check('read', fread($stream, 100), "\0 object");
    fclose($stream);
    check('unlinked', $pdo->pgsqlLOBUnlink($oid));
    $pdo->rollBack();
}));
check('not UTF-8', outcome(fn() => $pdo->prepare('SELECT ?::text')->execute(["\xff"])), PDOException::class);
$scroll = $pdo->prepare('SELECT generate_series(1, 5)', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
$scroll->execute();
$at = fn(int $where, int $offset = 0) => $scroll->fetch(PDO::FETCH_NUM, $where, $offset)[0] ?? null;
check('scrollable', [$at(PDO::FETCH_ORI_LAST), $at(PDO::FETCH_ORI_NEXT), $at(PDO::FETCH_ORI_PRIOR), $at(PDO::FETCH_ORI_FIRST),
    $at(PDO::FETCH_ORI_PRIOR), $at(PDO::FETCH_ORI_ABS, 3), $at(PDO::FETCH_ORI_REL, -2), $at(PDO::FETCH_ORI_ABS, -1), $at(PDO::FETCH_ORI_REL, 9)],
    [5, null, 5, 1, null, 3, 1, 5, null]);
$pdo->setAttribute(PDO::ATTR_EMULATE_PREPARES, true);
$emulated = $pdo->prepare("SELECT 'why?', '[\"a\"]'::jsonb ?? :name, 'it''s ?' -- the end");
$emulated->execute(['name' => 'a']);
check('question marks', $emulated->fetch(PDO::FETCH_NUM), ['why?', true, "it's ?"]);
done();
?>
--EXPECTREGEX--
^\d+ checks$
