--TEST--
Async\Pool: circuit breaker and strategies
--FILE--
<?php
require __DIR__ . '/check.inc';
use Async\{Pool, CircuitBreaker, CircuitBreakerState, CircuitBreakerStrategy, ServiceUnavailableException};
use function Async\{spawn, await, suspend, delay};

$pool = new Pool(factory: counter(), min: 2);
$states = [$pool->getState()];
foreach (['deactivate', 'recover', 'activate'] as $move) { $pool->$move(); $states[] = $pool->getState(); }
check('P-040', $states, [CircuitBreakerState::ACTIVE, CircuitBreakerState::INACTIVE, CircuitBreakerState::RECOVERING, CircuitBreakerState::ACTIVE]);
check('interface', $pool instanceof CircuitBreaker);

$pool->deactivate();
check('P-041', outcome(fn() => await(spawn(fn() => $pool->acquire()))), ServiceUnavailableException::class);
check('P-042a', $pool->tryAcquire(), null);
$pool->activate();
check('P-042b', [$pool->tryAcquire(), $pool->count()], [1, 2]);
$pool->release(1);
$pool->recover();
check('P-043', [$r = $pool->acquire(), $pool->release($r)], [$r, null]);

class Recorder implements CircuitBreakerStrategy
{
    public array $log = [];
    public bool $recover = true;
    public ?Closure $onFailure = null;
    public function reportSuccess(mixed $source): void { $this->log[] = ['success', $source]; }
    public function reportFailure(mixed $source, Throwable $error): void
    {
        $this->log[] = ['failure', $source, $error::class, $error->getMessage()];
        if ($this->onFailure) { ($this->onFailure)($source); }
    }
    public function shouldRecover(): bool { $this->log[] = ['asked']; return $this->recover; }
}

$pool = new Pool(factory: counter(), min: 1);
$strategy = new Recorder;
$pool->setCircuitBreakerStrategy($strategy);
$pool->setCircuitBreakerStrategy(null);
check('P-044', $strategy->log, []);
$pool->setCircuitBreakerStrategy($strategy);
$r = $pool->acquire();
check('P-045b', $strategy->log, []);
$pool->release($r);
check('P-045a', $strategy->log, [['success', $pool]]);

$strategy = new Recorder;
$pool = new Pool(factory: counter(), beforeRelease: fn() => false);
$pool->setCircuitBreakerStrategy($strategy);
$pool->release($pool->acquire());
check('P-052a, P-052b', $strategy->log, [['failure', $pool, Exception::class, 'Resource validation failed']]);

$strategy = new Recorder;
$pool = new Pool(factory: counter(), beforeRelease: fn() => throw new LengthException('my reason'));
$pool->setCircuitBreakerStrategy($strategy);
$pool->release($pool->acquire());
check('the reason of a hook', $strategy->log, [['failure', $pool, LengthException::class, 'my reason']]);

// A strategy that opens the breaker is asked, after a pause, whether to close it again.
$fail = true;
$strategy = new Recorder;
$strategy->onFailure = fn($pool) => $pool->deactivate();
$pool = new Pool(factory: function () use (&$fail) { return $fail ? throw new RuntimeException('down') : 'up'; });
$pool->setCircuitBreakerStrategy($strategy);
check('creation fails', outcome(fn() => $pool->acquire()), RuntimeException::class);
check('opened by its strategy', $pool->getState(), CircuitBreakerState::INACTIVE);
check('refuses at once', outcome(fn() => $pool->acquire()), ServiceUnavailableException::class);
$fail = false;
for ($i = 0; $i < 300 && outcome(fn() => $pool->tryAcquire()) !== 'up'; $i++) { delay(20); }
check('recovers', [in_array(['asked'], $strategy->log), $pool->activeCount()], [true, 1]);

// Opening wakes those who wait.
$pool = new Pool(factory: counter(), max: 1);
$held = $pool->acquire();
$waiters = [spawn(fn() => outcome(fn() => $pool->acquire())), spawn(fn() => outcome(fn() => $pool->acquire()))];
suspend();
$pool->deactivate();
check('P-066', Async\await_all_or_fail($waiters), [ServiceUnavailableException::class, ServiceUnavailableException::class]);
done();
?>
--EXPECT--
16 checks
