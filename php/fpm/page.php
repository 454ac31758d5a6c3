<?php
// One page for fpm/test.sh: does what ?do= says, after a check that the last request left nothing.
use Async\Pool;
use function Async\{spawn, await, await_all_or_fail, delay, suspend, get_coroutines};

header('Content-Type: text/plain');
if (get_coroutines() !== [] || isset($GLOBALS['left'])) {
    echo "LEAKED from the request before\n";
}
$GLOBALS['left'] = true;
$pool = new Pool(
    factory: fn() => new ArrayObject(range(1, 100)),
    destructor: function ($resource) { suspend(); },
    beforeRelease: function ($resource) { suspend(); return true; },
    max: 3,
);
$park = function () use ($pool) {
    for ($i = 0; $i < 5; $i++) {
        spawn(function () use ($pool) { $r = $pool->acquire(); try { delay(60_000); } finally { $pool->release($r); } });
        spawn(fn() => Async\await_all([spawn(fn() => delay(60_000))], Async\timeout(60_000)));
    }
    delay(1);
};
// Handles on all three databases, with transactions and queries under way in coroutines.
$pdo = function () {
    $all = [];
    foreach (['sqlite:/tmp/cenote-fpm-page.db', getenv('CENOTE_TEST_POSTGRES') . ';application_name=php-fpm page', getenv('CENOTE_TEST_MARIADB')] as $dsn) {
        $dsn = str_replace('name=php-fpm page', "name='php-fpm page'", $dsn);
        $all[] = $handle = new PDO($dsn, null, null, [PDO::ATTR_POOL_ENABLED => true, PDO::ATTR_POOL_MAX => 3]);
        $handle->exec('CREATE TABLE IF NOT EXISTS php_fpm (n int)');
    }
    return $all;
};
$leave = function (array $handles) {
    foreach ($handles as $handle) {
        spawn(function () use ($handle) { $handle->beginTransaction(); $handle->exec('INSERT INTO php_fpm VALUES (1)'); delay(60_000); });
        $slow = ['sqlite' => 'SELECT 1', 'pgsql' => 'SELECT pg_sleep(4)', 'mysql' => 'SELECT sleep(4)'];
        spawn(function () use ($handle, $slow) { $handle->query($slow[$handle->getAttribute(PDO::ATTR_DRIVER_NAME)]); delay(60_000); });
    }
    delay(3);
};
switch ($_GET['do'] ?? '') {
    case 'pdo':
        $sum = 0;
        foreach ($pdo() as $handle) {
            $tasks = array_map(fn($n) => spawn(fn() => (int) $handle->query("SELECT $n")->fetchColumn()), range(1, 6));
            $sum += array_sum(await_all_or_fail($tasks)) + (int) $handle->query('SELECT count(*) FROM php_fpm')->fetchColumn();
        }
        echo $sum === 63 ? "ok\n" : "WRONG $sum: LEAKED\n";
        break;
    case 'pdo-fatal':
        $leave($pdo());
        await(spawn(fn() => trigger_error('fatal', E_USER_ERROR)));
        break;
    case 'pdo-exit':
        $leave($pdo());
        await(spawn(function () { echo "bye\n"; exit(1); }));
        break;
    case 'pdo-left':
        // The script itself forgets to commit.
        foreach ($GLOBALS['kept'] = $pdo() as $handle) { $handle->beginTransaction(); $handle->exec('INSERT INTO php_fpm VALUES (1)'); }
        echo "ok\n";
        break;
    case 'pdo-kill':
        $leave($pdo());
        posix_kill(getmypid(), SIGKILL);
        break;
    case 'pdo-hang':
        $leave($pdo());
        delay(60_000);
        break;
    case 'work':
        $tasks = [];
        for ($i = 0; $i < 20; $i++) {
            $tasks[] = spawn(function () use ($pool) { $r = $pool->acquire(); suspend(); $pool->release($r); return count($r); });
        }
        echo array_sum(await_all_or_fail($tasks)) === 2000 ? "ok\n" : "WRONG\n";
        break;
    case 'fatal':
        $park();
        await(spawn(fn() => trigger_error('fatal', E_USER_ERROR)));
        break;
    case 'fatal-hook':
        $park();
        (new Pool(factory: function () { delay(1); trigger_error('fatal', E_USER_ERROR); }))->acquire();
        break;
    case 'fatal-main':
        $park();
        trigger_error('fatal', E_USER_ERROR);
    case 'exit':
        $park();
        await(spawn(function () { echo "bye\n"; exit(1); }));
        break;
    case 'uncaught':
        $park();
        await(spawn(fn() => throw new Exception('uncaught')));
        break;
    case 'memory':
        $park();
        await(spawn(function () { $all = []; for ($i = 0; $i < 100; $i++) { $all[] = str_repeat("x", 1_000_000); } }));
        break;
    case 'time':
        $park();
        set_time_limit(1);
        await(spawn(function () { while (true) {} }));
        break;
    case 'left':
        spawn(function () { delay(2); echo "left\n"; });
        break;
    case 'kill':
        $park();
        posix_kill(getmypid(), SIGKILL);
        break;
    case 'hang':
        // php-fpm ends it: request_terminate_timeout.
        $park();
        delay(60_000);
        break;
    case 'memory-use':
        gc_collect_cycles();
        preg_match('/^RssAnon:\s+(\d+)/m', file_get_contents('/proc/self/status'), $anonymous);
        $maps = substr_count(file_get_contents('/proc/self/maps'), "\n");
        $files = count(scandir('/proc/self/fd'));
        echo getmypid(), ' ', $anonymous[1], ' ', $maps, ' ', $files, "\n";
        break;
}
