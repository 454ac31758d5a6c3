/*
 * The last reference, given up at the worst of times: by a callback inside of a call, and by
 * another thread during one. The pool closes at once, and nothing of it is used after its end.
 */

#include "worker.h"

/* Where a callback gives up the last reference of its own pool. */
typedef enum place { NOWHERE, CREATE, ACQUIRE, RELEASE, DESTROY, HEALTH, EVENT, GOODBYE, VISIT } place;

static cenote_pool *own;
static atomic_int where;

static void leave(place here) {
    int expected = here;
    if (atomic_compare_exchange_strong(&where, &expected, NOWHERE)) {
        CHECK_OK(cenote_pool_unref(own));
        CHECK(cenote_pool_total(own) == CENOTE_ERR_CLOSED);
    }
}

static int create(void *data, void **resource) {
    leave(CREATE);
    return thing_create(data, resource);
}

static int destroy(void *data, void *resource) {
    leave(DESTROY);
    return thing_destroy(data, resource);
}

static int before_acquire(void *data, void *resource) {
    leave(ACQUIRE);
    return thing_before_acquire(data, resource);
}

static int before_release(void *data, void *resource) {
    leave(RELEASE);
    return thing_before_release(data, resource);
}

static int healthcheck(void *data, void *resource) {
    leave(HEALTH);
    return thing_check(data, resource);
}

static void on_event(void *data, cenote_pool *pool, const cenote_event *event) {
    (void)data;
    (void)event;
    CHECK(pool == own);
    leave(EVENT);
}

static void goodbye(void *data) {
    (void)data;
    leave(GOODBYE);
}

static void visit(void *data, void *resource) {
    (void)data;
    (void)resource;
    leave(VISIT);
}

static cenote_pool *leaving(makers *m) {
    cenote_options options = things(m, 0, 2);
    options.create = create;
    options.destroy = destroy;
    options.before_acquire = before_acquire;
    options.before_release = before_release;
    atomic_store(&where, NOWHERE);
    own = pool_of(&options);
    return own;
}

static void check_gone(const makers *m) {
    UNTIL(m->disposed == 1);
    CHECK(m->created == m->destroyed);
    CHECK(cenote_pool_total(own) == CENOTE_ERR_HANDLE);
}

static void a_callback_of_an_acquire_may_give_up_the_last_reference(void) {
    for (int here = CREATE; here <= ACQUIRE; here++) {
        makers m;
        cenote_lease lease;
        cenote_pool *pool = leaving(&m);
        if (here == ACQUIRE) {
            lease = acquired(pool);
            CHECK_OK(cenote_release(pool, &lease));
        }
        atomic_store(&where, here);
        int code = cenote_acquire(pool, CENOTE_FOREVER, &lease);
        CHECK(code == CENOTE_OK || code == CENOTE_ERR_CLOSED);
        CHECK((lease.resource != NULL) == (code == CENOTE_OK));
        if (code == CENOTE_OK) {
            CHECK(m.disposed == 0);
            CHECK_OK(cenote_release(pool, &lease));
        }
        check_gone(&m);
    }
}

static void a_callback_of_a_release_a_discard_or_a_close_may_give_it_up(void) {
    for (int what = 0; what < 3; what++) {
        makers m;
        cenote_pool *pool = leaving(&m);
        cenote_lease lease = acquired(pool);
        if (what == 2) {
            CHECK_OK(cenote_release(pool, &lease));
        }
        atomic_store(&where, what == 0 ? RELEASE : DESTROY);
        CHECK_OK(what == 0   ? cenote_release(pool, &lease)
                 : what == 1 ? cenote_discard(pool, &lease)
                             : cenote_pool_close(pool));
        check_gone(&m);
    }
}

static void an_event_a_goodbye_or_a_visit_may_give_it_up(void) {
    makers m;
    uint64_t id;
    cenote_lease lease;
    cenote_pool *pool = leaving(&m);
    CHECK_OK(cenote_event_add_callback(pool, on_event, NULL, goodbye, NULL));
    atomic_store(&where, EVENT);
    int code = cenote_acquire(pool, CENOTE_FOREVER, &lease);
    if (code == CENOTE_OK) {
        CHECK_OK(cenote_release(pool, &lease));
    }
    check_gone(&m);
    pool = leaving(&m);
    CHECK_OK(cenote_event_add_callback(pool, on_event, NULL, goodbye, &id));
    atomic_store(&where, GOODBYE);
    CHECK_OK(cenote_event_del_callback(pool, id));
    check_gone(&m);
    pool = leaving(&m);
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    atomic_store(&where, VISIT);
    CHECK(cenote_pool_visit(pool, visit, NULL) == 1);
    check_gone(&m);
}

