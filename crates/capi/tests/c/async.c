/*
 * Acquires that call back, on the library's background thread.
 */

#include "check.h"

/* The arguments of a callback. */
typedef struct result {
    atomic_int calls;
    atomic_int code;
    cenote_lease lease;
    pthread_t thread;
    char text[128];
} result;

static void on_done(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    result *r = data;
    CHECK(pool != NULL);
    CHECK((lease != NULL) == (code == CENOTE_OK));
    if (lease != NULL) {
        r->lease = *lease;
    } else {
        CHECK(cenote_last_error_code() == code);
        snprintf(r->text, sizeof r->text, "%s", cenote_last_error_text());
    }
    r->thread = pthread_self();
    atomic_store(&r->code, code);
    atomic_fetch_add(&r->calls, 1);
}

static void ask(cenote_pool *pool, int64_t timeout_ms, result *r, uint64_t *waiter) {
    memset(r, 0, sizeof *r);
    CHECK_OK(cenote_acquire_async(pool, timeout_ms, on_done, r, waiter));
}

static void check_done(result *r, int code) {
    UNTIL(atomic_load(&r->calls) > 0);
    CHECK(atomic_load(&r->calls) == 1);
    CHECK(atomic_load(&r->code) == code);
    CHECK(!pthread_equal(r->thread, pthread_self()));
}

/* P-012a, P-012b: creation, too, happens on the background thread. */
static pthread_t creator;

static int create_noting_thread(void *data, void **resource) {
    creator = pthread_self();
    return thing_create(data, resource);
}

static void an_async_acquire_creates_and_calls_back_on_the_background_thread(void) {
    makers m;
    result r;
    cenote_options options = things(&m, 0, 2);
    options.create = create_noting_thread;
    options.before_acquire = thing_before_acquire;
    cenote_pool *pool = pool_of(&options);
    for (int round = 0; round < 2; round++) {
        ask(pool, CENOTE_FOREVER, &r, NULL);
        check_done(&r, CENOTE_OK);
        CHECK(number_of(&r.lease) == 1);
        CHECK(pthread_equal(creator, r.thread));
        CHECK(m.acquiring == round);
        CHECK_OK(cenote_release(pool, &r.lease));
    }
    check_counts(pool, 1, 1, 0);
    end(pool, &m);
}

static void async_waiters_and_threads_share_one_queue_in_order(void) {
    enum { MANY = 5 };
    makers m;
    result r[MANY];
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    for (int i = 0; i < MANY; i++) {
        ask(pool, CENOTE_FOREVER, &r[i], NULL);
        /* The place in the queue is taken inside the call. */
        CHECK(cenote_pool_waiting(pool) == i + 1);
    }
    CHECK_OK(cenote_release(pool, &lease));
    for (int i = 0; i < MANY; i++) {
        check_done(&r[i], CENOTE_OK);
        for (int j = i + 1; j < MANY; j++) {
            CHECK(r[j].calls == 0);
        }
        CHECK_OK(cenote_release(pool, &r[i].lease));
    }
    end(pool, &m);
}

/* P-060a, P-060b */
static void a_cancelled_waiter_hands_its_place_on(void) {
    makers m;
    result first, second;
    uint64_t one, two;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &first, &one);
    ask(pool, CENOTE_FOREVER, &second, &two);
    CHECK(one != two && one != 0 && two != 0);
    CHECK(cenote_pool_waiting(pool) == 2);
    CHECK_OK(cenote_waiter_cancel(pool, one));
    check_done(&first, CENOTE_ERR_CANCELLED);
    CHECK(cenote_pool_waiting(pool) == 1);
    CHECK(strstr(first.text, "cancelled") != NULL);
    CHECK(cenote_waiter_cancel(pool, one) == CENOTE_ERR_NOT_WAITING);
    CHECK_OK(cenote_release(pool, &lease));
    check_done(&second, CENOTE_OK);
    CHECK(cenote_waiter_cancel(pool, two) == CENOTE_ERR_NOT_WAITING);
    CHECK(cenote_waiter_cancel(pool, 999) == CENOTE_ERR_NOT_WAITING);
    CHECK_OK(cenote_release(pool, &second.lease));
    check_counts(pool, 1, 1, 0);
    end(pool, &m);
}

