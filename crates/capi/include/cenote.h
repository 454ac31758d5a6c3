/*
 * cenote.h: pools of any resource, for C and every language that can call C.
 *
 * Generated from the comments in crates/capi/src; `cargo test -p cenote-c` checks it,
 * `CENOTE_WRITE_HEADER=1 cargo test -p cenote-c` regenerates it.
 *
 * Every function may be called on any thread and inside any callback, unless its comment
 * says otherwise. Functions return CENOTE_OK (0), a positive number that is not an error, or
 * a negative error code; cenote_last_error_text() returns its text on the same thread.
 * Callbacks return 0 for success. They must not throw C++ exceptions and not longjmp out.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CENOTE_H
#define CENOTE_H


#include <stddef.h>
#include <stdint.h>

/**
 * No time limit. A negative time, such as that of a deadline that has passed, counts as 0.
 */
#define CENOTE_FOREVER INT64_MAX

/**
 * The version of the table that this header describes. It changes only if programs compiled
 * earlier would no longer work; new functions are added at the end.
 */
#define CENOTE_API_VERSION 1

/**
 * The breaker admits every acquire.
 */
#define CENOTE_BREAKER_ACTIVE 0

/**
 * Every acquire fails with CENOTE_ERR_UNAVAILABLE.
 */
#define CENOTE_BREAKER_INACTIVE 1

/**
 * With a strategy the breaker admits only probes; without one, every acquire.
 */
#define CENOTE_BREAKER_RECOVERING 2

/**
 * Success.
 */
#define CENOTE_OK 0

/**
 * Not an error: no resource is available without waiting (cenote_try_acquire).
 */
#define CENOTE_EMPTY 1

/**
 * An argument is NULL or invalid; the text says which.
 */
#define CENOTE_ERR_ARGUMENT (-1)

/**
 * The handle names no pool: the pool is destroyed, or this library never created it.
 */
#define CENOTE_ERR_HANDLE (-2)

/**
 * An option is invalid; the text names the option and its value.
 */
#define CENOTE_ERR_CONFIG (-3)

/**
 * The pool is closed.
 */
#define CENOTE_ERR_CLOSED (-4)

/**
 * The circuit breaker is open.
 */
#define CENOTE_ERR_UNAVAILABLE (-5)

/**
 * The call timed out. The pool stays usable.
 */
#define CENOTE_ERR_TIMEOUT (-6)

/**
 * The create callback failed; cenote_last_error_detail returns its code.
 */
#define CENOTE_ERR_CREATE (-7)

/**
 * The pool is closed, but a destroy callback failed; cenote_last_error_detail returns its code.
 */
#define CENOTE_ERR_DESTROY (-8)

/**
 * The lease was already released, or was never acquired.
 */
#define CENOTE_ERR_NOT_ACQUIRED (-9)

/**
 * The lease belongs to another pool.
 */
#define CENOTE_ERR_FOREIGN (-10)

/**
 * The call would block the thread that callbacks run on, so it could never complete.
 */
#define CENOTE_ERR_WOULD_BLOCK (-11)

/**
 * The waiter was cancelled, or the host's event loop accepts no more work.
 */
#define CENOTE_ERR_CANCELLED (-12)

/**
 * Too late to cancel: the waiter's callback has been called or is about to be.
 */
#define CENOTE_ERR_NOT_WAITING (-13)

/**
 * The pool is closed, but not every lease was released in time.
 */
#define CENOTE_ERR_IN_USE (-14)

/**
 * The queue is full: max_waiting acquires are waiting.
 */
#define CENOTE_ERR_QUEUE_FULL (-16)

/**
 * A bug in this library; the text is for its maintainers. The pool stays usable.
 */
#define CENOTE_ERR_INTERNAL (-15)

/**
 * A resource was created; `nanos` is the time it took.
 */
#define CENOTE_EVENT_CREATED 1

/**
 * A creation failed, with `error`.
 */
#define CENOTE_EVENT_CREATE_FAILED 2

/**
 * A resource was acquired; `nanos` is the time the acquire took.
 */
#define CENOTE_EVENT_ACQUIRED 3

/**
 * A lease was released, and the pool kept its resource.
 */
#define CENOTE_EVENT_RELEASED 4

/**
 * A resource left the pool, for `reason`; `error` is the error of its destroy callback.
 */
#define CENOTE_EVENT_DESTROYED 5

/**
 * The callback `hook` failed on a resource, with `error`; the resource is destroyed.
 */
#define CENOTE_EVENT_HOOK_FAILED 6

/**
 * An acquire entered the queue.
 */
#define CENOTE_EVENT_WAITING 7

/**
 * An acquire timed out, in `phase`.
 */
#define CENOTE_EVENT_TIMED_OUT 8

/**
 * A lease is older than leak_warning_ms; `nanos` is its age.
 */
#define CENOTE_EVENT_LEAK_SUSPECTED 9

/**
 * The circuit breaker changed its state from `from` to `to`.
 */
#define CENOTE_EVENT_BREAKER_CHANGED 10

/**
 * The pool was closed: every further acquire fails.
 */
#define CENOTE_EVENT_CLOSED 11

/**
 * The pool is closed, and its last resource was destroyed.
 */
#define CENOTE_EVENT_DRAINED 12

