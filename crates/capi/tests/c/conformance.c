/*
 * The rows of the conformance list, part 1 (the pool), that make sense from C, by their IDs:
 * what a pool does while it is open. Time-outs, closing and the breaker are in endings.c.
 *
 * Not here, and why:
 *
 *   P-010a             min = -1 cannot be written: the option is unsigned
 *   P-011b             there is no generic count operation in C; cenote_pool_total is it
 *   P-012a, P-012b     tasks; the same by threads is P-003a, P-020, and async.c
 *   P-016a (type)      a resource is a void *; its identity is tested
 *   P-024, P-055c      tasks against the main flow: every thread is the same here
 *   P-048a .. P-049b   need a clock to be moved: host.c
 *   P-057              there is no unwinding in C
 *   P-060a .. P-061    waiters that are woken and have not run yet: async.c, host.c
 *   P-063a, P-063b     as above: host.c
 *   P-065b             as above: host.c
 *   P-053a, P-053b     cycles are the host's matter: cenote_pool_visit, in events.c
 *   P-056              callbacks do not wait in C, so nobody can sample inside one but
 *                      another thread: hammer.c samples
 */

#include "worker.h"

/* P-001 */
static void a_new_pool_is_empty_and_open(void) {
    makers m;
    cenote_options options = things(&m, 0, 10);
    cenote_pool *pool = pool_of(&options);
    check_counts(pool, 0, 0, 0);
    CHECK(cenote_pool_is_closed(pool) == 0);
    end(pool, &m);
}

/* P-002a, P-002b */
static void the_first_resources_are_made_before_the_pool_is_handed_out(void) {
    makers m;
    cenote_options options = things(&m, 3, 5);
    cenote_pool *pool = pool_of(&options);
    CHECK(m.created == 3);
    check_counts(pool, 3, 3, 0);
    end(pool, &m);
    CHECK(m.destroyed == 3);
}

/* P-003a, P-003b, P-019 */
static void try_acquire_creates_on_the_spot_and_gives_nothing_when_exhausted(void) {
    makers m;
    cenote_options options = things(&m, 0, 3);
    cenote_pool *pool = pool_of(&options);
    cenote_lease leases[3];
    for (int i = 0; i < 3; i++) {
        leases[i] = tried(pool);
        CHECK(cenote_pool_active(pool) == i + 1);
    }
    CHECK(try_gives_nothing(pool));
    CHECK(m.created == 3);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(cenote_release(pool, &leases[i]));
    }
    end(pool, &m);
}

/* P-004a, P-004b, P-020 */
static void what_is_released_is_idle_and_comes_again(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        cenote_lease lease = acquired(pool);
        CHECK(number_of(&lease) == 1);
        check_counts(pool, 1, 0, 1);
        CHECK_OK(cenote_release(pool, &lease));
        CHECK(lease.resource == NULL);
        check_counts(pool, 1, 1, 0);
    }
    CHECK(m.created == 1);
    end(pool, &m);
}

/* P-007a, P-007b, P-011a */
static void a_healthy_resource_is_destroyed_once_at_close(void) {
    makers m;
    cenote_options options = things(&m, 2, 5);
    cenote_pool *pool = pool_of(&options);
    CHECK(cenote_pool_total(pool) == 2);
    cenote_lease lease = acquired(pool);
    CHECK(m.created == 2 && cenote_pool_total(pool) == 2);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(m.destroyed == 0 && cenote_pool_total(pool) == 2);
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 2);
    end(pool, &m);
    CHECK(m.destroyed == 2);
}

/* P-016a, P-016b, P-026 */
static void the_oldest_idle_resource_is_handed_out_first(void) {
    makers m;
    cenote_options options = things(&m, 2, 2);
    cenote_pool *pool = pool_of(&options);
    cenote_lease first = tried(pool);
    CHECK(number_of(&first) == 1);
    check_counts(pool, 2, 1, 1);
    cenote_lease second = tried(pool);
    CHECK(number_of(&second) == 2);
    check_counts(pool, 2, 0, 2);
    CHECK(try_gives_nothing(pool));
    CHECK_OK(cenote_release(pool, &first));
    check_counts(pool, 2, 1, 1);
    first = tried(pool);
    CHECK(number_of(&first) == 1);
    CHECK_OK(cenote_release(pool, &first));
    CHECK_OK(cenote_release(pool, &second));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 2);
    end(pool, &m);
}

static int make_number(void *data, void **resource) {
    *resource = data;
    return 0;
}

/* P-023: a pointer, a number in a pointer's place, and NULL come out as they went in. */
static void any_value_is_a_resource_even_null(void) {
    void *values[] = {&values, (void *)(uintptr_t)7, NULL};
    for (int i = 0; i < 3; i++) {
        cenote_options options;
        CHECK_OK(cenote_options_init(&options, sizeof options));
        options.create = make_number;
        options.data = values[i];
        cenote_pool *pool = pool_of(&options);
        cenote_lease lease = acquired(pool);
        CHECK(lease.resource == values[i]);
        CHECK_OK(cenote_release(pool, &lease));
        CHECK_OK(cenote_pool_unref(pool));
    }
}

