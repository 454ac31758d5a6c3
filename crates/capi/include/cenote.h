/*
 * cenote.h: pools of any resource, for C and for whatever speaks C.
 *
 * Generated from the comments in crates/capi/src; `cargo test -p cenote-c` compares,
 * `CENOTE_WRITE_HEADER=1 cargo test -p cenote-c` writes it anew.
 *
 * Every function may be called on any thread, and from inside any callback, unless it says
 * otherwise. Functions return CENOTE_OK (0), a number above zero that is no error, or an
 * error below zero, whose text is cenote_last_error_text() on the same thread. Callbacks
 * return 0 if all is well; they must neither throw C++ exceptions nor longjmp out.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CENOTE_H
#define CENOTE_H


#include <stddef.h>
#include <stdint.h>

/**
 * Waits for as long as it takes. No other time does: a negative one, as that of a deadline that has
 * passed, is over already.
 */
#define CENOTE_FOREVER INT64_MAX

/**
 * The version of the table that this header describes. It changes only when a program
 * that was compiled before would not work; new functions are added at the end.
 */
#define CENOTE_API_VERSION 1

/**
 * Business as usual.
 */
#define CENOTE_BREAKER_ACTIVE 0

/**
 * Every acquire fails with CENOTE_ERR_UNAVAILABLE.
 */
#define CENOTE_BREAKER_INACTIVE 1

/**
 * Finding out. With a strategy only its probes are admitted; without one, everybody.
 */
#define CENOTE_BREAKER_RECOVERING 2

/**
 * All is well.
 */
#define CENOTE_OK 0

/**
 * No error, but nothing to be had at the moment (cenote_try_acquire).
 */
#define CENOTE_EMPTY 1

/**
 * An argument is NULL or makes no sense; the text says which.
 */
#define CENOTE_ERR_ARGUMENT (-1)

/**
 * The handle is none of a living pool: destroyed, or never made by this library.
 */
#define CENOTE_ERR_HANDLE (-2)

/**
 * The options cannot work; the text names the option and its value.
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
 * The time of this call is over. The pool itself may be fine.
 */
#define CENOTE_ERR_TIMEOUT (-6)

/**
 * The create callback failed; cenote_last_error_detail has its own code.
 */
#define CENOTE_ERR_CREATE (-7)

/**
 * Closed, but a destroy callback failed; cenote_last_error_detail has its own code.
 */
#define CENOTE_ERR_DESTROY (-8)

/**
 * The lease was given back already, or was never acquired.
 */
#define CENOTE_ERR_NOT_ACQUIRED (-9)

/**
 * The lease is from another pool.
 */
#define CENOTE_ERR_FOREIGN (-10)

/**
 * It would have to wait, and waiting on this thread would stop what is waited for.
 */
#define CENOTE_ERR_WOULD_BLOCK (-11)

/**
 * The waiter was cancelled, or the host's runtime did not take it.
 */
#define CENOTE_ERR_CANCELLED (-12)

/**
 * Too late to cancel: its callback has been called or is about to be.
 */
#define CENOTE_ERR_NOT_WAITING (-13)

/**
 * Closed, but not everything came back in time.
 */
#define CENOTE_ERR_IN_USE (-14)

/**
 * As many acquires wait as max_waiting allows.
 */
#define CENOTE_ERR_QUEUE_FULL (-16)

/**
 * A bug of this library; the text is for its maintainers. The pool goes on.
 */
#define CENOTE_ERR_INTERNAL (-15)

/**
 * A resource was made; `nanos` says how long that took.
 */
#define CENOTE_EVENT_CREATED 1

/**
 * A creation failed, with `error`.
 */
#define CENOTE_EVENT_CREATE_FAILED 2

/**
 * A lease was handed out; `nanos` says how long it was waited for.
 */
#define CENOTE_EVENT_ACQUIRED 3

/**
 * A lease came back, and its resource stays.
 */
#define CENOTE_EVENT_RELEASED 4

/**
 * A resource left the pool, for `reason`; `error` is what its destroy callback said.
 */
#define CENOTE_EVENT_DESTROYED 5

/**
 * The callback `hook` failed on a resource, with `error`; the resource is destroyed.
 */
#define CENOTE_EVENT_HOOK_FAILED 6

