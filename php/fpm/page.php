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
switch ($_GET['do'] ?? '') {
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
