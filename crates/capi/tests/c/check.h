/*
 * What the tests in C share: checks that say where they failed, and a resource that counts
 * what happens to it.
 */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cenote.h"

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,          \
                    #condition, cenote_last_error_text());                                       \
            abort();                                                                             \
        }                                                                                        \
    } while (0)

#define CHECK_OK(call) CHECK((call) == CENOTE_OK)

/* Whether the text of the last error has these words in it. */
#define CHECK_SAYS(words) CHECK(strstr(cenote_last_error_text(), (words)) != NULL)

/* Waits for another thread: yields until it is so, and gives up long after it should be. */
#define UNTIL(condition)                                                                         \
    do {                                                                                         \
        long patience = 200000000;                                                               \
        while (!(condition)) {                                                                   \
            CHECK(patience-- > 0);                                                               \
            sched_yield();                                                                       \
        }                                                                                        \
    } while (0)

#define RUN(test)                                                                                \
    do {                                                                                         \
        printf("  %s\n", #test);                                                                 \
        fflush(stdout);                                                                          \
        test();                                                                                  \
    } while (0)

/* A resource: its number is the order in which it was made. */
typedef struct thing {
    int number;
    int uses;
} thing;

/* What the callbacks of a pool have done, and how the test makes them behave. */
typedef struct makers {
    atomic_int created;
    atomic_int destroyed;
    atomic_int checked;
    atomic_int acquiring;
    atomic_int releasing;
    atomic_int disposed;
    /* Creation of this number fails, if not 0; -1: all do. */
    atomic_int fail_create;
    atomic_int fail_destroy;
    /* So many calls are refused. */
    atomic_int refuse_acquire;
    atomic_int refuse_release;
    /* The thing with this number is refused by the health check. */
    atomic_int unhealthy;
    /* What was called, in order. */
    char log[256];
    atomic_int logged;
    int order[64];
} makers;

static inline void note(makers *m, char what) {
    size_t at = (size_t)atomic_fetch_add(&m->logged, 1);
    if (at + 1 < sizeof m->log) {
        m->log[at] = what;
    }
}

static inline int take_one(atomic_int *count) {
    int left = atomic_load(count);
    while (left > 0 && !atomic_compare_exchange_weak(count, &left, left - 1)) {
    }
    return left > 0;
}

static inline int thing_create(void *data, void **resource) {
    makers *m = data;
    int number = atomic_fetch_add(&m->created, 1) + 1;
    note(m, 'c');
    if (atomic_load(&m->fail_create) == number || atomic_load(&m->fail_create) == -1) {
        cenote_set_error_text("no route to the thing");
        return 42;
    }
    thing *t = calloc(1, sizeof *t);
    CHECK(t != NULL);
    t->number = number;
    *resource = t;
    return 0;
}

static inline int thing_destroy(void *data, void *resource) {
    makers *m = data;
    thing *t = resource;
    int at = atomic_fetch_add(&m->destroyed, 1);
    note(m, 'd');
    if (at < 64) {
        m->order[at] = t->number;
    }
    free(t);
    if (atomic_load(&m->fail_destroy)) {
        cenote_set_error_text("it would not die");
        return 7;
    }
    return 0;
}

static inline int thing_check(void *data, void *resource) {
    makers *m = data;
    thing *t = resource;
    atomic_fetch_add(&m->checked, 1);
    return t->number == atomic_load(&m->unhealthy);
}

static inline int thing_before_acquire(void *data, void *resource) {
    makers *m = data;
    (void)resource;
    atomic_fetch_add(&m->acquiring, 1);
    note(m, 'a');
    return take_one(&m->refuse_acquire);
}

static inline int thing_before_release(void *data, void *resource) {
    makers *m = data;
    (void)resource;
    atomic_fetch_add(&m->releasing, 1);
    note(m, 'r');
    if (take_one(&m->refuse_release)) {
        cenote_set_error_text("worn out");
        return 9;
    }
    return 0;
}

static inline void thing_dispose(void *data) {
    makers *m = data;
    atomic_fetch_add(&m->disposed, 1);
}

/* Options of a pool of things, with a factory and a destructor. */
static inline cenote_options things(makers *m, size_t min, size_t max) {
    cenote_options options;
    memset(m, 0, sizeof *m);
    CHECK_OK(cenote_options_init(&options, sizeof options));
    options.data = m;
    options.create = thing_create;
    options.destroy = thing_destroy;
    options.dispose = thing_dispose;
    options.min = min;
    options.max = max;
    return options;
}

static inline cenote_pool *pool_of(const cenote_options *options) {
    cenote_pool *pool = NULL;
    CHECK_OK(cenote_pool_new(options, &pool));
    CHECK(pool != NULL);
    return pool;
}

static inline int number_of(const cenote_lease *lease) {
    return ((const thing *)lease->resource)->number;
}

static inline cenote_lease acquired(cenote_pool *pool) {
    cenote_lease lease;
    CHECK_OK(cenote_acquire(pool, CENOTE_FOREVER, &lease));
    return lease;
}

static inline cenote_lease tried(cenote_pool *pool) {
    cenote_lease lease;
    CHECK_OK(cenote_try_acquire(pool, &lease));
    return lease;
}

static inline int try_gives_nothing(cenote_pool *pool) {
    cenote_lease lease;
    return cenote_try_acquire(pool, &lease) == CENOTE_EMPTY && lease.resource == NULL;
}

static inline void check_counts(cenote_pool *pool, int total, int idle, int active) {
    CHECK(cenote_pool_total(pool) == total);
    CHECK(cenote_pool_idle(pool) == idle);
    CHECK(cenote_pool_active(pool) == active);
}

/*
 * Gives the last reference up; everything has to be gone soon: the background thread may be
 * looking at the pool just then.
 */
static inline void end(cenote_pool *pool, makers *m) {
    int code;
    CHECK_OK(cenote_pool_unref(pool));
    code = cenote_pool_total(pool);
    CHECK(code == CENOTE_ERR_CLOSED || code == CENOTE_ERR_HANDLE);
    UNTIL(atomic_load(&m->disposed) == 1);
    CHECK(cenote_pool_total(pool) == CENOTE_ERR_HANDLE);
}

#endif