/**
 * An acquire began to wait.
 */
#define CENOTE_EVENT_WAITING 7

/**
 * An acquire ran out of time, in `phase`.
 */
#define CENOTE_EVENT_TIMED_OUT 8

/**
 * A lease has been out for longer than leak_warning_ms; `nanos` says how long.
 */
#define CENOTE_EVENT_LEAK_SUSPECTED 9

/**
 * The circuit breaker moved, from `from` to `to`.
 */
#define CENOTE_EVENT_BREAKER_CHANGED 10

/**
 * The pool was closed: nobody gets a lease any more.
 */
#define CENOTE_EVENT_CLOSED 11

/**
 * The pool was closed, and its last resource is gone.
 */
#define CENOTE_EVENT_DRAINED 12

/**
 * The before_acquire callback refused it.
 */
#define CENOTE_REASON_ACQUIRE_REJECTED 1

/**
 * The before_release callback refused it.
 */
#define CENOTE_REASON_RELEASE_REJECTED 2

/**
 * The healthcheck callback refused it.
 */
#define CENOTE_REASON_UNHEALTHY 3

/**
 * It was idle for too long.
 */
#define CENOTE_REASON_IDLE_TIMEOUT 4

/**
 * It lived for too long.
 */
#define CENOTE_REASON_LIFETIME 5

/**
 * cenote_pool_replace_all has put a new one in its place.
 */
#define CENOTE_REASON_REPLACED 6

/**
 * cenote_pool_resize made the pool smaller.
 */
#define CENOTE_REASON_SHRUNK 7

/**
 * Its holder called cenote_discard.
 */
#define CENOTE_REASON_DISCARDED 8

/**
 * It was being checked for somebody who gave up, so its state is unknown.
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
 * Waiting in the queue for somebody else's resource.
 */
#define CENOTE_PHASE_WAITING 1

/**
 * Waiting for a creation that it started.
 */
#define CENOTE_PHASE_CREATING 2

/**
 * Waiting for the before_acquire callback.
 */
#define CENOTE_PHASE_CHECKING 3

/**
 * Takes a timer away; see cenote_runtime.
 */
#define CENOTE_NEVER UINT64_MAX

/**
 * The one this thread used last, if it is free; otherwise the one whose last lease
 * began longest ago. The fastest, and the default.
 */
#define CENOTE_ORDER_AFFINE 0

/**
 * The one that came back first: the load spreads evenly.
 */
#define CENOTE_ORDER_FIFO 1

/**
 * The one that came back last: those not needed grow old, and the pool can shrink.
 */
#define CENOTE_ORDER_LIFO 2

/**
 * A pool. What it points to is nobody's business: it is a number that names the pool.
 */
typedef struct cenote_pool cenote_pool;

/**
 * A resource on loan. Give it back once, by cenote_release or cenote_discard, on any
 * thread. It may be copied; the first copy that is given back counts.
 */
typedef struct cenote_lease {
    /**
     * What the create callback made.
     */
    void *resource;
    /**
     * Not for you.
     */
    uint64_t ticket;
    /**
     * Not for you.
     */
    uint32_t slot;
    /**
     * Not for you.
     */
    uint32_t pool;
} cenote_lease;

/**
 * Something that happened. What a kind does not speak of is zero or NULL. Valid during
 * the callback only.
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
     * Why a resource left: one of CENOTE_REASON_*.
     */
    uint32_t reason;
    /**
     * Which callback failed: one of CENOTE_HOOK_*.
     */
    uint32_t hook;
    /**
     * What an acquire was doing: one of CENOTE_PHASE_*.
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
     * The number of the resource: the first one of a pool is 1.
     */
    uint64_t resource;
    /**
     * How long something took, in nanoseconds.
     */
    uint64_t nanos;
    /**
     * What went wrong, in words.
     */
    const char *error;
} cenote_event;

/**
 * Is told of every event. Must not block; may call the pool.
 */
typedef void (*cenote_event_fn)(void *data,
                                struct cenote_pool *pool,
                                const struct cenote_event *event);

/**
 * Is called when `data` is not used any more.
 */
typedef void (*cenote_dispose_fn)(void *data);

/**
 * A pool as a source of events, in one table.
 */