/**
 * The before_acquire callback rejected the resource.
 */
#define CENOTE_REASON_ACQUIRE_REJECTED 1

/**
 * The before_release callback rejected the resource.
 */
#define CENOTE_REASON_RELEASE_REJECTED 2

/**
 * The healthcheck callback rejected the resource.
 */
#define CENOTE_REASON_UNHEALTHY 3

/**
 * The resource exceeded idle_timeout_ms.
 */
#define CENOTE_REASON_IDLE_TIMEOUT 4

/**
 * The resource exceeded max_lifetime_ms.
 */
#define CENOTE_REASON_LIFETIME 5

/**
 * cenote_pool_replace_all replaced the resource.
 */
#define CENOTE_REASON_REPLACED 6

/**
 * cenote_pool_resize made the pool smaller.
 */
#define CENOTE_REASON_SHRUNK 7

/**
 * The holder called cenote_discard.
 */
#define CENOTE_REASON_DISCARDED 8

/**
 * The acquire was cancelled during before_acquire, so the state of the resource is unknown.
 */
#define CENOTE_REASON_ABANDONED 9

/**
 * The pool was closed.
 */
#define CENOTE_REASON_CLOSED 10

/**
 * The healthcheck callback.
 */
#define CENOTE_HOOK_HEALTHCHECK 1

/**
 * The before_acquire callback.
 */
#define CENOTE_HOOK_BEFORE_ACQUIRE 2

/**
 * The before_release callback.
 */
#define CENOTE_HOOK_BEFORE_RELEASE 3

/**
 * Waiting in the queue.
 */
#define CENOTE_PHASE_WAITING 1

/**
 * Waiting for a creation that the acquire started.
 */
#define CENOTE_PHASE_CREATING 2

/**
 * Waiting for the before_acquire callback.
 */
#define CENOTE_PHASE_CHECKING 3

/**
 * Cancels a timer; see cenote_runtime.
 */
#define CENOTE_NEVER UINT64_MAX

/**
 * The resource that this thread used last, if it is idle; otherwise the one whose last lease
 * began first. The fastest order, and the default.
 */
#define CENOTE_ORDER_AFFINE 0

/**
 * The resource that was released first: spreads the load evenly.
 */
#define CENOTE_ORDER_FIFO 1

/**
 * The resource that was released last: the others reach their idle timeout, so the pool can
 * shrink.
 */
#define CENOTE_ORDER_LIFO 2

/**
 * A pool. The value is a number that names the pool, not an address: do not dereference it.
 */
typedef struct cenote_pool cenote_pool;

/**
 * A lease of a resource. Return it once, with cenote_release or cenote_discard, on any thread.
 * It may be copied; only the first copy returned counts.
 */
typedef struct cenote_lease {
    /**
     * The resource that the create callback created.
     */
    void *resource;
    /**
     * Private.
     */
    uint64_t ticket;
    /**
     * Private.
     */
    uint32_t slot;
    /**
     * Private.
     */
    uint32_t pool;
} cenote_lease;

/**
 * An event. Fields that its kind does not use are zero or NULL. Valid only during the
 * callback.
 */
typedef struct cenote_event {
    /**
     * The size of this struct in this version of the library.
     */
    size_t size;
    /**
     * One of CENOTE_EVENT_*.
     */
    uint32_t kind;
    /**
     * Why a resource left the pool: one of CENOTE_REASON_*.
     */
    uint32_t reason;
    /**
     * Which callback failed: one of CENOTE_HOOK_*.
     */
    uint32_t hook;
    /**
     * The phase of an acquire: one of CENOTE_PHASE_*.
     */
    uint32_t phase;
    /**
     * The breaker's former state: one of CENOTE_BREAKER_*.
     */
    uint32_t from;
    /**
     * The breaker's new state: one of CENOTE_BREAKER_*.
     */
    uint32_t to;
    /**
     * The number of the resource; the first one of a pool is 1.
     */
    uint64_t resource;
    /**
     * A duration in nanoseconds.
     */
    uint64_t nanos;
    /**
     * The text of the error.
     */
    const char *error;
} cenote_event;

/**
 * Called for every event. Must not block; may call functions of the pool.
 */
typedef void (*cenote_event_fn)(void *data,
                                struct cenote_pool *pool,
                                const struct cenote_event *event);

/**
 * Called when the library no longer uses `data`.
 */
typedef void (*cenote_dispose_fn)(void *data);

/**
 * The functions for the events of a pool.
 */
typedef struct cenote_event_table {
    /**
     * sizeof(cenote_event_table) in the library that provides the table.
     */
    size_t size;
    /**
     * cenote_event_add_callback.
     */
    int (*add_callback)(struct cenote_pool *pool,
                        cenote_event_fn callback,
                        void *data,
                        cenote_dispose_fn dispose,
                        uint64_t *id);
    /**
     * cenote_event_del_callback.
     */
    int (*del_callback)(struct cenote_pool *pool, uint64_t id);
    /**
     * cenote_event_start.
     */
    int (*start)(struct cenote_pool *pool);
    /**
     * cenote_event_stop.
     */
    int (*stop)(struct cenote_pool *pool);
    /**
     * cenote_event_dispose.
     */
    int (*dispose)(struct cenote_pool *pool);
} cenote_event_table;

