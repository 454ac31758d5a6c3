<?php

/**
 * The classes and functions of the extension, for editors and static analysis. PHP does not load this file.
 *
 * Names and behaviour are those of TrueAsync, so that a program runs on either.
 */

namespace {
    /**
     * What ends a coroutine from outside. An Error, so that `catch (Exception $e)` does not swallow it.
     */
    class Cancellation extends Error {}
}

namespace Async {

    /** Something that code can wait for. */
    interface Awaitable {}

    /** Something that completes once, with a result or an exception. */
    interface Completable extends Awaitable
    {
        public function cancel(?AsyncCancellation $cancellation = null): void;

        public function isCompleted(): bool;

        public function isCancelled(): bool;
    }

    // ---- functions ------------------------------------------------------------

    /** Starts a coroutine: the task runs when the current code waits or ends. Arguments may be named. */
    function spawn(callable $task, mixed ...$args): Coroutine {}

    /**
     * Waits for a result, and returns it or throws its exception.
     *
     * @throws OperationCanceledException The cancellation has completed first. The awaited goes on.
     * @throws DeadlockError Nothing can ever complete it.
     */
    function await(Completable $awaitable, ?Completable $cancellation = null): mixed {}

    /** Waits for all results, or throws the first exception. Keys are kept. */
    function await_all_or_fail(iterable $triggers, ?Awaitable $cancellation = null, bool $preserveKeyOrder = true): array {}

    /** Waits until all are complete. Returns `[results, exceptions]`, by key. */
    function await_all(iterable $triggers, ?Awaitable $cancellation = null, bool $preserveKeyOrder = true, bool $fillNull = false): array {}

    /** Waits for the first to complete: returns its result or throws its exception. */
    function await_any(iterable $triggers, ?Awaitable $cancellation = null): mixed {}

    /** The same as await_any(). */
    function await_any_or_fail(iterable $triggers, ?Awaitable $cancellation = null): mixed {}

    /** Waits for the first result. Returns `[result, exceptions until then]`. */
    function await_first_success(iterable $triggers, ?Awaitable $cancellation = null): mixed {}

    /** Waits for `$count` results. Returns `[results, exceptions until then]`. */
    function await_any_of(int $count, iterable $triggers, ?Awaitable $cancellation = null, bool $preserveKeyOrder = true, bool $fillNull = false): array {}

    /** Waits for `$count` results, or throws the first exception. */
    function await_any_of_or_fail(int $count, iterable $triggers, ?Awaitable $cancellation = null, bool $preserveKeyOrder = true): array {}

    /** Suspends the coroutine for a time. So do sleep(), usleep(), time_nanosleep() and time_sleep_until(). */
    function delay(int $ms): void {}

    /** Lets every other coroutine that is ready run first. */
    function suspend(): void {}

    /** Makes a token that completes after a time: `await($coroutine, timeout(2000))`. */
    function timeout(int $ms): Timeout {}

    /** Calls the closure so that a cancellation arrives only after it. */
    function protect(\Closure $closure): mixed {}

    /** Returns the coroutine that runs now; in the script itself, the one of the script. */
    function current_coroutine(): Coroutine {}

    /**
     * Returns the coroutines that are not complete.
     *
     * @return Coroutine[]
     */
    function get_coroutines(): array {}

    // ---- coroutines and futures ---------------------------------------------------

    final class Coroutine implements Completable
    {
        public function getId(): int {}

        /** The result; null while there is none. */
        public function getResult(): mixed {}

        /** The exception; null while there is none. */
        public function getException(): mixed {}

        /** @return array{string, int} */
        public function getSpawnFileAndLine(): array {}

        public function getSpawnLocation(): string {}

        public function isStarted(): bool {}

        public function isQueued(): bool {}

        public function isRunning(): bool {}

        public function isSuspended(): bool {}

        public function isCancellationRequested(): bool {}

        /** Throws the cancellation where the coroutine waits. One that has not started never starts. */
        public function cancel(?AsyncCancellation $cancellation = null): void {}

        public function isCompleted(): bool {}

        public function isCancelled(): bool {}

        /** Calls the callback, with this coroutine, when it is complete. */
        public function finally(\Closure $callback): void {}
    }

    /** A token of timeout(). */
    final class Timeout implements Completable
    {
        public function cancel(?AsyncCancellation $cancellation = null): void {}

        public function isCompleted(): bool {}

        public function isCancelled(): bool {}
    }

    /** The writing end of a Future. */
    final class FutureState
    {
        public function __construct() {}

        public function complete(mixed $result): void {}

        public function error(\Throwable $throwable): void {}

        public function isCompleted(): bool {}

        public function ignore(): void {}
    }

    /** A result that other code will set. */
    final class Future implements Completable
    {
        public function __construct(FutureState $state) {}

        public static function completed(mixed $value = null): Future {}

        public static function failed(\Throwable $throwable): Future {}

        public function cancel(?AsyncCancellation $cancellation = null): void {}

        public function isCompleted(): bool {}

        public function isCancelled(): bool {}

