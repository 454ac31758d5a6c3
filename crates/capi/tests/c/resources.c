/*
 * What callbacks are told of a resource, and what a pool does with resources on demand.
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
    CHECK_SAYS("no callback");
    CHECK(cenote_resource_info(NULL) == CENOTE_ERR_ARGUMENT);
}

int main(void) {
    printf("resources\n");
    RUN(callbacks_learn_age_and_uses);
    RUN(a_resource_is_refused_after_so_many_uses);
    RUN(outside_of_a_callback_there_is_nothing_to_learn);
    return 0;
}