/**
 * Creates a resource: stores it and returns 0, or returns a code of its own.
 */
typedef int (*cenote_create_fn)(void *data, void **resource);

/**
 * Checks or destroys a resource: returns 0 for success, else a code of its own.
 */
typedef int (*cenote_resource_fn)(void *data, void *resource);

/**
 * A function that the host calls with the argument it got. An extra call is harmless, and so is
 * a call after the pool is destroyed.
 */
typedef void (*cenote_run_fn)(void *arg);

/**
 * The event loop of a single-threaded host. A pool with a host runs all its callbacks on the
 * host's thread, inside the host's calls of `run` and of this library's functions. The struct
 * is copied; what `data` points to must live until the pool's `dispose` was called.
 */
typedef struct cenote_runtime {
    /**
     * sizeof(cenote_runtime).
     */
    size_t size;
    /**
     * Passed to the functions below.
     */
    void *data;
    /**
     * Returns the time in nanoseconds since a fixed moment; must be monotonic. NULL: the
     * system's monotonic clock. Called on any thread and while the pool is locked: must not
     * call this library.
     */
    uint64_t (*now)(void *data);
    /**
     * Schedules run(arg) on the host's thread for the time `at` of `now`. Each `arg` has one
     * timer: another call moves it, CENOTE_NEVER cancels it. Called on the host's thread only, and must not call run(arg) itself.
     */
    void (*timer)(void *data, uint64_t at, cenote_run_fn run, void *arg);
    /**
     * Schedules run(arg) on the host's thread, from its event loop, as soon as possible.
     * Called on any thread; must not call run(arg) itself. Returns 0, or anything else if the
     * loop accepts no more work: then the work is cancelled. Before the loop ends, it must run
     * the work that it has accepted.
     */
    int (*post)(void *data, cenote_run_fn run, void *arg);
    /**
     * Returns whether the calling thread is the host's. NULL: the host's thread is the one that
     * calls cenote_pool_new.
     */
    int (*on_thread)(void *data);
} cenote_runtime;

/**
 * Decides when a breaker opens and when it admits probes. Its functions must not block; each
 * may be NULL. They run on the thread that releases, creates or acquires, or on the host's
 * thread if there is one. The struct is copied.
 */
typedef struct cenote_strategy {
    /**
     * sizeof(cenote_strategy).
     */
    size_t size;
    /**
     * Passed to the functions below.
     */
    void *data;
    /**
     * A resource was released and kept. `state` is one of CENOTE_BREAKER_*.
     */
    void (*report_success)(void *data, struct cenote_pool *pool, uint32_t state);
    /**
     * A creation failed, or before_release rejected a resource; `why` says which.
     * Returns 1 to open the breaker, 0 to leave its state.
     */
    int (*report_failure)(void *data, struct cenote_pool *pool, uint32_t state, const char *why);
    /**
     * The cool-down of an open breaker is over. Returns 1 to admit probes, 0 for another
     * cool-down. NULL: always 1.
     */
    int (*should_recover)(void *data, struct cenote_pool *pool);
    /**
     * Called when the pool no longer uses the strategy.
     */
    cenote_dispose_fn dispose;
    /**
     * The cool-down of an open breaker. 0: five seconds.
     */
    uint64_t cool_down_ms;
    /**
     * How many probes may run at once, and how many must succeed to close the breaker. 0: one.
     */
    uint32_t probes;
} cenote_strategy;

/**
 * Returns whether a code of create is permanent, so that a retry is useless: anything but 0 is
 * yes.
 */
typedef int (*cenote_permanent_fn)(void *data, int code);

/**
 * The options of a pool. Call cenote_options_init first, which sets every default, then change
 * what you need. The struct and what it points to are copied, except `data`.
 */
