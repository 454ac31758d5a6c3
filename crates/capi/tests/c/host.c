/*
 * A host with one thread and an event loop of its own: every callback runs on that thread,
 * whoever caused it, and when the host says so. Its clock stands still until a test moves
 * it, so nothing here depends on how fast the machine is.
 */

#include "check.h"

enum { MANY = 64 };

typedef struct job {
    cenote_run_fn run;
    void *arg;
} job;

/* The event loop. Other threads only post. */
typedef struct loop {
    pthread_t thread;
    pthread_mutex_t lock;
    job jobs[MANY];
    int posted;
    int posts;
    int refuse;
    uint64_t now;
    /* One timer for each pool. */
    struct {
        job what;
        uint64_t at;
    } timers[MANY];
    int timer_calls;
} loop;

static loop host;

static void on_host_thread(void) {
    CHECK(pthread_equal(pthread_self(), host.thread));
}

static uint64_t host_now(void *data) {
    loop *l = data;
    pthread_mutex_lock(&l->lock);
    uint64_t now = l->now;
    pthread_mutex_unlock(&l->lock);
    return now;
}

static void host_timer(void *data, uint64_t at, cenote_run_fn run, void *arg) {
    loop *l = data;
    int spare = -1;
    on_host_thread();
    l->timer_calls++;
    for (int i = 0; i < MANY; i++) {
        if (l->timers[i].what.run != NULL && l->timers[i].what.arg == arg) {
            spare = i;
            break;
        }
        if (l->timers[i].what.run == NULL && spare < 0) {
            spare = i;
        }
    }
    CHECK(spare >= 0);
    l->timers[spare].at = at;
    l->timers[spare].what.arg = arg;
    l->timers[spare].what.run = at == CENOTE_NEVER ? NULL : run;
}

static int host_post(void *data, cenote_run_fn run, void *arg) {
    loop *l = data;
    int refused;
    pthread_mutex_lock(&l->lock);
    refused = l->refuse;
    if (!refused) {
        CHECK(l->posted < MANY);
        l->jobs[l->posted].run = run;
        l->jobs[l->posted].arg = arg;
        l->posted++;
        l->posts++;
    }
    pthread_mutex_unlock(&l->lock);
    return refused;
}

/* Runs what was posted; whether there was anything. */
static int turn(void) {
    job jobs[MANY];
    int count;
    pthread_mutex_lock(&host.lock);
    count = host.posted;
    memcpy(jobs, host.jobs, sizeof jobs);
    host.posted = 0;
    pthread_mutex_unlock(&host.lock);
    for (int i = 0; i < count; i++) {
        jobs[i].run(jobs[i].arg);
    }
    return count > 0;
}

static void turn_until_quiet(void) {
    while (turn()) {
    }
}

/* Moves the clock to where the next timers are, again and again, up to a time. */
static void pass(uint64_t ms) {
    uint64_t until = host.now + ms * 1000000;
    turn_until_quiet();
    for (;;) {
        uint64_t next = until;
        for (int i = 0; i < MANY; i++) {
            if (host.timers[i].what.run != NULL && host.timers[i].at < next) {
                next = host.timers[i].at;
            }
        }
        if (next > host.now) {
            pthread_mutex_lock(&host.lock);
            host.now = next;
            pthread_mutex_unlock(&host.lock);
        }
        for (int i = 0; i < MANY; i++) {
            if (host.timers[i].what.run != NULL && host.timers[i].at <= host.now) {
                job due = host.timers[i].what;
                host.timers[i].what.run = NULL;
                due.run(due.arg);
            }
        }
        turn_until_quiet();
        if (next == until) {
            return;
        }
    }
}

/* The callbacks of check.h, on the right thread. */
static int create(void *data, void **resource) {
    on_host_thread();
    return thing_create(data, resource);
}

static int destroy(void *data, void *resource) {
    on_host_thread();
    return thing_destroy(data, resource);
}

static int healthcheck(void *data, void *resource) {
    on_host_thread();
    return thing_check(data, resource);
}

static int before_acquire(void *data, void *resource) {
    on_host_thread();
    return thing_before_acquire(data, resource);
}

static int before_release(void *data, void *resource) {
    on_host_thread();
    return thing_before_release(data, resource);
}

static void dispose(void *data) {
    on_host_thread();
    thing_dispose(data);
}