        public function ignore(): Future {}

        public function await(?Completable $cancellation = null): mixed {}
    }

    /**
     * Values from coroutine to coroutine, in order. Without capacity, send() waits for a receiver. foreach
     * receives until the channel is closed and empty.
     */
    final class Channel implements Awaitable, \IteratorAggregate, \Countable
    {
        public function __construct(int $capacity = 0) {}

        /** @throws ChannelException The channel is closed. */
        public function send(mixed $value, ?Completable $cancellationToken = null): void {}

        /** Sends without waiting; false if that is not possible. */
        public function sendAsync(mixed $value): bool {}

        /** @throws ChannelException The channel is closed and empty. */
        public function recv(?Completable $cancellationToken = null): mixed {}

        public function close(): void {}

        public function isClosed(): bool {}

        public function capacity(): int {}

        public function count(): int {}

        public function isEmpty(): bool {}

        public function isFull(): bool {}

        public function getIterator(): \Iterator {}
    }

    // ---- the pool --------------------------------------------------------------------

    enum CircuitBreakerState
    {
        /** Everybody is served. */
        case ACTIVE;
        /** Everybody is refused at once. */
        case INACTIVE;
        /** Without a strategy everybody is served; with one, a single probe at a time. */
        case RECOVERING;
    }

    interface CircuitBreaker
    {
        public function getState(): CircuitBreakerState;

        public function activate(): void;

        public function deactivate(): void;

        public function recover(): void;
    }

    /** Decides when a breaker opens: by calling deactivate() on the source in reportFailure(). */
    interface CircuitBreakerStrategy
    {
        /** A resource came back and passed beforeRelease. */
        public function reportSuccess(mixed $source): void;

        /** A creation failed, or beforeRelease refused a resource. */
        public function reportFailure(mixed $source, \Throwable $error): void;

        /** Whether a breaker that this strategy has opened may try again. Asked once a second at most. */
        public function shouldRecover(): bool;
    }

    /** A pool of resources of any kind. Waiters are served in the order of their arrival. */
    final class Pool implements \Countable, CircuitBreaker
    {
        /**
         * @param callable $factory Creates a resource: fn(): mixed
         * @param callable|null $destructor Destroys a resource: fn(mixed $resource): void
         * @param callable|null $healthcheck Checks an idle resource: fn(mixed $resource): bool
         * @param callable|null $beforeAcquire Checks an idle resource before it is handed out; on false or an
         *     exception it is destroyed, and the next one is taken: fn(mixed $resource): bool
         * @param callable|null $beforeRelease Checks a resource that comes back; on false or an exception it
         *     is destroyed: fn(mixed $resource): bool
         * @param int $min Resources that exist from the beginning, and are replaced when they are destroyed
         * @param int $max Resources at most
         * @param int $healthcheckInterval Milliseconds between health checks; 0 is never
         */
        public function __construct(
            callable $factory,
            ?callable $destructor = null,
            ?callable $healthcheck = null,
            ?callable $beforeAcquire = null,
            ?callable $beforeRelease = null,
            int $min = 0,
            int $max = 10,
            int $healthcheckInterval = 0,
        ) {}

        /**
         * Takes a resource: an idle one, a new one if there is room, or the next one that is released.
         *
         * @param int $timeout Milliseconds; 0 waits for ever
         * @throws PoolException The pool is closed, or belongs to the parent of this process.
         * @throws TimeoutException No resource came in time. Not a PoolException: the pool is fine.
         * @throws ServiceUnavailableException The circuit breaker is open.
         */
        public function acquire(int $timeout = 0): mixed {}

        /** Takes a resource without waiting for others; null if that is not possible. */
        public function tryAcquire(): mixed {}

        /**
         * Gives a resource back: the same object, or an identical value.
         *
         * @throws PoolException It is not in use: it belongs to another pool, or was released already.
         */
        public function release(mixed $resource): void {}

        /** Refuses everybody from now on, and destroys the idle resources; the others when they come back. */
        public function close(): void {}

        public function isClosed(): bool {}

        /** All resources, also those that are being created. */
        public function count(): int {}

        public function idleCount(): int {}

        public function activeCount(): int {}

        public function setCircuitBreakerStrategy(?CircuitBreakerStrategy $strategy): void {}

        public function getState(): CircuitBreakerState {}

        public function activate(): void {}

        public function deactivate(): void {}

        public function recover(): void {}
    }

    // ---- exceptions ------------------------------------------------------------------------

    class AsyncCancellation extends \Cancellation {}

    class OperationCanceledException extends AsyncCancellation {}

    class AsyncException extends \Exception {}

    class TimeoutException extends \Exception {}

    class DeadlockError extends \Error {}

    class ServiceUnavailableException extends AsyncException {}

    class PoolException extends AsyncException {}

    class ChannelException extends AsyncException {}

    final class CompositeException extends \Exception
    {
        public function addException(\Throwable $exception): void {}

        /** @return \Throwable[] */
        public function getExceptions(): array {}
    }
}