typedef struct cenote_options {
    /**
     * sizeof(cenote_options), set by cenote_options_init.
     */
    size_t size;
    /**
     * A name for messages. NULL: none.
     */
    const char *name;
    /**
     * Passed to the callbacks below. Without a host, callbacks may run on several threads at
     * once, each for another resource.
     */
    void *data;
    /**
     * Creates a resource. The only required callback.
     */
    cenote_create_fn create;
    /**
     * Destroys a resource that leaves the pool. cenote_pool_close returns its failure; otherwise
     * an event reports it. NULL: nothing to do.
     */
    cenote_resource_fn destroy;
    /**
     * Checks an idle resource every healthcheck_interval_ms. The pool destroys a rejected
     * resource and refills up to `min`. NULL: no check.
     */
    cenote_resource_fn healthcheck;
    /**
     * Checks an idle resource, not a new one, before an acquire gets it. The pool destroys a
     * rejected resource, and the acquire continues with the next. NULL: no check.
     */
    cenote_resource_fn before_acquire;
    /**
     * Checks a resource that is released. The pool destroys a rejected resource, and the breaker
     * counts a failure. Must not block for long. NULL: no check.
     */
    cenote_resource_fn before_release;
    /**
     * Called once with `data` when the pool no longer uses it: no reference, lease or waiter is
     * left. Only if cenote_pool_new succeeded. NULL: no call.
     */
    cenote_dispose_fn dispose;
    /**
     * The minimum number of resources: cenote_pool_new creates them, and the pool refills in the
     * background. Default: 0. At most `max`.
     */
    size_t min;
    /**
     * The maximum number of resources. Default: 10. At least 1.
     */
    size_t max;
    /**
     * Which idle resource an acquire gets: one of CENOTE_ORDER_*.
     */
    uint32_t order;
    /**
     * How many creations may run at once. Default: 0, limited only by `max`.
     */
    uint32_t concurrent_creations;
    /**
     * The interval of the healthcheck, in milliseconds. Default: 0, never.
     */
    uint64_t healthcheck_interval_ms;
    /**
     * The time after which the pool destroys an idle resource, down to `min` resources, in
     * milliseconds. The actual time is up to a quarter longer. Default: 0, no limit.
     */
    uint64_t idle_timeout_ms;
    /**
     * The lifetime of a resource, in milliseconds, plus or minus the jitter. The actual time is up
     * to a quarter longer, and a leased resource stays until its release. Default: 0, no limit.
     */
    uint64_t max_lifetime_ms;
    /**
     * The jitter of lifetimes, as a fraction up or down. Default: 0.1. At least 0.0, below 1.0.
     */
    double lifetime_jitter;
    /**
     * The back-off after a failed creation, in milliseconds; it doubles up to
     * backoff_longest_ms. During the back-off acquires queue, and cenote_try_acquire returns
     * CENOTE_EMPTY unless a resource is idle. Default: 100. 0: none.
     */
    uint64_t backoff_first_ms;
    /**
     * The longest back-off, in milliseconds. Default: 5000.
     */
    uint64_t backoff_longest_ms;
    /**
     * The age in milliseconds at which an event reports a lease, once. Default: 0, off.
     */
    uint64_t leak_warning_ms;
    /**
     * The host's event loop. NULL: one background thread of this library, which all pools
     * without a host share.
     */
    const struct cenote_runtime *runtime;
    /**
     * The strategy of the circuit breaker. NULL: none, only your calls change its state.
     */
    const struct cenote_strategy *strategy;
    /**
     * How many acquires may wait in the queue; a further one fails with CENOTE_ERR_QUEUE_FULL.
     * With 0 no acquire queues. Default: SIZE_MAX, no limit.
     */
    size_t max_waiting;
    /**
     * How long an acquire waits for the host's thread to run before_acquire, in milliseconds,
     * before it continues with another resource. A running callback is not interrupted.
     * Default: 0, until the acquire times out.
     */
    uint64_t before_acquire_timeout_ms;
    /**
     * Whether an acquire with a time limit retries a failed creation after the back-off. 0 or 1.
     * Default: 0.
     */
    uint32_t retry_creations;
    /**
     * Reserved; set to 0.
     */
    uint32_t reserved;
    /**
     * Returns whether a code of create is permanent, so that an acquire does not retry: for example
     * a refused login, whose retries would lock the account. NULL: no code is.
     */
    cenote_permanent_fn is_permanent;
} cenote_options;

/**
 * Called with a resource.
 */
typedef void (*cenote_visit_fn)(void *data, void *resource);

/**
 * The sizes of a pool at one moment, and its counters. In every sample
 * total = idle + active + creating, and total is at most max.
 */
typedef struct cenote_status {
    /**
     * sizeof(cenote_status); set it before the call.
     */
    size_t size;
    /**
     * Idle, active and creating resources.
     */
    uint64_t total;
    /**
     * Idle resources, including those reserved for a waiter that was woken.
     */
    uint64_t idle;
    /**
     * Resources that are leased, in a callback or being destroyed.
     */
    uint64_t active;
    /**
     * Resources being created.
     */
    uint64_t creating;
    /**
     * Idle resources reserved for a waiter that was woken and has not run yet.
     */
    uint64_t reserved;
    /**
     * Acquires that wait and have no resource yet.
     */
    uint64_t waiting;
    /**
     * The maximum number of resources.
     */
    uint64_t max;
    /**
     * The minimum number of resources.
     */
    uint64_t min;
    /**
     * Successful acquires so far.
     */
    uint64_t acquired;
    /**
     * Acquires that queued so far.
     */
    uint64_t waited;
    /**
     * Acquires that timed out so far.
     */
    uint64_t timed_out;
    /**
     * Acquires that were cancelled while they queued so far.
     */
    uint64_t cancelled;
    /**
     * Resources created so far.
     */
    uint64_t created;
    /**
     * Creations that failed so far.
     */
    uint64_t create_failed;
    /**
     * Resources that left the pool so far, for any reason.
     */
    uint64_t destroyed;
    /**
     * The breaker's state: one of CENOTE_BREAKER_*.
     */
    uint32_t breaker;
    /**
     * 1 if the pool was closed, else 0.
     */
    uint32_t closed;
} cenote_status;

/**
 * Called once for each cenote_acquire_async: with CENOTE_OK and a lease, which the program must
 * release later, or with an error and a NULL lease. cenote_last_error_text then returns the
 * error's text.
 */
typedef void (*cenote_done_fn)(void *data,
                               struct cenote_pool *pool,
                               int code,
                               const struct cenote_lease *lease);

/**
 * Returns whether the pool keeps a resource: anything but 0 is yes.
 */
typedef int (*cenote_keep_fn)(void *data, void *resource);