static cenote_runtime runtime;

static cenote_options hosted(makers *m, size_t min, size_t max) {
    cenote_options options = things(m, min, max);
    memset(&runtime, 0, sizeof runtime);
    runtime.size = sizeof runtime;
    runtime.data = &host;
    runtime.now = host_now;
    runtime.timer = host_timer;
    runtime.post = host_post;
    options.runtime = &runtime;
    options.create = create;
    options.destroy = destroy;
    options.healthcheck = healthcheck;
    options.before_acquire = before_acquire;
    options.before_release = before_release;
    options.dispose = dispose;
    return options;
}

typedef struct result {
    int calls;
    int code;
    cenote_lease lease;
} result;

static void on_done(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    result *r = data;
    (void)pool;
    on_host_thread();
    r->calls++;
    r->code = code;
    if (lease != NULL) {
        r->lease = *lease;
    }
}

static void ask(cenote_pool *pool, int64_t timeout_ms, result *r, uint64_t *waiter) {
    memset(r, 0, sizeof *r);
    CHECK_OK(cenote_acquire_async(pool, timeout_ms, on_done, r, waiter));
    /* Never inside the call. */
    CHECK(r->calls == 0);
}

static void check_done(const result *r, int code) {
    CHECK(r->calls == 1 && r->code == code);
}

static void end_hosted(cenote_pool *pool, makers *m) {
    CHECK_OK(cenote_pool_unref(pool));
    turn_until_quiet();
    CHECK(m->disposed == 1);
    CHECK(m->destroyed == m->created);
    for (int i = 0; i < MANY; i++) {
        CHECK(host.timers[i].what.run == NULL);
    }
}

static void an_acquire_on_the_hosts_thread_never_waits(void) {
    makers m;
    cenote_options options = hosted(&m, 1, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    cenote_lease none;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_WOULD_BLOCK);
    CHECK(cenote_acquire(pool, 1000, &none) == CENOTE_ERR_WOULD_BLOCK);
    CHECK(cenote_acquire(pool, 0, &none) == CENOTE_ERR_TIMEOUT);
    CHECK(try_gives_nothing(pool));
    CHECK(cenote_pool_waiting(pool) == 0);
    CHECK_OK(cenote_release(pool, &lease));
    check_counts(pool, 1, 1, 0);
    CHECK(cenote_pool_close_and_drain(pool, 10) == CENOTE_OK);
    end_hosted(pool, &m);
}

static void waiters_are_called_back_when_the_loop_runs_in_order(void) {
    makers m;
    result r[3];
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    for (int i = 0; i < 3; i++) {
        ask(pool, CENOTE_FOREVER, &r[i], NULL);
    }
    turn_until_quiet();
    CHECK(cenote_pool_waiting(pool) == 3);
    CHECK_OK(cenote_release(pool, &lease));
    for (int i = 0; i < 3; i++) {
        CHECK(r[i].calls == 0);
        turn_until_quiet();
        check_done(&r[i], CENOTE_OK);
        CHECK(number_of(&r[i].lease) == 1);
        CHECK_OK(cenote_release(pool, &r[i].lease));
    }
    end_hosted(pool, &m);
}

/* P-060a, P-060b, P-061: reserved for a waiter that has not run yet. */
static void what_is_reserved_for_a_waiter_is_nobody_elses_and_goes_on_when_it_cancels(void) {
    makers m;
    result first, second;
    uint64_t waiter;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &first, &waiter);
    ask(pool, CENOTE_FOREVER, &second, NULL);
    turn_until_quiet();
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(try_gives_nothing(pool));
    CHECK_OK(cenote_waiter_cancel(pool, waiter));
    CHECK(try_gives_nothing(pool));
    turn_until_quiet();
    check_done(&first, CENOTE_ERR_CANCELLED);
    check_done(&second, CENOTE_OK);
    CHECK_OK(cenote_release(pool, &second.lease));
    check_counts(pool, 1, 1, 0);
    CHECK(m.created == 1);
    end_hosted(pool, &m);
}

