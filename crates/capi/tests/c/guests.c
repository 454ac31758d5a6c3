/*
 * Other threads that use the pool of a host with one thread: every callback runs on the host's
 * thread all the same. And hosts whose loop has ended.
 */

#include "loop.h"

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

/* Each of them wakes the next, who is refused as well: one after another, not inside. */
static int told;

static void count_cancelled(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    (void)data;
    (void)pool;
    CHECK(code == CENOTE_ERR_CANCELLED && lease == NULL);
    told++;
}

static void a_loop_that_takes_no_more_tells_twenty_thousand_waiters(void) {
    makers m;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    told = 0;
    for (int i = 0; i < 20000; i++) {
        CHECK_OK(cenote_acquire_async(pool, CENOTE_FOREVER, count_cancelled, NULL, NULL));
    }
    turn_until_quiet();
    host.refuse = 1;
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(told == 20000);
    host.refuse = 0;
    check_counts(pool, 1, 1, 0);
    end_hosted(pool, &m);
}

static uint64_t listening;

static void *stop_listening(void *arg) {
    guest *g = arg;
    g->code = cenote_event_del_callback(g->pool, listening);
    return NULL;
}

static void *drop_strategy(void *arg) {
    guest *g = arg;
    g->code = cenote_breaker_set_strategy(g->pool, NULL);
    return NULL;
}

static void count_disposed(void *data) {
    ++*(int *)data;
}

/* Without a turn of the loop. */
static void done_by(guest *g, cenote_pool *pool, void *(*what)(void *)) {
    g->pool = pool;
    CHECK(pthread_create(&g->thread, NULL, what, g) == 0);
    CHECK(pthread_join(g->thread, NULL) == 0);
    CHECK_OK(g->code);
}

static void what_another_thread_has_removed_is_disposed_of_though_the_pool_ends_first(void) {
    makers m;
    guest g = {0};
    int events = 0, listeners = 0, strategies = 0;
    cenote_strategy strategy = {0};
    cenote_options options = hosted(&m, 0, 1);
    strategy.size = sizeof strategy;
    strategy.data = &strategies;
    strategy.dispose = count_disposed;
    options.strategy = &strategy;
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_event_add_callback(pool, on_event, &listeners, count_disposed, &listening));
    CHECK_OK(cenote_event_add_callback(pool, on_event, &events, NULL, NULL));
    done_by(&g, pool, stop_listening);
    done_by(&g, pool, drop_strategy);
    CHECK(listeners == 0 && strategies == 0);
    end_hosted(pool, &m);
    CHECK(listeners == 1 && strategies == 1);
}

static void a_loop_that_takes_no_more_does_not_keep_anything_from_being_disposed_of(void) {
    makers m;
    guest g = {0};
    int listeners = 0, strategies = 0;
    cenote_strategy strategy = {0};
    cenote_options options = hosted(&m, 0, 1);
    options.dispose = thing_dispose;
    strategy.size = sizeof strategy;
    strategy.data = &strategies;
    strategy.dispose = count_disposed;
    options.strategy = &strategy;
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_event_add_callback(pool, on_event, &listeners, count_disposed, NULL));
    turn_until_quiet();
    host.refuse = 1;
    done_by(&g, pool, unref_it);
    host.refuse = 0;
    CHECK(m.disposed == 1 && listeners == 1 && strategies == 1);
}

/* Listeners get the events of a pool that another thread ends before they are removed. */
static void the_end_of_a_pool_by_another_thread_is_reported(void) {
    makers m;
    guest g = {0};
    int events = 0;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_event_add_callback(pool, on_event, &events, event_dispose, NULL));
    done_by(&g, pool, unref_it);
    CHECK(events == 0);
    turn_until_quiet();
    /* It was closed, and it was drained. */
    CHECK(events == 1002 && m.disposed == 1);
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

int main(void) {
    printf("guests\n");
    begin_loop();
    RUN(whatever_other_threads_do_callbacks_run_on_the_hosts_thread);
    RUN(a_release_on_another_thread_serves_the_host);
    RUN(another_thread_waits_for_what_the_host_releases);
    RUN(another_threads_time_runs_out_even_if_the_loop_stands_still);
    RUN(a_loop_that_takes_no_more_loses_nothing);
    RUN(a_waiter_that_is_woken_for_a_loop_that_takes_no_more_passes_its_place_on);
    RUN(what_other_threads_give_back_to_a_loop_that_takes_no_more_is_destroyed_there);
    RUN(a_loop_that_takes_no_more_tells_twenty_thousand_waiters);
    RUN(what_another_thread_has_removed_is_disposed_of_though_the_pool_ends_first);
    RUN(a_loop_that_takes_no_more_does_not_keep_anything_from_being_disposed_of);
    RUN(the_end_of_a_pool_by_another_thread_is_reported);
    RUN(a_pool_may_be_made_on_another_thread_if_the_host_knows_its_own);
    end_loop();
    return 0;
}