typedef struct cenote_event_table {
    /**
     * sizeof(cenote_event_table) of whoever made it.
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
 * Makes a resource: stores it and returns 0, or returns a code of its own.
 */
typedef int (*cenote_create_fn)(void *data, void **resource);

/**
 * Does something with a resource: returns 0 if all is well, else a code of its own.
 */
typedef int (*cenote_resource_fn)(void *data, void *resource);

/**
 * What a host has to call, with the argument that came with it. Once too often does
 * no harm, and neither does a call after the pool is gone.
 */
typedef void (*cenote_run_fn)(void *arg);

/**
 * The event loop of a host with one thread. A pool that is given one runs all its
 * callbacks on that thread, inside the calls that the host makes: those of `run`, and
 * those of this library's functions. The struct is copied; what `data` points to must
 * live until the pool's `dispose` was called.
 */
typedef struct cenote_runtime {
    /**
     * sizeof(cenote_runtime).
     */
    size_t size;
    /**
     * Is given to the functions below.
     */
    void *data;
    /**
     * Returns the time in nanoseconds since some fixed moment; never goes back. NULL
     * for the system's monotonic clock. Called on any thread, and while the pool is
     * locked: must not call this library.
     */
    uint64_t (*now)(void *data);
    /**
     * Sees to it that run(arg) is called on the host's thread when `now` has reached
     * `at`. There is one timer for an `arg`: another call moves it, CENOTE_NEVER takes
     * it away. Called on the host's thread only, and must not call run(arg) itself.
     */
    void (*timer)(void *data, uint64_t at, cenote_run_fn run, void *arg);
    /**
     * Sees to it that run(arg) is called soon on the host's thread, from its loop.
     * Called on any thread; must not call run(arg) itself. Returns 0, or anything else
     * if the loop takes no more: then what was to be done is cancelled. A loop that ends
     * has to run first what it has taken.
     */
    int (*post)(void *data, cenote_run_fn run, void *arg);
    /**
     * Returns whether the calling thread is the host's. NULL: it is the one that calls
     * cenote_pool_new.
     */
    int (*on_thread)(void *data);
} cenote_runtime;

/**
 * Decides when a breaker opens and when it may try again. None of its functions may
 * block; each may be NULL. The struct is copied. They are called on the thread that
 * releases, creates or acquires, or on the host's if there is one.
 */
typedef struct cenote_strategy {
    /**
     * sizeof(cenote_strategy).
     */
    size_t size;
    /**
     * Is given to the functions below.
     */
    void *data;
    /**
     * A resource came back and was kept. `state` is one of CENOTE_BREAKER_*.
     */
    void (*report_success)(void *data, struct cenote_pool *pool, uint32_t state);
    /**
     * A creation failed, or before_release refused a resource; `why` says which.
     * Returns 1 to open the breaker, 0 to leave it.
     */
    int (*report_failure)(void *data, struct cenote_pool *pool, uint32_t state, const char *why);
    /**
     * The cool-down of an open breaker is over. Returns 1 to let probes through, 0 for
     * another cool-down. NULL: always 1.
     */
    int (*should_recover)(void *data, struct cenote_pool *pool);
    /**
     * Is called when the strategy is not used any more.
     */
    cenote_dispose_fn dispose;
    /**
     * How long an open breaker stays open before anybody asks. 0: five seconds.
     */
    uint64_t cool_down_ms;
    /**
     * How many probes may be out at once, and how many of them must succeed. 0: one.
     */
    uint32_t probes;
} cenote_strategy;

/**
 * Says of a code that create returned whether it is of no use to try again: anything but 0 is yes.
 */
typedef int (*cenote_permanent_fn)(void *data, int code);

/**
 * What a pool is made of. Call cenote_options_init first, which sets every default, then
 * change what you need. The struct and what it points to are copied, but `data`.
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
     * Is given to the callbacks below. Callbacks may run on several threads at once,
     * each on another resource, unless there is a host.
     */
    void *data;
    /**
     * Makes a resource. The only one that must be there.
     */
    cenote_create_fn create;
    /**
     * Destroys a resource that leaves the pool. Its failure goes to the caller of
     * cenote_pool_close, and everywhere else to the events. NULL: nothing to do.
     */
    cenote_resource_fn destroy;
    /**
     * Looks at an idle resource, every healthcheck_interval_ms; one that it refuses is
     * destroyed, and the pool refilled up to `min`. NULL: all is well.
     */
    cenote_resource_fn healthcheck;
    /**
     * Looks at an idle resource, not a fresh one, that is about to be handed out; one that it
     * refuses is destroyed, and the acquire goes on with the next. NULL: all is well.
     */
    cenote_resource_fn before_acquire;
    /**
     * Looks at a resource that comes back; one that it refuses is destroyed, and the
     * breaker told. Must not block for long. NULL: keep it.
     */
    cenote_resource_fn before_release;
    /**
     * Is called once with `data` when nothing of the pool uses that any more: no
     * reference, lease or waiter is left. Only if cenote_pool_new succeeded. NULL: no call.
     */
    cenote_dispose_fn dispose;
    /**
     * The fewest resources the pool keeps up, made by cenote_pool_new and refilled in the
     * background. Default: 0. At most `max`.
     */
    size_t min;
    /**
     * The most resources there may be. Default: 10. At least 1.
     */
    size_t max;
    /**
     * Which idle resource is handed out next: one of CENOTE_ORDER_*.
     */
    uint32_t order;
    /**
     * How many creations may run at once. Default: 0, as many as there is room for.
     */
    uint32_t concurrent_creations;
    /**
     * How often idle resources are checked, in milliseconds. Default: 0, never.
     */
    uint64_t healthcheck_interval_ms;
    /**
     * How long a resource may be idle before it is destroyed, as long as `min` are left,
     * in milliseconds; up to a quarter longer. Default: 0, for ever.
     */
    uint64_t idle_timeout_ms;
    /**
     * How long a resource may live, in milliseconds, give or take the jitter; up to a
     * quarter longer. One on loan is left alone until it comes back. Default: 0, for ever.
     */
    uint64_t max_lifetime_ms;
    /**
     * By what share lifetimes differ, up or down. Default: 0.1. At least 0.0, below 1.0.
     */
    double lifetime_jitter;
    /**
     * The pause after a failed creation, in milliseconds; it doubles up to
     * backoff_longest_ms. During it acquires queue, and cenote_try_acquire finds nothing.
     * Default: 100. 0: none.
     */
    uint64_t backoff_first_ms;
    /**
     * The longest such pause. Default: 5000.
     */
    uint64_t backoff_longest_ms;
    /**
     * Tells by an event, once, of a lease that has been out for this long. Default: 0, off.
     */
    uint64_t leak_warning_ms;
    /**
     * The event loop to live on. NULL: one background thread of this library, which all
     * such pools of the process share.
     */
    const struct cenote_runtime *runtime;
    /**
     * The strategy of the circuit breaker. NULL: none, it moves by hand only.
     */
    const struct cenote_strategy *strategy;
    /**
     * How many acquires may wait in the queue; one that comes then ends with
     * CENOTE_ERR_QUEUE_FULL. With 0 nobody waits for others. Default: SIZE_MAX, no limit.
     */
    size_t max_waiting;
    /**
     * How long an acquire waits for before_acquire to be called on the host's thread, in
     * milliseconds, before it goes on with another resource. A callback that runs is not
     * interrupted. Default: 0, as long as the acquire may take.
     */
    uint64_t before_acquire_timeout_ms;
    /**
     * Whether an acquire with a time limit tries again, after the back-off, when the creation that it
     * caused fails. 0 or 1. Default: 0.
     */
    uint32_t retry_creations;
    /**
     * Not used; 0.
     */
    uint32_t reserved;
    /**
     * Says after which codes of create an acquire does not try again, such as that of a refused login,
     * which repeated would lock the account. NULL: after none.
     */
    cenote_permanent_fn is_permanent;
} cenote_options;