/* P-065b */
static void what_is_not_reserved_stays_available(void) {
    makers m;
    result r;
    cenote_lease leases[3];
    cenote_status status = {0};
    cenote_options options = hosted(&m, 0, 3);
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        leases[i] = acquired(pool);
    }
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    for (int i = 0; i < 3; i++) {
        CHECK_OK(cenote_release(pool, &leases[i]));
    }
    status.size = sizeof status;
    CHECK_OK(cenote_pool_status(pool, &status));
    CHECK(status.idle == 3 && status.reserved == 1);
    cenote_lease lease = tried(pool);
    turn_until_quiet();
    check_done(&r, CENOTE_OK);
    CHECK(r.lease.resource != lease.resource);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_release(pool, &r.lease));
    CHECK(m.created == 3);
    end_hosted(pool, &m);
}

/* P-063a, P-063b */
static void a_pool_that_closes_takes_a_reservation_back(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 1 && cenote_pool_idle(pool) == 0);
    turn_until_quiet();
    check_done(&r, CENOTE_ERR_CLOSED);
    CHECK(m.created == 1);
    end_hosted(pool, &m);
}

/* P-031, by the host's clock */
static void time_runs_out_by_the_hosts_clock(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, 50, &r, NULL);
    pass(49);
    CHECK(r.calls == 0);
    pass(2);
    check_done(&r, CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

static void a_timer_that_comes_too_early_is_set_again(void) {
    makers m;
    result r;
    int early = 0;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, 50, &r, NULL);
    pass(10);
    for (int i = 0; i < MANY; i++) {
        if (host.timers[i].what.run != NULL) {
            job soon = host.timers[i].what;
            host.timers[i].what.run = NULL;
            soon.run(soon.arg);
            early++;
        }
    }
    CHECK(early == 1 && r.calls == 0);
    pass(41);
    check_done(&r, CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

/* P-048a, P-048b, P-049a, P-049b */
static void health_checks_run_on_the_hosts_clock_and_replace_what_is_unhealthy(void) {
    makers m;
    cenote_options options = hosted(&m, 2, 4);
    options.healthcheck_interval_ms = 30;
    cenote_pool *pool = pool_of(&options);
    CHECK(m.created == 2);
    m.unhealthy = 1;
    pass(29);
    CHECK(m.checked == 0);
    pass(91);
    CHECK(m.checked >= 4);
    CHECK(m.destroyed == 1 && m.order[0] == 1);
    CHECK(m.created == 3);
    check_counts(pool, 2, 2, 0);
    CHECK_OK(cenote_pool_close(pool));
    int checked = m.checked;
    pass(100);
    CHECK(m.checked == checked);
    end_hosted(pool, &m);
}

static void what_is_idle_for_too_long_goes_and_the_breaker_cools_down(void) {
    makers m;
    cenote_options options = hosted(&m, 0, 2);
    options.idle_timeout_ms = 1000;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    pass(900);
    CHECK(m.destroyed == 0);
    pass(600);
    CHECK(m.destroyed == 1);
    CHECK_OK(cenote_breaker_open_after(pool, 1, 500));
    m.fail_create = -1;
    CHECK(cenote_acquire(pool, 0, &lease) == CENOTE_ERR_CREATE);
    m.created--;
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    pass(600);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_RECOVERING);
    m.fail_create = 0;
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    end_hosted(pool, &m);
}

/* ---- other threads ---------------------------------------------------------- */

typedef struct guest {
    pthread_t thread;
    cenote_pool *pool;
    int64_t timeout_ms;
    int code;
    int second;
    atomic_int done;
    cenote_lease lease;
} guest;

static void *acquire_release(void *arg) {
    guest *g = arg;
    g->code = cenote_acquire(g->pool, g->timeout_ms, &g->lease);
    if (g->code == CENOTE_OK) {
        g->second = cenote_release(g->pool, &g->lease);
    }
    atomic_store(&g->done, 1);
    return NULL;
}

static void *try_discard(void *arg) {
    guest *g = arg;
    g->code = cenote_try_acquire(g->pool, &g->lease);
    if (g->code == CENOTE_OK) {
        g->second = cenote_discard(g->pool, &g->lease);
    }
    atomic_store(&g->done, 1);
    return NULL;
}

static void *release_only(void *arg) {
    guest *g = arg;
    g->code = cenote_release(g->pool, &g->lease);
    atomic_store(&g->done, 1);
    return NULL;
}

static void *close_it(void *arg) {
    guest *g = arg;
    g->code = cenote_pool_close(g->pool);
    atomic_store(&g->done, 1);
    return NULL;
}

static void *unref_it(void *arg) {
    guest *g = arg;
    g->code = cenote_pool_unref(g->pool);
    atomic_store(&g->done, 1);
    return NULL;
}

/* Runs the loop until another thread is done with it. */
static void visit_of(guest *g, cenote_pool *pool, void *(*what)(void *), int64_t timeout_ms) {
    g->pool = pool;
    g->timeout_ms = timeout_ms;
    g->code = g->second = 1000;
    atomic_store(&g->done, 0);
    CHECK(pthread_create(&g->thread, NULL, what, g) == 0);
    UNTIL((turn(), atomic_load(&g->done)));
    CHECK(pthread_join(g->thread, NULL) == 0);
    turn_until_quiet();
}

static void report_success(void *data, cenote_pool *pool, uint32_t state) {
    (void)pool;
    (void)state;
    on_host_thread();
    ++*(int *)data;
}

static int report_failure(void *data, cenote_pool *pool, uint32_t state, const char *why) {
    (void)data;
    (void)pool;
    (void)state;
    (void)why;
    on_host_thread();
    return 1;
}

static int should_recover(void *data, cenote_pool *pool) {
    (void)data;
    (void)pool;
    on_host_thread();
    return 1;
}

static void on_event(void *data, cenote_pool *pool, const cenote_event *event) {
    (void)pool;
    (void)event;
    on_host_thread();
    ++*(int *)data;
}

static void event_dispose(void *data) {
    on_host_thread();
    *(int *)data += 1000;
}

static void whatever_other_threads_do_callbacks_run_on_the_hosts_thread(void) {
    makers m;
    guest g = {0};
    int good = 0, events = 0;
    cenote_strategy strategy = {0};
    strategy.size = sizeof strategy;
    strategy.data = &good;
    strategy.report_success = report_success;
    strategy.report_failure = report_failure;
    strategy.should_recover = should_recover;
    strategy.cool_down_ms = 100;
    cenote_options options = hosted(&m, 0, 2);
    options.strategy = &strategy;
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_event_add_callback(pool, on_event, &events, event_dispose, NULL));
    /* It creates, checks, releases, reports. */
    visit_of(&g, pool, acquire_release, CENOTE_FOREVER);
    CHECK(g.code == CENOTE_OK && g.second == CENOTE_OK);
    visit_of(&g, pool, acquire_release, 1000);
    CHECK(g.code == CENOTE_OK && m.created == 1 && m.acquiring == 1 && m.releasing == 2);
    CHECK(good == 2 && events >= 4);
    visit_of(&g, pool, acquire_release, 0);
    CHECK(g.code == CENOTE_OK && g.second == CENOTE_OK && good == 3);
    /* It destroys. */
    visit_of(&g, pool, try_discard, 0);
    CHECK(g.code == CENOTE_OK && g.second == CENOTE_OK && m.destroyed == 1);
    /* It is refused. */
    m.refuse_release = 1;
    visit_of(&g, pool, acquire_release, CENOTE_FOREVER);
    CHECK(g.code == CENOTE_OK && m.destroyed == 2);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    visit_of(&g, pool, acquire_release, CENOTE_FOREVER);
    CHECK(g.code == CENOTE_ERR_UNAVAILABLE);
    pass(150);
    visit_of(&g, pool, acquire_release, CENOTE_FOREVER);
    CHECK(g.code == CENOTE_OK && cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    /* It closes. */
    visit_of(&g, pool, close_it, 0);
    CHECK(g.code == CENOTE_OK && m.destroyed == 3);
    CHECK(events < 1000);
    /* It ends. */
    visit_of(&g, pool, unref_it, 0);
    CHECK(g.code == CENOTE_OK && m.disposed == 1 && events > 1000);
}

static void a_release_on_another_thread_serves_the_host(void) {
    makers m;
    result r;
    guest g = {0};
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    g.lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    visit_of(&g, pool, release_only, 0);
    CHECK(g.code == CENOTE_OK);
    check_done(&r, CENOTE_OK);
    CHECK_OK(cenote_release(pool, &r.lease));
    end_hosted(pool, &m);
}

/* Another thread waits in the same queue, and the host serves it. */
static void another_thread_waits_for_what_the_host_releases(void) {
    makers m;
    guest g = {0};
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    g.pool = pool;
    g.timeout_ms = CENOTE_FOREVER;
    CHECK(pthread_create(&g.thread, NULL, acquire_release, &g) == 0);
    UNTIL((turn(), cenote_pool_waiting(pool) == 1));
    CHECK_OK(cenote_release(pool, &lease));
    UNTIL((turn(), atomic_load(&g.done)));
    CHECK(pthread_join(g.thread, NULL) == 0);
    CHECK(g.code == CENOTE_OK && g.second == CENOTE_OK);
    turn_until_quiet();
    end_hosted(pool, &m);
}

/* A host that does not run its loop keeps nobody for longer than asked for. */
static void another_threads_time_runs_out_even_if_the_loop_stands_still(void) {
    makers m;
    guest g = {0};
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    g.pool = pool;
    g.timeout_ms = 1;
    CHECK(pthread_create(&g.thread, NULL, acquire_release, &g) == 0);
    CHECK(pthread_join(g.thread, NULL) == 0);
    CHECK(g.code == CENOTE_ERR_TIMEOUT);
    /* What it had asked for comes back by itself when the loop runs. */
    turn_until_quiet();
    CHECK(cenote_pool_active(pool) == 0);
    end_hosted(pool, &m);
}

/* ---- the end of a loop ------------------------------------------------------ */

static void a_loop_that_takes_no_more_loses_nothing(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    turn_until_quiet();
    host.refuse = 1;
    memset(&r, 0, sizeof r);
    CHECK_OK(cenote_acquire_async(pool, CENOTE_FOREVER, on_done, &r, NULL));
    check_done(&r, CENOTE_ERR_CANCELLED);
    CHECK(cenote_pool_waiting(pool) == 0);
    CHECK_OK(cenote_release(pool, &lease));
    host.refuse = 0;
    end_hosted(pool, &m);
}

static void a_waiter_that_is_woken_for_a_loop_that_takes_no_more_passes_its_place_on(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    host.refuse = 1;
    CHECK_OK(cenote_release(pool, &lease));
    check_done(&r, CENOTE_ERR_CANCELLED);
    lease = tried(pool);
    CHECK(number_of(&lease) == 1);
    CHECK_OK(cenote_release(pool, &lease));
    host.refuse = 0;
    end_hosted(pool, &m);
}

static void *discard_only(void *arg) {
    guest *g = arg;
    g->code = cenote_discard(g->pool, &g->lease);
    atomic_store(&g->done, 1);
    return NULL;
}

/* The one case where a callback runs elsewhere: better than a resource that is lost. */
static void what_other_threads_give_back_to_a_loop_that_takes_no_more_is_destroyed_there(void) {
    makers m;
    guest g = {0};
    cenote_options options = hosted(&m, 0, 1);
    options.destroy = thing_destroy;
    options.before_release = thing_before_release;
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 2; i++) {
        g.lease = acquired(pool);
        turn_until_quiet();
        host.refuse = 1;
        visit_of(&g, pool, i == 0 ? discard_only : release_only, 0);
        host.refuse = 0;
        CHECK(g.code == CENOTE_OK && m.destroyed == i + 1);
        CHECK(cenote_pool_total(pool) == 0);
    }
    end_hosted(pool, &m);
}