static void time_runs_out_for_an_async_waiter(void) {
    makers m;
    result r;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, 5, &r, NULL);
    check_done(&r, CENOTE_ERR_TIMEOUT);
    CHECK(strstr(r.text, "timed out") != NULL);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* Nothing is asked of the queue, and what is idle is not lost by that. */
static void without_any_time_it_gets_what_is_to_be_had(void) {
    makers m;
    result r;
    cenote_options options = things(&m, 0, 1);
    options.before_acquire = thing_before_acquire;
    cenote_pool *pool = pool_of(&options);
    for (int round = 0; round < 3; round++) {
        ask(pool, 0, &r, NULL);
        check_done(&r, CENOTE_OK);
        CHECK(number_of(&r.lease) == 1 && m.acquiring == round);
        result none;
        ask(pool, 0, &none, NULL);
        check_done(&none, CENOTE_ERR_TIMEOUT);
        CHECK(strstr(none.text, "without waiting") != NULL);
        CHECK_OK(cenote_release(pool, &r.lease));
    }
    CHECK(m.destroyed == 0);
    end(pool, &m);
}

static void a_creation_that_fails_is_told_to_its_waiter(void) {
    makers m;
    result r;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    m.fail_create = -1;
    ask(pool, CENOTE_FOREVER, &r, NULL);
    check_done(&r, CENOTE_ERR_CREATE);
    CHECK(strstr(r.text, "no route to the thing") != NULL);
    end(pool, &m);
}

static void closing_and_the_last_reference_call_back_once(void) {
    for (int by_unref = 0; by_unref < 2; by_unref++) {
        makers m;
        result r[3];
        cenote_options options = things(&m, 0, 1);
        cenote_pool *pool = pool_of(&options);
        cenote_lease lease = acquired(pool);
        for (int i = 0; i < 3; i++) {
            ask(pool, CENOTE_FOREVER, &r[i], NULL);
        }
        CHECK_OK(by_unref ? cenote_pool_unref(pool) : cenote_pool_close(pool));
        for (int i = 0; i < 3; i++) {
            check_done(&r[i], CENOTE_ERR_CLOSED);
        }
        CHECK_OK(cenote_release(pool, &lease));
        if (!by_unref) {
            CHECK_OK(cenote_pool_unref(pool));
        }
        UNTIL(m.disposed == 1);
        CHECK(m.destroyed == 1);
    }
}

static void an_async_acquire_of_a_closed_pool_calls_back_too(void) {
    makers m;
    result r;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_pool_close(pool));
    ask(pool, CENOTE_FOREVER, &r, NULL);
    check_done(&r, CENOTE_ERR_CLOSED);
    end(pool, &m);
}

/* A callback that uses the pool: releases, and asks again for itself. */
typedef struct chain {
    atomic_int left;
    atomic_int ended;
} chain;

static void go_on(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    chain *c = data;
    cenote_lease copy, none;
    CHECK(code == CENOTE_OK);
    copy = *lease;
    /* Waiting here would stop the thread that the release comes from. */
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_WOULD_BLOCK);
    CHECK_SAYS("cenote_acquire_async");
    CHECK_OK(cenote_release(pool, &copy));
    if (atomic_fetch_sub(&c->left, 1) > 1) {
        CHECK_OK(cenote_acquire_async(pool, CENOTE_FOREVER, go_on, data, NULL));
    } else {
        atomic_store(&c->ended, 1);
    }
}

static void a_callback_may_use_the_pool_but_not_block_its_thread(void) {
    makers m;
    chain c;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    atomic_init(&c.left, 100);
    atomic_init(&c.ended, 0);
    CHECK_OK(cenote_acquire_async(pool, CENOTE_FOREVER, go_on, &c, NULL));
    UNTIL(atomic_load(&c.ended));
    CHECK(m.created == 1);
    end(pool, &m);
}