/**
 * The age and use count of a resource.
 */
typedef struct cenote_info {
    /**
     * sizeof(cenote_info); set it before the call.
     */
    size_t size;
    /**
     * The time since the resource was created, in milliseconds.
     */
    uint64_t age_ms;
    /**
     * The number of times the resource was acquired. before_release counts the current
     * acquire; before_acquire does not.
     */
    uint64_t uses;
} cenote_info;

/**
 * All functions of the library.
 */
typedef struct cenote_api {
    /**
     * sizeof(cenote_api) in the library that provides the table; larger than yours if the
     * library is newer.
     */
    size_t size;
    /**
     * CENOTE_API_VERSION of the library that provides the table.
     */
    size_t version;
    /**
     * The functions for the events of a pool.
     */
    const struct cenote_event_table *events;
    /**
     * cenote_options_init.
     */
    int (*options_init)(struct cenote_options *options, size_t size);
    /**
     * cenote_pool_new.
     */
    int (*pool_new)(const struct cenote_options *options, struct cenote_pool **pool);
    /**
     * Wraps a pool in an object of the host's language. The object owns a reference. The
     * library's own table adds a reference and returns the handle itself.
     */
    int (*pool_object)(struct cenote_pool *pool, void **object);
    /**
     * cenote_pool_ref.
     */
    int (*pool_ref)(struct cenote_pool *pool);
    /**
     * cenote_pool_unref.
     */
    int (*pool_unref)(struct cenote_pool *pool);
    /**
     * cenote_pool_close.
     */
    int (*pool_close)(struct cenote_pool *pool);
    /**
     * cenote_pool_close_and_drain.
     */
    int (*pool_close_and_drain)(struct cenote_pool *pool, int64_t timeout_ms);
    /**
     * cenote_pool_resize.
     */
    int (*pool_resize)(struct cenote_pool *pool, size_t max);
    /**
     * cenote_pool_replace_all.
     */
    int (*pool_replace_all)(struct cenote_pool *pool);
    /**
     * cenote_pool_visit.
     */
    int (*pool_visit)(struct cenote_pool *pool, cenote_visit_fn visit, void *data);
    /**
     * cenote_pool_status.
     */
    int (*pool_status)(struct cenote_pool *pool, struct cenote_status *status);
    /**
     * cenote_pool_total.
     */
    int (*pool_total)(struct cenote_pool *pool);
    /**
     * cenote_pool_idle.
     */
    int (*pool_idle)(struct cenote_pool *pool);
    /**
     * cenote_pool_active.
     */
    int (*pool_active)(struct cenote_pool *pool);
    /**
     * cenote_pool_waiting.
     */
    int (*pool_waiting)(struct cenote_pool *pool);
    /**
     * cenote_pool_is_closed.
     */
    int (*pool_is_closed)(struct cenote_pool *pool);
    /**
     * cenote_acquire.
     */
    int (*acquire)(struct cenote_pool *pool, int64_t timeout_ms, struct cenote_lease *lease);
    /**
     * cenote_try_acquire.
     */
    int (*try_acquire)(struct cenote_pool *pool, struct cenote_lease *lease);
    /**
     * cenote_acquire_async.
     */
    int (*acquire_async)(struct cenote_pool *pool,
                         int64_t timeout_ms,
                         cenote_done_fn on_done,
                         void *data,
                         uint64_t *waiter);
    /**
     * cenote_waiter_cancel.
     */
    int (*waiter_cancel)(struct cenote_pool *pool, uint64_t waiter);
    /**
     * cenote_release.
     */
    int (*release)(struct cenote_pool *pool, struct cenote_lease *lease);
    /**
     * cenote_discard.
     */
    int (*discard)(struct cenote_pool *pool, struct cenote_lease *lease);
    /**
     * cenote_breaker_state.
     */
    int (*breaker_state)(struct cenote_pool *pool);
    /**
     * cenote_breaker_activate.
     */
    int (*breaker_activate)(struct cenote_pool *pool);
    /**
     * cenote_breaker_deactivate.
     */
    int (*breaker_deactivate)(struct cenote_pool *pool);
    /**
     * cenote_breaker_recover.
     */
    int (*breaker_recover)(struct cenote_pool *pool);
    /**
     * cenote_breaker_set_strategy.
     */
    int (*breaker_set_strategy)(struct cenote_pool *pool, const struct cenote_strategy *strategy);
    /**
     * cenote_breaker_open_after.
     */
    int (*breaker_open_after)(struct cenote_pool *pool, uint32_t limit, uint64_t cool_down_ms);
    /**
     * cenote_breaker_open_at_rate.
     */
    int (*breaker_open_at_rate)(struct cenote_pool *pool,
                                double rate,
                                uint64_t window_ms,
                                uint32_t at_least,
                                uint64_t cool_down_ms);
    /**
     * cenote_last_error_code.
     */
    int (*last_error_code)(void);
    /**
     * cenote_last_error_detail.
     */
    int (*last_error_detail)(void);
    /**
     * cenote_last_error_text.
     */
    const char *(*last_error_text)(void);
    /**
     * cenote_clear_error.
     */
    void (*clear_error)(void);
    /**
     * cenote_set_error_text.
     */
    void (*set_error_text)(const char *text);
    /**
     * cenote_code_text.
     */
    const char *(*code_text)(int code);
    /**
     * cenote_pool_set_min.
     */
    int (*pool_set_min)(struct cenote_pool *pool, size_t min);
    /**
     * cenote_pool_retain.
     */
    int (*pool_retain)(struct cenote_pool *pool,
                       cenote_keep_fn keep,
                       void *data,
                       cenote_dispose_fn dispose);
    /**
     * cenote_resource_info.
     */
    int (*resource_info)(struct cenote_info *info);
} cenote_api;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Acquires a resource: an idle one, a new one if the pool is below its maximum, or the next
 * one released, in the order of arrival. Blocks the calling thread for at most `timeout_ms`
 * milliseconds, creation included. CENOTE_FOREVER sets no limit; with 0 or less the call
 * does not queue. The limit does not interrupt a running callback, so give each callback
 * its own. On the thread that callbacks run on, the call never waits: it returns
 * CENOTE_ERR_WOULD_BLOCK if no resource is available at once. Return the lease with
 * cenote_release or cenote_discard.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE, CENOTE_ERR_CLOSED,
 * CENOTE_ERR_UNAVAILABLE, CENOTE_ERR_TIMEOUT, CENOTE_ERR_CREATE,
 * CENOTE_ERR_WOULD_BLOCK, or CENOTE_ERR_CANCELLED if the host's event loop accepts no
 * more work. After an error `lease` is all zero.
 */