/* run(arg) may come late, when the pool is long gone. */
static void a_late_call_of_the_loop_does_no_harm(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    job late = host.jobs[0];
    turn_until_quiet();
    check_done(&r, CENOTE_OK);
    CHECK_OK(cenote_release(pool, &r.lease));
    end_hosted(pool, &m);
    late.run(late.arg);
    late.run(NULL);
}

/* A callback that runs the host's loop, inside the loop. */
static int create_running_the_loop(void *data, void **resource) {
    turn_until_quiet();
    return create(data, resource);
}

static void a_callback_may_run_the_loop_itself(void) {
    makers m;
    result r[3];
    cenote_options options = hosted(&m, 0, 2);
    options.create = create_running_the_loop;
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        ask(pool, 1000, &r[i], NULL);
    }
    turn_until_quiet();
    check_done(&r[0], CENOTE_OK);
    check_done(&r[1], CENOTE_OK);
    CHECK(r[2].calls == 0);
    CHECK_OK(cenote_release(pool, &r[0].lease));
    turn_until_quiet();
    check_done(&r[2], CENOTE_OK);
    CHECK_OK(cenote_release(pool, &r[1].lease));
    CHECK_OK(cenote_release(pool, &r[2].lease));
    end_hosted(pool, &m);
}

/* A callback that cancels the very waiter it runs for. */
static cenote_pool *cancelling;
static uint64_t to_cancel;
static int cancel_code;