/* A strategy that uses another pool, whose callbacks have to run on this thread then. */
typedef struct advisor {
    cenote_pool *other;
    pthread_t asker;
    int used;
} advisor;

static int open_at_once(void *data, cenote_pool *pool, uint32_t state, const char *why) {
    (void)data;
    (void)pool;
    (void)state;
    (void)why;
    return 1;
}

static int use_another_pool(void *data, cenote_pool *pool) {
    advisor *a = data;
    (void)pool;
    if (pthread_equal(pthread_self(), a->asker)) {
        cenote_lease lease = acquired(a->other);
        CHECK_OK(cenote_release(a->other, &lease));
        lease = acquired(a->other);
        CHECK_OK(cenote_release(a->other, &lease));
        a->used = 1;
    }
    return 0;
}

static void a_strategy_may_use_another_pool_inside_an_async_acquire(void) {
    makers m, n;
    result r;
    advisor a = {NULL, pthread_self(), 0};
    cenote_strategy strategy = {0};
    cenote_options others = things(&n, 0, 1);
    cenote_options options = things(&m, 0, 1);
    others.before_acquire = thing_before_acquire;
    a.other = pool_of(&others);
    strategy.size = sizeof strategy;
    strategy.data = &a;
    strategy.report_failure = open_at_once;
    strategy.should_recover = use_another_pool;
    strategy.cool_down_ms = 1;
    options.strategy = &strategy;
    cenote_pool *pool = pool_of(&options);
    cenote_lease none;
    m.fail_create = -1;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_CREATE);
    /* The first acquire after each cool-down is the probe: sooner or later that of this thread. */
    for (int patience = 100000; !a.used; patience--) {
        CHECK(patience > 0);
        ask(pool, CENOTE_FOREVER, &r, NULL);
        check_done(&r, CENOTE_ERR_UNAVAILABLE);
    }
    CHECK(n.acquiring >= 1);
    end(pool, &m);
    end(a.other, &n);
}

/* Cancels race with releases: either way, each callback is called once and nothing is lost. */
static void cancels_that_race_with_releases_lose_nothing(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    int served = 0;
    for (int i = 0; i < 300; i++) {
        result first, second;
        uint64_t waiter;
        cenote_lease lease = acquired(pool);
        ask(pool, CENOTE_FOREVER, &first, &waiter);
        ask(pool, CENOTE_FOREVER, &second, NULL);
        CHECK_OK(cenote_release(pool, &lease));
        int code = cenote_waiter_cancel(pool, waiter);
        CHECK(code == CENOTE_OK || code == CENOTE_ERR_NOT_WAITING);
        UNTIL(first.calls > 0);
        if (code == CENOTE_OK) {
            CHECK(first.code == CENOTE_ERR_CANCELLED);
        } else {
            CHECK(first.code == CENOTE_OK);
            served++;
            CHECK_OK(cenote_release(pool, &first.lease));
        }
        check_done(&second, CENOTE_OK);
        CHECK_OK(cenote_release(pool, &second.lease));
        CHECK(first.calls == 1);
    }
    printf("    %d of 300 were served before the cancel\n", served);
    check_counts(pool, 1, 1, 0);
    end(pool, &m);
    CHECK(m.created == m.destroyed);
}

int main(void) {
    printf("async\n");
    RUN(an_async_acquire_creates_and_calls_back_on_the_background_thread);
    RUN(async_waiters_and_threads_share_one_queue_in_order);
    RUN(a_cancelled_waiter_hands_its_place_on);
    RUN(time_runs_out_for_an_async_waiter);
    RUN(without_any_time_it_gets_what_is_to_be_had);
    RUN(a_creation_that_fails_is_told_to_its_waiter);
    RUN(closing_and_the_last_reference_call_back_once);
    RUN(an_async_acquire_of_a_closed_pool_calls_back_too);
    RUN(a_callback_may_use_the_pool_but_not_block_its_thread);
    RUN(a_strategy_may_use_another_pool_inside_an_async_acquire);
    RUN(cancels_that_race_with_releases_lose_nothing);
    return 0;
}
