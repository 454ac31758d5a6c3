/*
 * Handles and leases that are not what they should be: error codes, not undefined behaviour.
 */

#include "check.h"

/* Every function that takes a pool says so. */
static void check_no_pool(cenote_pool *pool) {
    cenote_lease lease;
    cenote_status status = {0};
    status.size = sizeof status;
    cenote_lease some = {0};
    CHECK(cenote_acquire(pool, 0, &lease) == CENOTE_ERR_HANDLE);
    CHECK(lease.resource == NULL);
    CHECK(cenote_try_acquire(pool, &lease) == CENOTE_ERR_HANDLE);
    CHECK(cenote_release(pool, &some) == CENOTE_ERR_HANDLE);
    CHECK(cenote_discard(pool, &some) == CENOTE_ERR_HANDLE);
    CHECK(cenote_waiter_cancel(pool, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_ref(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_unref(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_close(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_close_and_drain(pool, 0) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_resize(pool, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_replace_all(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_set_min(pool, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_status(pool, &status) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_total(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_idle(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_active(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_waiting(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_pool_is_closed(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_state(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_activate(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_deactivate(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_recover(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_set_strategy(pool, NULL) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_open_after(pool, 1, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_breaker_open_at_rate(pool, 1.0, 1, 1, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_event_del_callback(pool, 1) == CENOTE_ERR_HANDLE);
    CHECK(cenote_event_start(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_event_stop(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_event_dispose(pool) == CENOTE_ERR_HANDLE);
    CHECK(cenote_last_error_code() == CENOTE_ERR_HANDLE);
}

static void null_is_no_pool(void) {
    check_no_pool(NULL);
    CHECK_SAYS("NULL");
}

static void an_address_is_no_pool(void) {
    int local = 0;
    char *heap = malloc(64);
    check_no_pool((cenote_pool *)&local);
    check_no_pool((cenote_pool *)heap);
    check_no_pool((cenote_pool *)(uintptr_t)1);
    check_no_pool((cenote_pool *)(uintptr_t)16);
    check_no_pool((cenote_pool *)UINTPTR_MAX);
    CHECK_SAYS("cenote_pool_new never created it");
    free(heap);
}

static void a_handle_that_is_a_little_off_is_no_pool(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    uintptr_t handle = (uintptr_t)pool;
    for (unsigned bit = 0; bit < sizeof handle * 8; bit++) {
        check_no_pool((cenote_pool *)(handle ^ ((uintptr_t)1 << bit)));
    }
    end(pool, &m);
}

static void a_destroyed_pool_is_known_even_when_another_one_has_its_place(void) {
    makers m, n;
    cenote_options options = things(&m, 1, 1);
    cenote_pool *old = pool_of(&options);
    end(old, &m);
    check_no_pool(old);
    CHECK_SAYS("destroyed");
    cenote_options others = things(&n, 1, 1);
    for (int i = 0; i < 200; i++) {
        cenote_pool *next = pool_of(&others);
        CHECK(next != old);
        check_no_pool(old);
        CHECK_OK(cenote_pool_unref(next));
    }
    UNTIL(n.disposed == 200);
}

static void many_pools_live_side_by_side(void) {
    enum { MANY = 300 };
    static makers m[MANY];
    static cenote_pool *pools[MANY];
    for (int i = 0; i < MANY; i++) {
        cenote_options options = things(&m[i], 1, 1);
        pools[i] = pool_of(&options);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(cenote_pool_idle(pools[i]) == 1);
        end(pools[i], &m[i]);
    }
}

static void a_lease_can_be_given_back_once(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    cenote_lease copy = lease;
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(cenote_release(pool, &lease) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK(cenote_release(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK(cenote_discard(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK_SAYS("already released");
    check_counts(pool, 1, 1, 0);
    /* Neither is it somebody else's, who has the same resource now. */
    cenote_lease next = acquired(pool);
    CHECK(next.resource == copy.resource);
    CHECK(cenote_release(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK(cenote_discard(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    check_counts(pool, 1, 0, 1);
    copy = next;
    CHECK_OK(cenote_discard(pool, &next));
    CHECK(cenote_release(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK(m.destroyed == 1);
    end(pool, &m);
}

static void what_was_never_acquired_cannot_be_given_back(void) {
    makers m;
    cenote_options options = things(&m, 1, 2);
    cenote_pool *pool = pool_of(&options);
    cenote_lease real = acquired(pool);
    cenote_lease nothing = {0};
    CHECK(cenote_release(pool, &nothing) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK(cenote_release(pool, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("lease is NULL");
    cenote_lease forged = real;
    forged.slot = 5;
    CHECK(cenote_release(pool, &forged) == CENOTE_ERR_NOT_ACQUIRED);
    forged.slot = UINT32_MAX;
    CHECK(cenote_release(pool, &forged) == CENOTE_ERR_NOT_ACQUIRED);
    forged = real;
    forged.ticket += 2;
    CHECK(cenote_release(pool, &forged) == CENOTE_ERR_NOT_ACQUIRED);
    forged.ticket -= 1;
    CHECK(cenote_release(pool, &forged) == CENOTE_ERR_NOT_ACQUIRED);
    check_counts(pool, 1, 0, 1);
    CHECK_OK(cenote_release(pool, &real));
    end(pool, &m);
}

static void a_lease_of_another_pool_is_foreign(void) {
    makers m, n;
    cenote_options first = things(&m, 0, 1);
    cenote_options second = things(&n, 0, 1);
    cenote_pool *ours = pool_of(&first);
    cenote_pool *theirs = pool_of(&second);
    cenote_lease lease = acquired(ours);
    cenote_lease other = acquired(theirs);
    CHECK(cenote_release(theirs, &lease) == CENOTE_ERR_FOREIGN);
    CHECK(cenote_discard(ours, &other) == CENOTE_ERR_FOREIGN);
    CHECK_SAYS("another pool");
    CHECK_OK(cenote_release(ours, &lease));
    CHECK_OK(cenote_release(theirs, &other));
    end(ours, &m);
    end(theirs, &n);
}

static void leases_outlive_the_last_reference(void) {
    makers m;
    cenote_options options = things(&m, 0, 3);
    cenote_pool *pool = pool_of(&options);
    cenote_lease first = acquired(pool);
    cenote_lease second = acquired(pool);
    cenote_lease idle = acquired(pool);
    CHECK_OK(cenote_release(pool, &idle));
    CHECK_OK(cenote_pool_unref(pool));
    CHECK(m.destroyed == 1 && m.disposed == 0);
    cenote_lease none;
    CHECK(cenote_acquire(pool, 0, &none) == CENOTE_ERR_CLOSED);
    CHECK_SAYS("last reference");
    CHECK(cenote_pool_ref(pool) == CENOTE_ERR_CLOSED);
    CHECK(cenote_pool_unref(pool) == CENOTE_ERR_CLOSED);
    CHECK(cenote_pool_total(pool) == CENOTE_ERR_CLOSED);
    cenote_lease copy = first;
    CHECK_OK(cenote_release(pool, &first));
    CHECK(m.destroyed == 2 && m.disposed == 0);
    CHECK(cenote_release(pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
    CHECK_OK(cenote_discard(pool, &second));
    CHECK(m.destroyed == 3);
    UNTIL(m.disposed == 1);
    check_no_pool(pool);
}

static void null_arguments_are_named(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = NULL;
    CHECK(cenote_pool_new(NULL, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("options is NULL");
    CHECK(cenote_pool_new(&options, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("pool is NULL");
    CHECK(cenote_options_init(NULL, sizeof options) == CENOTE_ERR_ARGUMENT);
    pool = pool_of(&options);
    CHECK(cenote_acquire(pool, 0, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK(cenote_try_acquire(pool, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK(cenote_acquire_async(pool, 0, NULL, NULL, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("on_done is NULL");
    CHECK(cenote_pool_status(pool, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK(cenote_pool_visit(pool, NULL, NULL) == CENOTE_ERR_ARGUMENT);
    CHECK(cenote_event_add_callback(pool, NULL, NULL, NULL, NULL) == CENOTE_ERR_ARGUMENT);
    cenote_set_error_text(NULL);
    end(pool, &m);
}

/* What a newer program would pass. */
typedef struct newer_options {
    cenote_options known;
    uint64_t unknown;
} newer_options;

static void structs_may_grow(void) {
    makers m;
    cenote_pool *pool;
    cenote_options options = things(&m, 0, 1);
    options.size = 8;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("size of options is 8");
    options.size = SIZE_MAX;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    /* A newer program with an older library: fine, as long as it uses nothing new. */
    newer_options newer;
    memset(&newer, 0xff, sizeof newer);
    CHECK_OK(cenote_options_init(&newer.known, sizeof newer));
    CHECK(newer.unknown == 0 && newer.known.size == sizeof newer);
    newer.known.create = thing_create;
    newer.known.destroy = thing_destroy;
    newer.known.data = &m;
    pool = pool_of(&newer.known);
    CHECK_OK(cenote_pool_unref(pool));
    newer.unknown = 1;
    CHECK(cenote_pool_new(&newer.known, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("does not have");
}

static void the_status_says_it_all(void) {
    makers m;
    cenote_options options = things(&m, 1, 3);
    cenote_pool *pool = pool_of(&options);
    cenote_status status;
    memset(&status, 0, sizeof status);
    CHECK(cenote_pool_status(pool, &status) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("size of status is 0");
    status.size = sizeof status;
    cenote_lease first = acquired(pool);
    cenote_lease second = acquired(pool);
    CHECK_OK(cenote_release(pool, &second));
    cenote_lease none;
    CHECK_OK(cenote_pool_status(pool, &status));
    CHECK(status.total == 2 && status.idle == 1 && status.active == 1 && status.creating == 0);
    CHECK(status.min == 1 && status.max == 3 && status.waiting == 0 && status.reserved == 0);
    CHECK(status.acquired == 2 && status.created == 2 && status.destroyed == 0);
    CHECK(status.breaker == CENOTE_BREAKER_ACTIVE && status.closed == 0);
    CHECK_OK(cenote_release(pool, &first));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(cenote_acquire(pool, 0, &none) == CENOTE_ERR_CLOSED);
    CHECK_OK(cenote_pool_status(pool, &status));
    CHECK(status.total == 0 && status.closed == 1 && status.destroyed == 2);
    end(pool, &m);
}

static void *other_thread(void *arg) {
    (void)arg;
    CHECK(cenote_last_error_code() == CENOTE_OK);
    CHECK(strcmp(cenote_last_error_text(), "") == 0);
    CHECK(cenote_pool_total(NULL) == CENOTE_ERR_HANDLE);
    CHECK(cenote_last_error_code() == CENOTE_ERR_HANDLE);
    return NULL;
}

static void each_thread_has_its_own_last_error(void) {
    pthread_t thread;
    cenote_options options;
    CHECK(cenote_options_init(&options, 3) == CENOTE_ERR_ARGUMENT);
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cenote_last_error_code() == CENOTE_ERR_ARGUMENT);
    CHECK_OK(cenote_options_init(&options, sizeof options));
    CHECK(cenote_last_error_code() == CENOTE_ERR_ARGUMENT);
    cenote_clear_error();
    CHECK(cenote_last_error_code() == CENOTE_OK);
    CHECK(strcmp(cenote_last_error_text(), "") == 0);
    for (int code = CENOTE_ERR_INTERNAL; code <= CENOTE_EMPTY; code++) {
        CHECK(strcmp(cenote_code_text(code), cenote_code_text(99)) != 0);
    }
}

/* What a thread does at its very end, when C cleans up after it. */
typedef struct farewell {
    cenote_pool *pool;
    cenote_lease lease;
    int turns;
} farewell;

static pthread_key_t last_words;

static void say_farewell(void *value) {
    farewell *f = value;
    cenote_lease none;
    CHECK(cenote_acquire(f->pool, 5, &none) == CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(f->pool, &f->lease));
    CHECK_OK(cenote_acquire(f->pool, CENOTE_FOREVER, &f->lease));
    if (++f->turns < 3) {
        /* Once more, after the destructors of the library's own keys. */
        CHECK(pthread_setspecific(last_words, f) == 0);
    } else {
        CHECK_OK(cenote_release(f->pool, &f->lease));
    }
}

static void *live_and_end(void *arg) {
    farewell *f = arg;
    f->lease = acquired(f->pool);
    CHECK(pthread_setspecific(last_words, f) == 0);
    return NULL;
}

static void a_thread_that_ends_may_still_release_acquire_and_wait(void) {
    makers m;
    farewell f = {0};
    pthread_t thread;
    cenote_options options = things(&m, 0, 1);
    f.pool = pool_of(&options);
    CHECK(pthread_key_create(&last_words, say_farewell) == 0);
    CHECK(pthread_create(&thread, NULL, live_and_end, &f) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(f.turns == 3);
    check_counts(f.pool, 1, 1, 0);
    CHECK(pthread_key_delete(last_words) == 0);
    end(f.pool, &m);
}

/* Two threads give the same lease back at the same moment. */
typedef struct twice {
    cenote_pool *pool;
    cenote_lease lease;
    atomic_int *ready;
    int code;
} twice;

static void *release_together(void *arg) {
    twice *t = arg;
    atomic_fetch_add(t->ready, 1);
    UNTIL(atomic_load(t->ready) == 2);
    t->code = cenote_release(t->pool, &t->lease);
    return NULL;
}

static void of_two_that_release_a_lease_at_once_one_succeeds(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    cenote_pool *pool = pool_of(&options);
    for (int round = 0; round < 200; round++) {
        atomic_int ready;
        pthread_t thread;
        atomic_init(&ready, 0);
        twice one = {pool, acquired(pool), &ready, 1};
        twice two = one;
        CHECK(pthread_create(&thread, NULL, release_together, &two) == 0);
        release_together(&one);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK((one.code == CENOTE_OK) != (two.code == CENOTE_OK));
        CHECK(one.code + two.code == CENOTE_ERR_NOT_ACQUIRED);
        check_counts(pool, 1, 1, 0);
    }
    end(pool, &m);
}

/* A callback that calls the pool it belongs to, in all the ways it can. */
static cenote_pool *reentered;
static int depth;

static int create_reentering(void *data, void **resource) {
    if (reentered != NULL && depth++ == 0) {
        cenote_lease lease;
        /* Its own place is taken; the other one is free. */
        CHECK(cenote_pool_total(reentered) == 1);
        CHECK_OK(cenote_try_acquire(reentered, &lease));
        CHECK_OK(cenote_release(reentered, &lease));
        CHECK_OK(cenote_breaker_activate(reentered));
    }
    return thing_create(data, resource);
}

static int before_release_reentering(void *data, void *resource) {
    cenote_lease lease;
    (void)data;
    (void)resource;
    if (depth++ == 10) {
        CHECK_OK(cenote_try_acquire(reentered, &lease));
        CHECK_OK(cenote_release(reentered, &lease));
        CHECK_OK(cenote_pool_ref(reentered));
        CHECK_OK(cenote_pool_unref(reentered));
    }
    return 0;
}

static int destroy_reentering(void *data, void *resource) {
    cenote_lease lease;
    int code = cenote_acquire(reentered, CENOTE_FOREVER, &lease);
    CHECK(code == CENOTE_ERR_CLOSED);
    CHECK_OK(cenote_pool_close(reentered));
    return thing_destroy(data, resource);
}

static void callbacks_may_call_their_own_pool(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    options.create = create_reentering;
    options.before_release = before_release_reentering;
    options.destroy = destroy_reentering;
    reentered = NULL;
    depth = 0;
    cenote_pool *pool = pool_of(&options);
    reentered = pool;
    cenote_lease lease = acquired(pool);
    depth = 10;
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 2);
    end(pool, &m);
    reentered = NULL;
}

int main(void) {
    printf("handles\n");
    RUN(null_is_no_pool);
    RUN(an_address_is_no_pool);
    RUN(a_handle_that_is_a_little_off_is_no_pool);
    RUN(a_destroyed_pool_is_known_even_when_another_one_has_its_place);
    RUN(many_pools_live_side_by_side);
    RUN(a_lease_can_be_given_back_once);
    RUN(what_was_never_acquired_cannot_be_given_back);
    RUN(a_lease_of_another_pool_is_foreign);
    RUN(leases_outlive_the_last_reference);
    RUN(null_arguments_are_named);
    RUN(structs_may_grow);
    RUN(the_status_says_it_all);
    RUN(each_thread_has_its_own_last_error);
    RUN(a_thread_that_ends_may_still_release_acquire_and_wait);
    RUN(of_two_that_release_a_lease_at_once_one_succeeds);
    RUN(callbacks_may_call_their_own_pool);
    return 0;
}