static int create_cancelling(void *data, void **resource) {
    if (to_cancel != 0) {
        cancel_code = cenote_waiter_cancel(cancelling, to_cancel);
        to_cancel = 0;
    }
    return create(data, resource);
}

static void a_callback_may_cancel_the_waiter_it_runs_for(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    options.create = create_cancelling;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    cancelling = pool;
    cancel_code = CENOTE_EMPTY;
    ask(pool, CENOTE_FOREVER, &r, &to_cancel);
    turn_until_quiet();
    CHECK(to_cancel != 0);
    CHECK_OK(cenote_discard(pool, &lease));
    turn_until_quiet();
    CHECK(cancel_code == CENOTE_OK);
    check_done(&r, CENOTE_ERR_CANCELLED);
    check_counts(pool, 1, 1, 0);
    CHECK(m.created == 2);
    end_hosted(pool, &m);
}

static int on_thread(void *data) {
    loop *l = data;
    return pthread_equal(pthread_self(), l->thread) != 0;
}

static void *make_pool(void *arg) {
    const cenote_options *options = arg;
    cenote_pool *pool = NULL;
    CHECK_OK(cenote_pool_new(options, &pool));
    return pool;
}

static void a_pool_may_be_made_on_another_thread_if_the_host_knows_its_own(void) {
    makers m;
    pthread_t thread;
    void *made = NULL;
    cenote_options options = hosted(&m, 2, 2);
    runtime.on_thread = on_thread;
    CHECK(pthread_create(&thread, NULL, make_pool, &options) == 0);
    UNTIL((turn(), m.created == 2));
    CHECK(pthread_join(thread, &made) == 0);
    check_counts(made, 2, 2, 0);
    end_hosted(made, &m);
}