int cenote_acquire(struct cenote_pool *pool, int64_t timeout_ms, struct cenote_lease *lease);

/**
 * Acquires a resource without queueing: an idle one, or a new one if the pool is below its
 * maximum. Returns CENOTE_EMPTY if the pool is exhausted or closed, its breaker is open, or
 * the back-off after a failed creation is not over. (If the pool has a host, a call on
 * another thread waits until the host's thread has executed it.)
 *
 * Returns CENOTE_OK, CENOTE_EMPTY, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE,
 * CENOTE_ERR_CREATE, CENOTE_ERR_CLOSED if the last reference was released, or
 * CENOTE_ERR_CANCELLED if the host's event loop accepts no more work.
 */
int cenote_try_acquire(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Releases a resource, on any thread. The before_release callback decides whether the pool
 * keeps it; if so, the oldest waiter gets it. A release also works after the pool was closed
 * or its last reference released: then the resource is destroyed. `lease` is all zero
 * afterwards.
 *
 * Returns CENOTE_OK, even if the callback rejected the resource; CENOTE_ERR_ARGUMENT,
 * CENOTE_ERR_HANDLE, CENOTE_ERR_FOREIGN, or CENOTE_ERR_NOT_ACQUIRED if the lease was already
 * released or never acquired.
 */
int cenote_release(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Destroys an acquired resource, for example a broken one, instead of releasing it. The
 * pool may create another. The breaker counts no failure. `lease` is all zero afterwards.
 *
 * Returns the same codes as cenote_release.
 */
int cenote_discard(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Returns the function table: the host's if one is registered, else the library's. NULL if
 * the library does not support that version. The table stays valid until the process ends.
 */
const struct cenote_api *cenote_get_api(uint32_t version);

/**
 * Registers a host's table, which later calls of cenote_get_api return; NULL unregisters it.
 * The table must have every function and stay valid until the process ends. (Call
 * cenote_get_api first, and forward to that table the functions you do not replace.)
 *
 * Returns CENOTE_OK, or CENOTE_ERR_ARGUMENT if the table is too small, of another
 * version, or lacks a function.
 */
int cenote_register_api(const struct cenote_api *api);

/**
 * Returns the breaker's state, one of CENOTE_BREAKER_*, or CENOTE_ERR_HANDLE or
 * CENOTE_ERR_CLOSED.
 */
int cenote_breaker_state(struct cenote_pool *pool);

/**
 * Closes the breaker: it admits every acquire.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_activate(struct cenote_pool *pool);

/**
 * Opens the breaker: every waiting acquire fails with CENOTE_ERR_UNAVAILABLE at once, and
 * the strategy does not close the breaker again.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_deactivate(struct cenote_pool *pool);

/**
 * Sets the breaker to half-open: it admits probes; without a strategy it admits every
 * acquire.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_recover(struct cenote_pool *pool);

/**
 * Sets the breaker's strategy, or removes it if `strategy` is NULL. The breaker's state
 * does not change, and there is no event.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED;
 * if not CENOTE_OK, `dispose` is not called.
 */
int cenote_breaker_set_strategy(struct cenote_pool *pool, const struct cenote_strategy *strategy);

/**
 * Sets a strategy that opens the breaker after `limit` consecutive failures,
 * for `cool_down_ms` milliseconds.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_open_after(struct cenote_pool *pool, uint32_t limit, uint64_t cool_down_ms);

/**
 * Sets a strategy that opens the breaker when at least `rate` (above 0.0, at most 1.0) of
 * the reports within `window_ms` milliseconds are failures, but not before there are
 * `at_least` reports, for `cool_down_ms` milliseconds.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_open_at_rate(struct cenote_pool *pool,
                                double rate,
                                uint64_t window_ms,
                                uint32_t at_least,
                                uint64_t cool_down_ms);

/**
 * Returns the code of the last call on this thread that failed; CENOTE_OK if none
 * did. A successful call does not change it. In the destructors of thread-specific keys
 * the last error is gone: use the return value of the call there.
 */
int cenote_last_error_code(void);

/**
 * Returns the code of the callback that caused the last error of this thread; 0 if no
 * callback caused it.
 */
int cenote_last_error_detail(void);

/**
 * Returns the text of the last error of this thread, never NULL. The text is valid until
 * the next call of this library on this thread.
 */
const char *cenote_last_error_text(void);

/**
 * Clears the last error of this thread.
 */
void cenote_clear_error(void);

/**
 * Sets the text of a callback's failure. Call it only inside a callback that is about to
 * return a failure. The text is copied; errors and events show it with the callback's code.
 */
void cenote_set_error_text(const char *text);

/**
 * Returns the description of a code: a constant text, never NULL.
 */
const char *cenote_code_text(int code);

/**
 * Adds a callback for the events of a pool. It runs on the thread that causes the event, or
 * on the host's thread if there is one. `dispose` may be NULL; it is called with `data` after
 * the last call of `callback`. While a callback is registered, acquire and release are slower.
 *
 * Returns CENOTE_OK, and writes the number of the callback if `id` is not NULL; else
 * CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_add_callback(struct cenote_pool *pool,
                              cenote_event_fn callback,
                              void *data,
                              cenote_dispose_fn dispose,
                              uint64_t *id);

/**
 * Removes an event callback: no new call starts. A call may still be running on another
 * thread; the library calls `dispose` when none is.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT if there is no such callback,
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_del_callback(struct cenote_pool *pool, uint64_t id);

/**
 * Resumes events after cenote_event_stop. A new pool reports events.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_start(struct cenote_pool *pool);

/**
 * Suspends events: the callbacks stay registered and are not called. Suspended callbacks do
 * not slow the pool down.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_stop(struct cenote_pool *pool);

/**
 * Removes all event callbacks, as the end of a pool also does.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_dispose(struct cenote_pool *pool);

/**
 * Writes the age and use count of the resource of the running callback. Call it inside
 * healthcheck, before_acquire, before_release, destroy or the function of
 * cenote_pool_retain, on the thread that runs them.
 *
 * Returns CENOTE_OK, or CENOTE_ERR_ARGUMENT, also outside of these callbacks.
 */
int cenote_resource_info(struct cenote_info *info);

/**
 * Sets every option to its default. `size` is your sizeof(cenote_options): so the struct can
 * grow in later versions without recompiling your program.
 *
 * Returns CENOTE_OK or CENOTE_ERR_ARGUMENT.
 */
int cenote_options_init(struct cenote_options *options, size_t size);

/**
 * Creates a pool with its first `min` resources, one after another, and writes its handle,
 * which counts as one reference. If a creation fails, the resources created so far are
 * destroyed, and there is no pool.
 *
 * Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_CONFIG, whose text names the
 * option and its value, CENOTE_ERR_CREATE, or CENOTE_ERR_CANCELLED if the host's
 * event loop accepts no more work. After an error `pool` is NULL, and `dispose` is not called.
 */
int cenote_pool_new(const struct cenote_options *options, struct cenote_pool **pool);

/**
 * Adds a reference to a pool. Release each reference with cenote_pool_unref, once.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
 * was released.
 */
int cenote_pool_ref(struct cenote_pool *pool);

/**
 * Releases a reference to a pool. Releasing the last one closes the pool: idle resources are
 * destroyed at once, leased ones when they are released, which the handle still allows. After
 * the last release `dispose` is called, and the handle becomes stale. Running calls, on other
 * threads or around this one, end as on a closed pool.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
 * was already released.
 */
int cenote_pool_unref(struct cenote_pool *pool);

/**
 * Closes a pool: every waiting acquire fails with CENOTE_ERR_CLOSED, and idle resources are
 * destroyed, oldest first, before this returns. Leased resources stay valid and are destroyed
 * when they are released. Closing again does nothing. The handle stays valid.
 *
 * Returns CENOTE_OK; CENOTE_ERR_DESTROY if a destroy callback failed, with the code and text of
 * the first failure (the other resources are destroyed, too); CENOTE_ERR_HANDLE,
 * CENOTE_ERR_CLOSED if the last reference was released, or CENOTE_ERR_CANCELLED if the host's
 * event loop accepts no more work.
 */
int cenote_pool_close(struct cenote_pool *pool);

/**
 * Closes a pool like cenote_pool_close and waits until every lease is released, for at most
 * `timeout_ms` milliseconds. CENOTE_FOREVER sets no limit; 0 or less does not wait.
 *
 * Returns the codes of cenote_pool_close; CENOTE_ERR_IN_USE if leases remain, with their number
 * in the text; CENOTE_ERR_TIMEOUT if the host's event loop did not run the call in time; on the
 * thread that callbacks run on, CENOTE_ERR_WOULD_BLOCK if leases remain: the pool is closed, and
 * CENOTE_EVENT_DRAINED reports the last release.
 */
int cenote_pool_close_and_drain(struct cenote_pool *pool, int64_t timeout_ms);

/**
 * Changes the maximum. A larger maximum serves waiting acquires at once; a smaller one destroys
 * idle resources at once and leased ones when they are released.
 *
 * Returns CENOTE_OK, CENOTE_ERR_CONFIG, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_resize(struct cenote_pool *pool, size_t max);

/**
 * Changes the minimum. The pool creates missing resources in the background; surplus ones stay
 * until their idle timeout.
 *
 * Returns CENOTE_OK, CENOTE_ERR_CONFIG if it is more than the maximum, CENOTE_ERR_HANDLE or
 * CENOTE_ERR_CLOSED.
 */
int cenote_pool_set_min(struct cenote_pool *pool, size_t min);

/**
 * Replaces every existing resource, in the background. The pool creates each new resource before
 * it destroys an old one, which must be idle or released. For rotated credentials and fail-overs.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_replace_all(struct cenote_pool *pool);

/**
 * Calls `visit` with every resource that is not leased, for a garbage collector that must know
 * which resources only the pool references. Meant for a host whose threads are stopped:
 * otherwise a resource may be acquired or destroyed during its visit.
 *
 * Returns the number of visits; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or
 * CENOTE_ERR_CLOSED.
 */
int cenote_pool_visit(struct cenote_pool *pool, cenote_visit_fn visit, void *data);

/**
 * Evicts the resources for which `keep` returns 0, and refills to the minimum. `keep` runs for
 * idle resources before this returns, and for the others when they are released, on the releasing
 * thread or on the host's. cenote_resource_info gives `keep` their age and use count. `dispose` is
 * called with `data` after the last call of `keep`; NULL: no call.
 *
 * Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then `dispose` is
 * not called; CENOTE_ERR_CANCELLED if the host's event loop accepts no more work.
 */
int cenote_pool_retain(struct cenote_pool *pool,
                       cenote_keep_fn keep,
                       void *data,
                       cenote_dispose_fn dispose);

/**
 * Writes the sizes and counters of a pool. Set `status->size` before the call.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_status(struct cenote_pool *pool, struct cenote_status *status);

/**
 * Returns the number of resources: idle, active and being created; or
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_total(struct cenote_pool *pool);

/**
 * Returns the number of idle resources; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_idle(struct cenote_pool *pool);

/**
 * Returns the number of resources that are leased, in a callback or being destroyed; or
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_active(struct cenote_pool *pool);

/**
 * Returns the number of waiting acquires; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_waiting(struct cenote_pool *pool);

/**
 * Returns 1 if the pool was closed, else 0; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_is_closed(struct cenote_pool *pool);

/**
 * Acquires like cenote_acquire, but does not block: the acquire joins the queue at once, and
 * `on_done` is called exactly once, later, on the thread that callbacks run on, never inside
 * this call. With a time of 0 or less the acquire does not queue: `on_done` gets a resource
 * that is available when it runs. `waiter` may be NULL; otherwise it is written before
 * `on_done` can run; pass it to cenote_waiter_cancel. (Exception: if the host's event loop
 * accepts no more work, the thread that detects this calls `on_done` at once, with
 * CENOTE_ERR_CANCELLED.)
 *
 * Returns CENOTE_OK, and then `on_done` will be called; CENOTE_ERR_ARGUMENT,
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then `on_done` will not be called.
 */
int cenote_acquire_async(struct cenote_pool *pool,
                         int64_t timeout_ms,
                         cenote_done_fn on_done,
                         void *data,
                         uint64_t *waiter);

/**
 * Cancels a waiter. Its turn, or the resource it already has, goes to the next waiter at once,
 * or when the callback that runs for it returns. Its `on_done` is called with
 * CENOTE_ERR_CANCELLED.
 *
 * Returns CENOTE_OK; CENOTE_ERR_NOT_WAITING if `on_done` was already called or is about to be,
 * or the waiter never existed; CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference was
 * released.
 */
int cenote_waiter_cancel(struct cenote_pool *pool, uint64_t waiter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*
 * Macros for programs that do not link to the library. They call through CENOTE_API, a
 * pointer to the function table. To look the table up only once, define CENOTE_API before you
 * include this header, as your own pointer set from dlsym and cenote_get_api.
 */
#ifndef CENOTE_API
#define CENOTE_API (cenote_get_api(CENOTE_API_VERSION))
#endif

/* The name to look up with dlsym, and the type of its result. */
#define CENOTE_GET_API_NAME "cenote_get_api"
typedef const cenote_api *(*cenote_get_api_fn)(uint32_t version);

/* Creates a pool and writes its handle. */
#define CENOTE_NEW_POOL(options, pool) (CENOTE_API->pool_new((options), (pool)))
/* Wraps a pool in an object of the host's language. */
#define CENOTE_NEW_POOL_OBJ(pool, object) (CENOTE_API->pool_object((pool), (object)))
/* Acquires a resource within timeout_ms milliseconds and writes the lease. */
#define CENOTE_POOL_ACQUIRE(pool, timeout_ms, lease) \
    (CENOTE_API->acquire((pool), (timeout_ms), (lease)))
/* Releases a lease. */
#define CENOTE_POOL_RELEASE(pool, lease) (CENOTE_API->release((pool), (lease)))
/* Closes a pool. */
#define CENOTE_POOL_CLOSE(pool) (CENOTE_API->pool_close((pool)))

#endif /* CENOTE_H */