/* P-027 */
static void the_callbacks_are_called_in_order_each_once(void) {
    makers m;
    cenote_options options = things(&m, 1, 2);
    options.before_acquire = thing_before_acquire;
    options.before_release = thing_before_release;
    options.healthcheck = thing_check;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(strcmp(m.log, "card") == 0);
    end(pool, &m);
}

/* P-046 */
static void many_resources_come_back_together(void) {
    enum { MANY = 40 };
    makers m;
    cenote_options options = things(&m, 0, MANY);
    cenote_pool *pool = pool_of(&options);
    cenote_lease leases[MANY];
    for (int i = 0; i < MANY; i++) {
        leases[i] = acquired(pool);
        for (int j = 0; j < i; j++) {
            CHECK(leases[i].resource != leases[j].resource);
        }
    }
    check_counts(pool, MANY, 0, MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(cenote_release(pool, &leases[i]));
    }
    check_counts(pool, MANY, MANY, 0);
    cenote_lease lease = acquired(pool);
    CHECK(m.created == MANY);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-010b, P-010c, and the options of our own */
static void impossible_options_are_errors_that_name_them(void) {
    makers m;
    cenote_pool *pool = (cenote_pool *)&m;
    cenote_options options = things(&m, 0, 0);
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("max");
    CHECK(pool == NULL);
    options = things(&m, 10, 5);
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("min is 10");
    options = things(&m, 0, 5);
    options.lifetime_jitter = 1.5;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("lifetime_jitter");
    options = things(&m, 0, 5);
    options.order = 9;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("order is 9");
    options = things(&m, 0, 5);
    options.backoff_first_ms = 10;
    options.backoff_longest_ms = 5;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("backoff");
    options = things(&m, 0, 5);
    options.create = NULL;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("create is NULL");
    CHECK(m.created == 0 && m.disposed == 0);
}

/* P-017 */
static void the_factorys_own_error_reaches_the_caller(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    options.backoff_first_ms = 0;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease;
    m.fail_create = -1;
    CHECK(cenote_try_acquire(pool, &lease) == CENOTE_ERR_CREATE);
    CHECK(lease.resource == NULL);
    CHECK(cenote_last_error_code() == CENOTE_ERR_CREATE);
    CHECK(cenote_last_error_detail() == 42);
    CHECK_SAYS("no route to the thing");
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CREATE);
    CHECK(cenote_last_error_detail() == 42);
    m.fail_create = 0;
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-025, P-050 */
static void the_first_failure_ends_the_making_of_a_pool(void) {
    makers m;
    cenote_options options = things(&m, 5, 10);
    cenote_pool *pool;
    m.fail_create = 2;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CREATE);
    CHECK(cenote_last_error_detail() == 42);
    CHECK(pool == NULL);
    CHECK(m.created == 2);
    CHECK(m.destroyed == 1);
    CHECK(m.disposed == 0);
}