static void a_runtime_without_its_functions_is_an_error_that_names_them(void) {
    makers m;
    cenote_pool *pool;
    cenote_options options = hosted(&m, 0, 1);
    runtime.timer = NULL;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("runtime->timer");
    options = hosted(&m, 0, 1);
    runtime.post = NULL;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("runtime->post");
    options = hosted(&m, 0, 1);
    runtime.now = NULL;
    pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

int main(void) {
    printf("host\n");
    host.thread = pthread_self();
    host.now = 5000000000u;
    CHECK(pthread_mutex_init(&host.lock, NULL) == 0);
    RUN(an_acquire_on_the_hosts_thread_never_waits);
    RUN(waiters_are_called_back_when_the_loop_runs_in_order);
    RUN(what_is_reserved_for_a_waiter_is_nobody_elses_and_goes_on_when_it_cancels);
    RUN(what_is_not_reserved_stays_available);
    RUN(a_pool_that_closes_takes_a_reservation_back);
    RUN(time_runs_out_by_the_hosts_clock);
    RUN(a_timer_that_comes_too_early_is_set_again);
    RUN(health_checks_run_on_the_hosts_clock_and_replace_what_is_unhealthy);
    RUN(what_is_idle_for_too_long_goes_and_the_breaker_cools_down);
    RUN(whatever_other_threads_do_callbacks_run_on_the_hosts_thread);
    RUN(a_release_on_another_thread_serves_the_host);
    RUN(another_thread_waits_for_what_the_host_releases);
    RUN(another_threads_time_runs_out_even_if_the_loop_stands_still);
    RUN(a_loop_that_takes_no_more_loses_nothing);
    RUN(a_waiter_that_is_woken_for_a_loop_that_takes_no_more_passes_its_place_on);
    RUN(what_other_threads_give_back_to_a_loop_that_takes_no_more_is_destroyed_there);
    RUN(a_late_call_of_the_loop_does_no_harm);
    RUN(a_callback_may_run_the_loop_itself);
    RUN(a_callback_may_cancel_the_waiter_it_runs_for);
    RUN(a_pool_may_be_made_on_another_thread_if_the_host_knows_its_own);
    RUN(a_runtime_without_its_functions_is_an_error_that_names_them);
    CHECK(pthread_mutex_destroy(&host.lock) == 0);
    return 0;
}