static void a_goodbye_of_a_strategy_may_give_it_up(void) {
    makers m;
    cenote_strategy strategy = {0};
    cenote_pool *pool = leaving(&m);
    strategy.size = sizeof strategy;
    strategy.dispose = goodbye;
    CHECK_OK(cenote_breaker_set_strategy(pool, &strategy));
    atomic_store(&where, GOODBYE);
    CHECK_OK(cenote_breaker_set_strategy(pool, NULL));
    check_gone(&m);
}

static void a_health_check_may_give_it_up(void) {
    makers m;
    cenote_options options = things(&m, 1, 1);
    options.healthcheck = healthcheck;
    options.healthcheck_interval_ms = 1;
    atomic_store(&where, NOWHERE);
    own = pool_of(&options);
    atomic_store(&where, HEALTH);
    check_gone(&m);
}

/* A callback that uses its pool until a call refuses. */
typedef struct chain {
    atomic_int calls;
    atomic_int ended;
} chain;

static void go_on(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    chain *c = data;
    atomic_fetch_add(&c->calls, 1);
    if (code == CENOTE_OK) {
        cenote_lease mine = *lease;
        int idle = cenote_pool_idle(pool);
        CHECK(idle >= 0 || idle == CENOTE_ERR_CLOSED);
        CHECK_OK(cenote_release(pool, &mine));
        code = cenote_acquire_async(pool, CENOTE_FOREVER, go_on, data, NULL);
    }
    if (code != CENOTE_OK) {
        CHECK(code == CENOTE_ERR_CLOSED || code == CENOTE_ERR_HANDLE);
        atomic_store(&c->ended, 1);
    }
}

static void the_last_reference_goes_while_callbacks_use_the_pool(void) {
    for (int round = 0; round < 100; round++) {
        makers m;
        chain c;
        cenote_options options = things(&m, 1, 2);
        cenote_pool *pool = pool_of(&options);
        atomic_init(&c.calls, 0);
        atomic_init(&c.ended, 0);
        CHECK_OK(cenote_acquire_async(pool, CENOTE_FOREVER, go_on, &c, NULL));
        UNTIL(atomic_load(&c.calls) > round % 10);
        CHECK_OK(cenote_pool_unref(pool));
        UNTIL(atomic_load(&c.ended));
        UNTIL(m.disposed == 1);
        CHECK(m.created == m.destroyed);
    }
}

static void the_last_reference_goes_while_threads_wait(void) {
    for (int round = 0; round < 20; round++) {
        makers m;
        worker w[3];
        cenote_options options = things(&m, 0, 1);
        cenote_pool *pool = pool_of(&options);
        cenote_lease lease = acquired(pool);
        for (int i = 0; i < 3; i++) {
            start(&w[i], pool, CENOTE_FOREVER);
        }
        UNTIL(cenote_pool_waiting(pool) == 3);
        CHECK_OK(cenote_pool_unref(pool));
        for (int i = 0; i < 3; i++) {
            join(&w[i]);
            CHECK(w[i].code == CENOTE_ERR_CLOSED);
        }
        CHECK_OK(cenote_release(pool, &lease));
        UNTIL(m.disposed == 1);
    }
}

/* A thread that uses a pool which has ended: it gets an error, and nothing breaks. */
static atomic_int rounds;

static void *use_until_refused(void *arg) {
    cenote_pool *pool = arg;
    for (;;) {
        cenote_lease lease;
        int code = cenote_acquire(pool, 1000, &lease);
        if (code != CENOTE_OK) {
            CHECK(code == CENOTE_ERR_CLOSED || code == CENOTE_ERR_HANDLE);
            return NULL;
        }
        atomic_fetch_add(&rounds, 1);
        CHECK_OK(cenote_release(pool, &lease));
    }
}

static void the_last_reference_goes_while_threads_acquire(void) {
    for (int round = 0; round < 50; round++) {
        makers m;
        pthread_t threads[2];
        cenote_options options = things(&m, 0, 2);
        cenote_pool *pool = pool_of(&options);
        atomic_store(&rounds, 0);
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, use_until_refused, pool) == 0);
        }
        UNTIL(atomic_load(&rounds) > 20);
        CHECK_OK(cenote_pool_unref(pool));
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        UNTIL(m.disposed == 1);
        CHECK(m.created == m.destroyed);
    }
}

int main(void) {
    printf("reentry\n");
    RUN(a_callback_of_an_acquire_may_give_up_the_last_reference);
    RUN(a_callback_of_a_release_a_discard_or_a_close_may_give_it_up);
    RUN(an_event_a_goodbye_or_a_visit_may_give_it_up);
    RUN(a_goodbye_of_a_strategy_may_give_it_up);
    RUN(a_health_check_may_give_it_up);
    RUN(the_last_reference_goes_while_callbacks_use_the_pool);
    RUN(the_last_reference_goes_while_threads_wait);
    RUN(the_last_reference_goes_while_threads_acquire);
    return 0;
}
