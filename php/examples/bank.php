<?php
// The bank: coroutines move money between accounts through one pooled PDO handle. Some throw, are cancelled or forget to commit.
// Nothing of theirs may reach the accounts: the sum stays exact. The tables are those of the bank workload of crates/bank.
//
//     php examples/bank.php DSN [TRANSFERS]          DSN: sqlite:FILE, pgsql:…, mysql:…
//
// Ends with status 1 if a cent is missing, or a connection.
use function Async\{spawn, await, delay, suspend};

const ACCOUNTS = 50;
const STARTING_CENTS = 100_000;

$dsn = $argv[1] ?? exit("usage: php bank.php DSN [TRANSFERS]\n");
$transfers = (int) ($argv[2] ?? 2_000);
$pdo = new PDO($dsn, $argv[3] ?? null, $argv[4] ?? null, [
    PDO::ATTR_POOL_ENABLED => true,
    PDO::ATTR_POOL_MAX => 5,
]);
foreach (['account', 'ledger', 'run'] as $table) {
    $pdo->exec("DROP TABLE IF EXISTS cenote_bank_$table");
}
$pdo->exec('CREATE TABLE cenote_bank_run (state VARCHAR(16) NOT NULL)');
$pdo->exec("INSERT INTO cenote_bank_run (state) VALUES ('done')");
$pdo->exec('CREATE TABLE cenote_bank_account (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, moves BIGINT NOT NULL)');
$pdo->exec('CREATE TABLE cenote_bank_ledger (number BIGINT NOT NULL PRIMARY KEY, payer BIGINT NOT NULL, payee BIGINT NOT NULL, '
    . 'cents BIGINT NOT NULL)');
$account = $pdo->prepare('INSERT INTO cenote_bank_account (id, balance, moves) VALUES (?, ?, 0)');
for ($id = 1; $id <= ACCOUNTS; $id++) {
    $account->execute([$id, STARTING_CENTS]);
}
unset($account);

$fates = ['committed' => 0, 'thrown' => 0, 'cancelled' => 0, 'forgotten' => 0, 'rolled back' => 0, 'conflict' => 0];

$transfer = function (int $number) use ($pdo, &$fates): void {
    [$payer, $payee] = [mt_rand(1, ACCOUNTS), mt_rand(1, ACCOUNTS - 1)];
    $payee += $payee >= $payer ? 1 : 0;
    $cents = mt_rand(1, 5_000);
    $pdo->beginTransaction();
    // In one order, so that no two wait for each other.
    foreach ([min($payer, $payee), max($payer, $payee)] as $id) {
        $pdo->prepare('UPDATE cenote_bank_account SET balance = balance + ?, moves = moves + 1 WHERE id = ?')
            ->execute([$id === $payer ? -$cents : $cents, $id]);
    }
    $pdo->prepare('INSERT INTO cenote_bank_ledger VALUES (?, ?, ?, ?)')->execute([$number, $payer, $payee, $cents]);
    switch ($number % 10) {
        case 3:
            $fates['thrown']++;
            throw new DomainException('on purpose');
        case 5:
            delay(60_000);             // The program cancels it, here or in a query.
            break;
        case 7:
            $fates['forgotten']++;
            return;                    // It forgets to commit.
        case 9:
            $fates['rolled back']++;
            $pdo->rollBack();
            return;
    }
    $pdo->commit();
    $fates['committed']++;
};

$running = [];
$started = hrtime(true);
for ($number = 1; $number <= $transfers || $running; $number++) {
    if ($number <= $transfers) {
        $running[$number] = spawn($transfer, $number);
    }
    // A hundred at a time, on five connections.
    while (count($running) >= 100 || ($number >= $transfers && $running)) {
        suspend();
        foreach ($running as $n => $coroutine) {
            if ($n % 10 === 5 && $coroutine->isSuspended() && mt_rand(0, 3) === 0) {
                $coroutine->cancel();
            }
            if ($coroutine->isCompleted()) {
                unset($running[$n]);
                try {
                    await($coroutine);
                } catch (DomainException) {
                } catch (Async\AsyncCancellation) {
                    $fates['cancelled']++;
                } catch (PDOException $error) {
                    $fates['conflict']++;
                }
            }
        }
        delay(1);
    }
}
$seconds = (hrtime(true) - $started) / 1e9;

for ($i = 0; $i < 200 && $pdo->getPool()->activeCount() > 0; $i++) {
    delay(10);
}
$outside = new PDO($dsn, $argv[3] ?? null, $argv[4] ?? null);
[$sum, $moves] = $outside->query('SELECT SUM(balance), SUM(moves) FROM cenote_bank_account')->fetch(PDO::FETCH_NUM);
$ledger = (int) $outside->query('SELECT COUNT(*) FROM cenote_bank_ledger')->fetchColumn();
$replayed = array_fill(1, ACCOUNTS, STARTING_CENTS);
foreach ($outside->query('SELECT payer, payee, cents FROM cenote_bank_ledger')->fetchAll(PDO::FETCH_NUM) as [$payer, $payee, $cents]) {
    $replayed[$payer] -= $cents;
    $replayed[$payee] += $cents;
}
$balances = array_map(intval(...), $outside->query('SELECT id, balance FROM cenote_bank_account')->fetchAll(PDO::FETCH_KEY_PAIR));
ksort($balances);

$pool = $pdo->getPool();
printf("%d transfers in %.1f s on %d connections: %s\n", $transfers, $seconds, $pool->count(),
    implode(', ', array_map(fn($what, $n) => "$n $what", array_keys($fates), $fates)));
$checks = [
    'the sum is exact' => (int) $sum === ACCOUNTS * STARTING_CENTS,
    'each commit is in the ledger, and nothing else' => $ledger === $fates['committed'] && (int) $moves === 2 * $ledger,
    'the balances are those of the ledger' => $balances === $replayed,
    'no connection is missing' => $pool->activeCount() === 0 && $pool->count() <= 5,
    'each way to end happened' => min($fates['committed'], $fates['thrown'], $fates['cancelled'], $fates['forgotten']) > 0,
];
foreach ($checks as $what => $ok) {
    echo $ok ? 'ok      ' : 'FAILED  ', $what, "\n";
}
exit(in_array(false, $checks, true) ? 1 : 0);