/* With min = 0, so that nobody refills in the background what a callback refuses. */
static cenote_pool *pool_with_one_idle(const cenote_options *options) {
    cenote_pool *pool = pool_of(options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    return pool;
}

/* P-008a, P-008b, P-008c, P-021a, P-021b */
static void a_resource_that_before_acquire_refuses_is_replaced_in_the_same_call(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    options.before_acquire = thing_before_acquire;
    cenote_pool *pool = pool_with_one_idle(&options);
    m.refuse_acquire = 1;
    cenote_lease lease = tried(pool);
    CHECK(number_of(&lease) == 2);
    CHECK(m.destroyed == 1);
    CHECK(m.acquiring == 1);
    CHECK_OK(cenote_release(pool, &lease));
    lease = acquired(pool);
    CHECK(number_of(&lease) == 2);
    CHECK(m.acquiring == 2);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-009a, P-009b, P-022, P-067 */
static void a_resource_that_before_release_refuses_is_destroyed_inside_release(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    options.before_release = thing_before_release;
    cenote_pool *pool = pool_of(&options);
    m.refuse_release = 1;
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(strcmp(m.log, "crd") == 0);
    check_counts(pool, 0, 0, 0);
    end(pool, &m);
}

/* P-051, as decided: acquire goes on with the next; the error goes to the events. */
static void a_destructor_that_fails_does_not_stop_an_acquire(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    options.before_acquire = thing_before_acquire;
    cenote_pool *pool = pool_with_one_idle(&options);
    m.refuse_acquire = 1;
    m.fail_destroy = 1;
    cenote_lease lease = acquired(pool);
    CHECK(number_of(&lease) == 2);
    m.fail_destroy = 0;
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-029, P-034 */
static void an_acquire_waits_until_a_release(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    worker w;
    start(&w, pool, CENOTE_FOREVER);
    UNTIL(cenote_pool_waiting(pool) == 1);
    CHECK(!w.done);
    CHECK_OK(cenote_release(pool, &lease));
    join(&w);
    CHECK(w.code == CENOTE_OK && number_of(&w.lease) == 1);
    CHECK(cenote_pool_total(pool) == 1);
    CHECK_OK(cenote_release(pool, &w.lease));
    end(pool, &m);
}

/* P-030, P-035, P-059: queued one by one, served in that order. */
static void waiters_are_all_served_in_order(void) {
    enum { MANY = 6 };
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    worker w[MANY];
    for (int i = 0; i < MANY; i++) {
        start(&w[i], pool, CENOTE_FOREVER);
        UNTIL(cenote_pool_waiting(pool) == i + 1);
    }
    CHECK_OK(cenote_release(pool, &lease));
    for (int i = 0; i < MANY; i++) {
        join(&w[i]);
        CHECK(w[i].code == CENOTE_OK && number_of(&w[i].lease) == 1);
        for (int j = i + 1; j < MANY; j++) {
            CHECK(!w[j].done);
        }
        CHECK_OK(cenote_release(pool, &w[i].lease));
    }
    CHECK(m.created == 1);
    end(pool, &m);
}

/* P-058: a thread that releases and acquires at once is queued behind the waiter. */
static void a_release_does_not_barge(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    worker w;
    start(&w, pool, CENOTE_FOREVER);
    UNTIL(cenote_pool_waiting(pool) == 1);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(try_gives_nothing(pool));
    join(&w);
    CHECK(w.code == CENOTE_OK);
    CHECK_OK(cenote_release(pool, &w.lease));
    end(pool, &m);
}

/* P-054a, and the same for cenote_discard */
static void a_broken_resource_makes_room_for_one_who_waits(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    options.before_release = thing_before_release;
    cenote_pool *pool = pool_of(&options);
    for (int round = 0; round < 2; round++) {
        cenote_lease lease = acquired(pool);
        worker w;
        start(&w, pool, CENOTE_FOREVER);
        UNTIL(cenote_pool_waiting(pool) == 1);
        if (round == 0) {
            m.refuse_release = 1;
            CHECK_OK(cenote_release(pool, &lease));
        } else {
            CHECK_OK(cenote_discard(pool, &lease));
        }
        join(&w);
        CHECK(w.code == CENOTE_OK && number_of(&w.lease) == round + 2);
        CHECK_OK(cenote_release(pool, &w.lease));
    }
    CHECK(m.destroyed == 2);
    end(pool, &m);
}

/* A factory that is slow: it is done when the gate is open. */
static atomic_int gate;

static int create_at_the_gate(void *data, void **resource) {
    int code = thing_create(data, resource);
    UNTIL(atomic_load(&gate));
    return code;
}

static void *acquire_and_release(void *arg) {
    worker *w = arg;
    w->code = cenote_acquire(w->pool, CENOTE_FOREVER, &w->lease);
    CHECK(w->code == CENOTE_OK);
    CHECK_OK(cenote_release(w->pool, &w->lease));
    return NULL;
}

/* P-024x */
static void slow_creations_never_exceed_the_maximum(void) {
    enum { MANY = 10, MAX = 3 };
    makers m;
    worker w[MANY];
    cenote_options options = things(&m, 0, MAX);
    options.create = create_at_the_gate;
    cenote_pool *pool = pool_of(&options);
    atomic_store(&gate, 0);
    for (int i = 0; i < MANY; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].pool = pool;
        CHECK(pthread_create(&w[i].thread, NULL, acquire_and_release, &w[i]) == 0);
    }
    UNTIL(cenote_pool_waiting(pool) == MANY && m.created == MAX);
    CHECK(cenote_pool_total(pool) == MAX);
    CHECK(try_gives_nothing(pool));
    atomic_store(&gate, 1);
    for (int i = 0; i < MANY; i++) {
        join(&w[i]);
    }
    CHECK(m.created == MAX);
    check_counts(pool, MAX, MAX, 0);
    end(pool, &m);
}

int main(void) {
    printf("conformance\n");
    RUN(a_new_pool_is_empty_and_open);
    RUN(the_first_resources_are_made_before_the_pool_is_handed_out);
    RUN(try_acquire_creates_on_the_spot_and_gives_nothing_when_exhausted);
    RUN(what_is_released_is_idle_and_comes_again);
    RUN(a_healthy_resource_is_destroyed_once_at_close);
    RUN(the_oldest_idle_resource_is_handed_out_first);
    RUN(any_value_is_a_resource_even_null);
    RUN(the_callbacks_are_called_in_order_each_once);
    RUN(many_resources_come_back_together);
    RUN(impossible_options_are_errors_that_name_them);
    RUN(the_factorys_own_error_reaches_the_caller);
    RUN(the_first_failure_ends_the_making_of_a_pool);
    RUN(a_resource_that_before_acquire_refuses_is_replaced_in_the_same_call);
    RUN(a_resource_that_before_release_refuses_is_destroyed_inside_release);
    RUN(a_destructor_that_fails_does_not_stop_an_acquire);
    RUN(an_acquire_waits_until_a_release);
    RUN(waiters_are_all_served_in_order);
    RUN(a_release_does_not_barge);
    RUN(a_broken_resource_makes_room_for_one_who_waits);
    RUN(slow_creations_never_exceed_the_maximum);
    return 0;
}
