/*
 * What callbacks can ask about a resource, and what a pool does with resources on demand.
 */

#include "worker.h"

/* What the callbacks below found. */
typedef struct findings {
    makers m;
    atomic_int retire_after;
    atomic_int uses_at_acquire, uses_at_release, uses_at_destroy;
} findings;

static uint64_t uses(void) {
    cenote_info info = {0};
    info.size = sizeof info;
    CHECK_OK(cenote_resource_info(&info));
    CHECK(info.age_ms < 60000);
    return info.uses;
}

static int look_before_acquire(void *data, void *resource) {
    findings *f = data;
    (void)resource;
    atomic_store(&f->uses_at_acquire, (int)uses());
    return 0;
}

static int look_before_release(void *data, void *resource) {
    findings *f = data;
    (void)resource;
    atomic_store(&f->uses_at_release, (int)uses());
    int limit = atomic_load(&f->retire_after);
    return limit > 0 && uses() >= (uint64_t)limit;
}

static int look_and_destroy(void *data, void *resource) {
    findings *f = data;
    atomic_store(&f->uses_at_destroy, (int)uses());
    return thing_destroy(data, resource);
}

static cenote_options looking(findings *f, size_t max) {
    memset(f, 0, sizeof *f);
    cenote_options options = things(&f->m, 0, max);
    options.before_acquire = look_before_acquire;
    options.before_release = look_before_release;
    options.destroy = look_and_destroy;
    return options;
}

static void callbacks_learn_age_and_uses(void) {
    findings f;
    cenote_options options = looking(&f, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(f.uses_at_release == 1);
    for (int i = 1; i < 5; i++) {
        lease = acquired(pool);
        CHECK(f.uses_at_acquire == i);
        CHECK_OK(cenote_release(pool, &lease));
        CHECK(f.uses_at_release == i + 1);
    }
    /* The next one begins anew. */
    lease = acquired(pool);
    CHECK_OK(cenote_discard(pool, &lease));
    CHECK(f.uses_at_destroy == 6);
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(f.uses_at_release == 1);
    end(pool, &f.m);
}

static void a_resource_is_refused_after_so_many_uses(void) {
    findings f;
    cenote_options options = looking(&f, 1);
    cenote_pool *pool = pool_of(&options);
    f.retire_after = 3;
    for (int i = 0; i < 7; i++) {
        cenote_lease lease = acquired(pool);
        CHECK(number_of(&lease) == i / 3 + 1);
        CHECK_OK(cenote_release(pool, &lease));
    }
    end(pool, &f.m);
}

static void outside_of_a_callback_there_is_nothing_to_learn(void) {
    cenote_info info = {0};
    info.size = sizeof info;
    CHECK(cenote_resource_info(&info) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("no resource callback");
    CHECK(cenote_resource_info(NULL) == CENOTE_ERR_ARGUMENT);
}

/* Keeps what has an odd number. */
static int keep_odd(void *data, void *resource) {
    (void)data;
    CHECK(uses() <= 1);
    return ((thing *)resource)->number % 2;
}

static void a_pool_evicts_what_its_user_does_not_want(void) {
    makers m, marks;
    cenote_options options = things(&m, 0, 4);
    cenote_pool *pool = pool_of(&options);
    cenote_lease leases[4];
    memset(&marks, 0, sizeof marks);
    for (int i = 0; i < 4; i++) {
        leases[i] = acquired(pool);
    }
    CHECK_OK(cenote_release(pool, &leases[0]));
    CHECK_OK(cenote_release(pool, &leases[1]));
    CHECK(cenote_pool_retain(pool, NULL, NULL, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK_OK(cenote_pool_retain(pool, keep_odd, &marks, thing_dispose));
    /* The idle ones at once, the others when they come back. */
    CHECK(m.destroyed == 1 && m.order[0] == 2 && marks.disposed == 0);
    CHECK_OK(cenote_release(pool, &leases[3]));
    CHECK(m.destroyed == 2 && m.order[1] == 4);
    CHECK_OK(cenote_release(pool, &leases[2]));
    CHECK(m.destroyed == 2 && marks.disposed == 1);
    end(pool, &m);
}

static void the_minimum_changes(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    cenote_pool *pool = pool_of(&options);
    CHECK(cenote_pool_set_min(pool, 3) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("min");
    CHECK_OK(cenote_pool_set_min(pool, 2));
    UNTIL(cenote_pool_idle(pool) == 2);
    CHECK(cenote_pool_resize(pool, 1) == CENOTE_ERR_CONFIG);
    CHECK_OK(cenote_pool_set_min(pool, 0));
    CHECK_OK(cenote_pool_resize(pool, 1));
    end(pool, &m);
}

static void no_more_wait_than_may(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    options.max_waiting = 1;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool), none;
    worker w;
    start(&w, pool, CENOTE_FOREVER);
    UNTIL(cenote_pool_waiting(pool) == 1);
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_QUEUE_FULL);
    CHECK_SAYS("max_waiting is 1");
    CHECK_OK(cenote_release(pool, &lease));
    join(&w);
    CHECK_OK(w.code);
    CHECK_OK(cenote_release(pool, &w.lease));
    end(pool, &m);
}

static atomic_int tries;

static int fails_twice(void *data, void **resource) {
    return atomic_fetch_add(&tries, 1) < 2 ? 5 : thing_create(data, resource);
}

static int is_5_permanent(void *data, int code) {
    (void)data;
    return code == 5;
}

static void a_failed_creation_is_tried_again(void) {
    for (int permanent = 0; permanent < 2; permanent++) {
        makers m;
        cenote_options options = things(&m, 0, 1);
        options.create = fails_twice;
        options.backoff_first_ms = 1;
        options.retry_creations = 1;
        options.is_permanent = permanent ? is_5_permanent : NULL;
        cenote_pool *pool = pool_of(&options);
        cenote_lease lease;
        atomic_store(&tries, 0);
        if (permanent) {
            CHECK(cenote_acquire(pool, 60000, &lease) == CENOTE_ERR_CREATE);
            CHECK(cenote_last_error_detail() == 5 && tries == 1);
        } else {
            CHECK_OK(cenote_acquire(pool, 60000, &lease));
            CHECK(tries == 3);
            CHECK_OK(cenote_release(pool, &lease));
        }
        end(pool, &m);
    }
}

static void the_new_options_are_checked(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = NULL;
    options.retry_creations = 2;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_CONFIG);
    CHECK_SAYS("retry_creations is 2");
}

int main(void) {
    printf("resources\n");
    RUN(callbacks_learn_age_and_uses);
    RUN(a_resource_is_refused_after_so_many_uses);
    RUN(outside_of_a_callback_there_is_nothing_to_learn);
    RUN(a_pool_evicts_what_its_user_does_not_want);
    RUN(the_minimum_changes);
    RUN(no_more_wait_than_may);
    RUN(a_failed_creation_is_tried_again);
    RUN(the_new_options_are_checked);
    return 0;
}