/**
 * Is shown a resource.
 */
typedef void (*cenote_visit_fn)(void *data, void *resource);

/**
 * What a pool holds at one moment, and what it has done so far. In every sample
 * total = idle + active + creating, and total is at most max.
 */
typedef struct cenote_status {
    /**
     * sizeof(cenote_status); set it before the call.
     */
    size_t size;
    /**
     * Places in use: idle, active and creating.
     */
    uint64_t total;
    /**
     * Resources in the pool, those reserved for a waiter that was woken included.
     */
    uint64_t idle;
    /**
     * Resources on loan, in a callback, or being destroyed.
     */
    uint64_t active;
    /**
     * Resources being made.
     */
    uint64_t creating;
    /**
     * Of the idle ones: set aside for a waiter that was woken and has not run yet.
     */
    uint64_t reserved;
    /**
     * Acquires that wait and were given nothing yet.
     */
    uint64_t waiting;
    /**
     * The most resources there may be.
     */
    uint64_t max;
    /**
     * The fewest resources the pool keeps up.
     */
    uint64_t min;
    /**
     * Leases handed out so far.
     */
    uint64_t acquired;
    /**
     * Acquires that had to queue so far.
     */
    uint64_t waited;
    /**
     * Acquires that ran out of time so far.
     */
    uint64_t timed_out;
    /**
     * Acquires that were cancelled while they queued so far.
     */
    uint64_t cancelled;
    /**
     * Resources made so far.
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
 * Is called once for each cenote_acquire_async: with CENOTE_OK and a lease, which it has
 * to give back sooner or later, or with an error and a lease of NULL. The last
 * error of the thread has the error's text then.
 */
typedef void (*cenote_done_fn)(void *data,
                               struct cenote_pool *pool,
                               int code,
                               const struct cenote_lease *lease);

/**
 * Says whether a resource may stay: anything but 0 is yes.
 */
typedef int (*cenote_keep_fn)(void *data, void *resource);

/**
 * What a pool knows of a resource.
 */
typedef struct cenote_info {
    /**
     * sizeof(cenote_info); set it before the call.
     */
    size_t size;
    /**
     * How long ago it was made, in milliseconds.
     */
    uint64_t age_ms;
    /**
     * How often it was acquired. before_release finds the present time counted;
     * before_acquire does not.
     */
    uint64_t uses;
} cenote_info;

/**
 * Every function of the library, in one table.
 */
typedef struct cenote_api {
    /**
     * sizeof(cenote_api) of whoever made it; more than yours if it is newer.
     */
    size_t size;
    /**
     * CENOTE_API_VERSION of whoever made it.
     */
    size_t version;
    /**
     * A pool as a source of events.
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
     * Makes a language's own object of a pool, which owns a reference. The library's own
     * table adds a reference and gives the handle itself; a host's table makes what its
     * language needs.
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
 * Acquires a resource: an idle one, a new one if there is room, or the one that comes
 * back first, in the order of arrival. Blocks the calling thread only, for at most
 * `timeout_ms` milliseconds, creation included (a callback that runs is not interrupted,
 * so give it a time limit of its own); CENOTE_FOREVER is without limit, and 0 or less
 * does not queue at all. On the thread that callbacks run on it never waits: what is not
 * to be had at once is CENOTE_ERR_WOULD_BLOCK. Give the lease back by cenote_release or
 * cenote_discard.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE, CENOTE_ERR_CLOSED,
 * CENOTE_ERR_UNAVAILABLE, CENOTE_ERR_TIMEOUT, CENOTE_ERR_CREATE,
 * CENOTE_ERR_WOULD_BLOCK, or CENOTE_ERR_CANCELLED if a host's loop takes no more work;
 * `lease` is all zero then.
 */
int cenote_acquire(struct cenote_pool *pool, int64_t timeout_ms, struct cenote_lease *lease);

/**
 * Acquires a resource without waiting for others: an idle one, or a new one if there is
 * room. Returns CENOTE_EMPTY if the pool is exhausted, closed, its breaker open, or
 * no creation is tried so soon after one that failed. (On another thread than a host's
 * own, it waits for the host to answer.)
 *
 * Returns CENOTE_OK, CENOTE_EMPTY, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE,
 * CENOTE_ERR_CREATE, CENOTE_ERR_CLOSED if the last reference was given up, or
 * CENOTE_ERR_CANCELLED if a host's loop takes no more work.
 */
int cenote_try_acquire(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Gives a resource back, from any thread: the before_release callback decides whether it
 * stays, and whoever is first in the queue gets it. Also when the pool was closed, or
 * its last reference given up: then the resource is destroyed. `lease` is all zero
 * afterwards.
 *
 * Returns CENOTE_OK, also if the callback refused the resource; CENOTE_ERR_ARGUMENT,
 * CENOTE_ERR_HANDLE, CENOTE_ERR_FOREIGN, or CENOTE_ERR_NOT_ACQUIRED if it was given
 * back already or never acquired.
 */
int cenote_release(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Gives a resource back that is known to be broken: it is destroyed, and its place is
 * free. Nothing is reported to the breaker. `lease` is all zero afterwards.
 *
 * Returns as cenote_release.
 */
int cenote_discard(struct cenote_pool *pool, struct cenote_lease *lease);

/**
 * Returns the table of functions, the host's own if one is registered; NULL if this
 * library does not have that version. The table is valid for ever.
 */
const struct cenote_api *cenote_get_api(uint32_t version);

/**
 * Puts another table in the place of the library's own, for everybody who asks
 * cenote_get_api from now on; NULL takes it away again. Every function must be there,
 * and the table be valid for ever. (Ask cenote_get_api before, and pass on to that
 * what you do not do yourself.)
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
 * Closes the breaker by hand: business as usual.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_activate(struct cenote_pool *pool);

/**
 * Opens the breaker by hand: everybody who waits fails with CENOTE_ERR_UNAVAILABLE at
 * once, and no strategy closes it again.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_deactivate(struct cenote_pool *pool);

/**
 * Lets probes through by hand, or everybody if there is no strategy.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_recover(struct cenote_pool *pool);

/**
 * Sets the breaker's strategy, or takes it away if `strategy` is NULL. The breaker's
 * state stays as it is, and nothing is reported.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED;
 * if not CENOTE_OK, `dispose` is not called.
 */
int cenote_breaker_set_strategy(struct cenote_pool *pool, const struct cenote_strategy *strategy);

/**
 * Sets a strategy that opens the breaker after `limit` failures with no success between
 * them, for `cool_down_ms` milliseconds.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_open_after(struct cenote_pool *pool, uint32_t limit, uint64_t cool_down_ms);

/**
 * Sets a strategy that opens the breaker when at least `rate` (above 0.0, at most 1.0) of
 * the reports within `window_ms` milliseconds are failures, once there are
 * `at_least` of them, for `cool_down_ms` milliseconds.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_breaker_open_at_rate(struct cenote_pool *pool,
                                double rate,
                                uint64_t window_ms,
                                uint32_t at_least,
                                uint64_t cool_down_ms);

/**
 * Returns the code of the last call on this thread that failed, CENOTE_OK if none
 * did. A call that goes well leaves it as it is. A thread that is ending, and runs the
 * destructors of its keys, has none any more: go by what the call returned there.
 */
int cenote_last_error_code(void);

/**
 * Returns what the callback returned that the last error of this thread is about;
 * 0 if it is about none.
 */
int cenote_last_error_detail(void);

/**
 * Returns the last error of this thread in words, never NULL. The text is valid until
 * the next call of this library on this thread.
 */
const char *cenote_last_error_text(void);

/**
 * Forgets the last error of this thread.
 */
void cenote_clear_error(void);

/**
 * Says, from inside a callback that is about to return a failure, what went wrong; call it
 * only then.
 * The text is copied, and shown in errors and events beside the callback's code.
 */
void cenote_set_error_text(const char *text);

/**
 * Returns a code in words: a constant text, never NULL.
 */
const char *cenote_code_text(int code);

/**
 * Adds a callback for the events of a pool. It is called on the thread where something
 * happens, or on the host's if there is one. `dispose` may be NULL; it is called with
 * `data` when `callback` will not be called any more. While anybody listens, acquire
 * and release are slower.
 *
 * Returns CENOTE_OK and writes the number of the callback, if `id` is not NULL;
 * CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_add_callback(struct cenote_pool *pool,
                              cenote_event_fn callback,
                              void *data,
                              cenote_dispose_fn dispose,
                              uint64_t *id);

/**
 * Removes a callback for events: it is not called again. It may still be running on
 * another thread; its `dispose` tells when it is not.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT if there is no such callback,
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_del_callback(struct cenote_pool *pool, uint64_t id);

/**
 * Lets events through again after cenote_event_stop. A pool starts out like this.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_start(struct cenote_pool *pool);

/**
 * Holds all events back: the callbacks stay, and are not called. Costs nothing.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_stop(struct cenote_pool *pool);

/**
 * Removes all callbacks for events. The end of a pool does so, too.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_event_dispose(struct cenote_pool *pool);

/**
 * Says how old the resource is that the present callback is about, and how often it was used:
 * inside of healthcheck, before_acquire, before_release and destroy, and of the function of
 * cenote_pool_retain, on the thread that runs them.
 *
 * Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, also outside of such a callback.
 */
int cenote_resource_info(struct cenote_info *info);

/**
 * Sets every option to its default. `size` is sizeof(cenote_options), as your compiler
 * sees it: so the struct may grow without your program being compiled again.
 *
 * Returns CENOTE_OK or CENOTE_ERR_ARGUMENT.
 */
int cenote_options_init(struct cenote_options *options, size_t size);

/**
 * Makes a pool and its first `min` resources, one after another, and writes its handle,
 * which is one reference. The first creation that fails ends it, and what was made is
 * destroyed.
 *
 * Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_CONFIG, whose text names the
 * option and its value, CENOTE_ERR_CREATE, or CENOTE_ERR_CANCELLED if a host's loop
 * takes no more work: then `pool` is NULL, and `dispose` is not called.
 */
int cenote_pool_new(const struct cenote_options *options, struct cenote_pool **pool);

/**
 * Adds a reference to a pool. Every reference is given up by cenote_pool_unref, once.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
 * was given up.
 */
int cenote_pool_ref(struct cenote_pool *pool);

/**
 * Gives up a reference to a pool. With the last one the pool is closed: what is idle is
 * destroyed, what is out when it is released, which works as long as anything is out.
 * Then `dispose` is called, and the handle is out of date. Calls that are under way, on
 * other threads or around this one, end like those on a pool that was closed.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
 * was given up already.
 */
int cenote_pool_unref(struct cenote_pool *pool);

/**
 * Closes a pool: everybody who waits fails with CENOTE_ERR_CLOSED, and what is idle is
 * destroyed, oldest first, before this returns. What is out stays valid, and is
 * destroyed when it is released. Closing again does nothing. The handle stays valid.
 *
 * Returns CENOTE_OK; CENOTE_ERR_DESTROY if a destroy callback failed, with the first
 * one's code and text (everything is destroyed all the same); CENOTE_ERR_HANDLE,
 * CENOTE_ERR_CLOSED if the last reference was given up, or CENOTE_ERR_CANCELLED if a
 * host's loop takes no more work.
 */
int cenote_pool_close(struct cenote_pool *pool);

/**
 * Closes a pool like cenote_pool_close, and waits until everything that is out has come
 * back, for at most `timeout_ms` milliseconds; CENOTE_FOREVER is without limit, and 0 or less does not
 * wait.
 *
 * Returns as cenote_pool_close; CENOTE_ERR_IN_USE if not everything came back, whose
 * text says how much; CENOTE_ERR_TIMEOUT if a host's loop did not answer in time;
 * CENOTE_ERR_WOULD_BLOCK on the thread that callbacks run on,
 * where the pool is closed, too (listen for CENOTE_EVENT_DRAINED there).
 */
int cenote_pool_close_and_drain(struct cenote_pool *pool,
                                int64_t timeout_ms);

/**
 * Changes the maximum. Growing serves those who wait at once; shrinking destroys idle
 * resources first, and the rest as it comes back.
 *
 * Returns CENOTE_OK, CENOTE_ERR_CONFIG, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_resize(struct cenote_pool *pool, size_t max);

/**
 * Changes the minimum. The pool makes what is missing in the background; what is more than a
 * smaller minimum stays until its idle timeout.
 *
 * Returns CENOTE_OK, CENOTE_ERR_CONFIG if it is more than the maximum, CENOTE_ERR_HANDLE or
 * CENOTE_ERR_CLOSED.
 */
int cenote_pool_set_min(struct cenote_pool *pool, size_t min);

/**
 * Replaces every resource there is now, in the background: a new one is made first, and takes
 * over when an old one is idle or comes back. For rotated credentials and fail-overs.
 *
 * Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_replace_all(struct cenote_pool *pool);

/**
 * Shows every resource that is not on loan to `visit`, for a garbage collector that has to
 * know what the pool alone holds on to. Meant for a host whose threads stand still: on
 * others, a resource may be taken or destroyed while it is being shown.
 *
 * Returns how many it has shown; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or
 * CENOTE_ERR_CLOSED.
 */
int cenote_pool_visit(struct cenote_pool *pool, cenote_visit_fn visit, void *data);

/**
 * Evicts the resources for which `keep` returns 0, and refills to the minimum. The idle ones are judged
 * before this returns, the others when they come back, on the thread that releases them, or on the
 * host's. cenote_resource_info says their age and uses. `dispose` is called with `data` when every
 * resource was judged; NULL: no call.
 *
 * Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then `dispose` is
 * not called; CENOTE_ERR_CANCELLED if a host's loop takes no more work.
 */
int cenote_pool_retain(struct cenote_pool *pool,
                       cenote_keep_fn keep,
                       void *data,
                       cenote_dispose_fn dispose);

/**
 * Writes what the pool holds and has done. Set `status->size` before.
 *
 * Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_status(struct cenote_pool *pool, struct cenote_status *status);

/**
 * Returns how many resources there are: idle, active and being made; or
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_total(struct cenote_pool *pool);

/**
 * Returns how many resources are idle; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_idle(struct cenote_pool *pool);

/**
 * Returns how many resources are on loan, in a callback or being destroyed; or
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_active(struct cenote_pool *pool);

/**
 * Returns how many acquires wait; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_waiting(struct cenote_pool *pool);

/**
 * Returns 1 if the pool was closed, else 0; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
 */
int cenote_pool_is_closed(struct cenote_pool *pool);

/**
 * Acquires like cenote_acquire without blocking: takes a place in the queue at once, and
 * calls `on_done` exactly once, later, where callbacks run; never inside this call. With
 * a time of 0 or less it takes no place: `on_done` gets what is free at that moment.
 * `waiter` may be NULL; otherwise it is written before `on_done` can run, and
 * cenote_waiter_cancel takes it. (Only a host whose loop takes no more work is told so on
 * the spot: by CENOTE_ERR_CANCELLED, on the thread that finds out.)
 *
 * Returns CENOTE_OK, and then `on_done` will be called; CENOTE_ERR_ARGUMENT,
 * CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then it will not.
 */
int cenote_acquire_async(struct cenote_pool *pool,
                         int64_t timeout_ms,
                         cenote_done_fn on_done,
                         void *data,
                         uint64_t *waiter);

/**
 * Cancels a waiter: its place in the queue, or what it was given already, goes to the
 * next, at once, or as soon as a callback that runs for it has returned. Its `on_done` is
 * called with CENOTE_ERR_CANCELLED.
 *
 * Returns CENOTE_OK; CENOTE_ERR_NOT_WAITING if `on_done` was called already or is
 * about to be, or there never was such a waiter; CENOTE_ERR_HANDLE, or
 * CENOTE_ERR_CLOSED if the last reference was given up.
 */
int cenote_waiter_cancel(struct cenote_pool *pool, uint64_t waiter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*
 * The table of functions, for those who are not linked to the library. CENOTE_API is where
 * the macros below find it: define it before this header is included, as a pointer
 * of yours that dlsym and cenote_get_api have filled; otherwise each call asks.
 */
#ifndef CENOTE_API
#define CENOTE_API (cenote_get_api(CENOTE_API_VERSION))
#endif

/* What dlsym is asked for, and what it gives. */
#define CENOTE_GET_API_NAME "cenote_get_api"
typedef const cenote_api *(*cenote_get_api_fn)(uint32_t version);

/* Makes a pool: options, where its handle goes. */
#define CENOTE_NEW_POOL(options, pool) (CENOTE_API->pool_new((options), (pool)))
/* Makes the host language's own object of a pool. */
#define CENOTE_NEW_POOL_OBJ(pool, object) (CENOTE_API->pool_object((pool), (object)))
/* Acquires: timeout in milliseconds, where the lease goes. */
#define CENOTE_POOL_ACQUIRE(pool, timeout_ms, lease) \
    (CENOTE_API->acquire((pool), (timeout_ms), (lease)))
/* Gives a lease back. */
#define CENOTE_POOL_RELEASE(pool, lease) (CENOTE_API->release((pool), (lease)))
/* Closes a pool. */
#define CENOTE_POOL_CLOSE(pool) (CENOTE_API->pool_close((pool)))

#endif /* CENOTE_H */
