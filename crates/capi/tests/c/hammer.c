/*
 * Eight threads do everything at once to one pool, so many times each: hammer [ROUNDS].
 * A resource has one user at a time, every waiter is called back once, every sample of the
 * status is sound, and at the end as much was destroyed as was made.
 */

#include "check.h"

enum { THREADS = 8, MAX = 4 };

typedef struct part {
    atomic_int users;
    int uses;
} part;

static atomic_int made, destroyed, disposed, callbacks, asked, served;
static atomic_int running;
static atomic_uint luck;

/* Every so many-th call of a callback fails. */
static int one_in(unsigned many) {
    return atomic_fetch_add(&luck, 1) % many == many - 1;
}

static int create(void *data, void **resource) {
    (void)data;
    if (one_in(50)) {
        return 5;
    }
    part *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    atomic_fetch_add(&made, 1);
    *resource = p;
    return 0;
}

static int destroy(void *data, void *resource) {
    part *p = resource;
    (void)data;
    CHECK(atomic_load(&p->users) == 0);
    atomic_fetch_add(&destroyed, 1);
    free(p);
    return one_in(100);
}

static int check(void *data, void *resource) {
    part *p = resource;
    (void)data;
    CHECK(atomic_fetch_add(&p->users, 1) == 0);
    p->uses++;
    CHECK(atomic_fetch_sub(&p->users, 1) == 1);
    return one_in(200);
}

static void dispose(void *data) {
    (void)data;
    atomic_fetch_add(&disposed, 1);
}

#ifdef RACE
/* On purpose: to show that the sanitizer would see one. */
static int unguarded;
#endif

/* Has a resource to itself, or finds out that it has not. */
static void use_it(const cenote_lease *lease) {
    part *p = lease->resource;
    CHECK(atomic_fetch_add(&p->users, 1) == 0);
    p->uses++;
#ifdef RACE
    unguarded++;
#endif
    atomic_fetch_add(&served, 1);
    CHECK(atomic_fetch_sub(&p->users, 1) == 1);
}

static void on_done(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    (void)data;
    if (code == CENOTE_OK) {
        cenote_lease mine = *lease;
        use_it(&mine);
        CHECK_OK(cenote_release(pool, &mine));
    } else {
        CHECK(code == CENOTE_ERR_CANCELLED || code == CENOTE_ERR_CREATE ||
              code == CENOTE_ERR_TIMEOUT || code == CENOTE_ERR_UNAVAILABLE);
    }
    atomic_fetch_add(&callbacks, 1);
}

typedef struct hand {
    pthread_t thread;
    cenote_pool *pool;
    unsigned seed;
    int rounds;
} hand;

static void *work(void *arg) {
    hand *h = arg;
    CHECK_OK(cenote_pool_ref(h->pool));
    for (int i = 0; i < h->rounds; i++) {
        cenote_lease lease, copy;
        uint64_t waiter;
        int code;
        h->seed = h->seed * 1664525u + 1013904223u;
        unsigned what = (h->seed >> 16) % 16;
        switch (what) {
        case 0:
            atomic_fetch_add(&asked, 1);
            CHECK_OK(cenote_acquire_async(h->pool, CENOTE_FOREVER, on_done, NULL, &waiter));
            break;
        case 1:
            atomic_fetch_add(&asked, 1);
            CHECK_OK(cenote_acquire_async(h->pool, 1000, on_done, NULL, &waiter));
            code = cenote_waiter_cancel(h->pool, waiter);
            CHECK(code == CENOTE_OK || code == CENOTE_ERR_NOT_WAITING);
            break;
        default:
            if (what < 4) {
                code = cenote_try_acquire(h->pool, &lease);
            } else if (what < 6) {
                code = cenote_acquire(h->pool, 0, &lease);
            } else {
                code = cenote_acquire(h->pool, CENOTE_FOREVER, &lease);
            }
            if (code != CENOTE_OK) {
                CHECK(code == CENOTE_EMPTY || code == CENOTE_ERR_TIMEOUT ||
                      code == CENOTE_ERR_CREATE || code == CENOTE_ERR_UNAVAILABLE);
                break;
            }
            use_it(&lease);
            copy = lease;
            if (what == 15) {
                CHECK_OK(cenote_discard(h->pool, &lease));
            } else {
                CHECK_OK(cenote_release(h->pool, &lease));
            }
            if (what == 14) {
                CHECK(cenote_release(h->pool, &copy) == CENOTE_ERR_NOT_ACQUIRED);
            }
            break;
        }
        if (h->seed % 1024 == 0) {
            CHECK_OK(cenote_breaker_deactivate(h->pool));
            CHECK_OK(cenote_breaker_activate(h->pool));
        }
        if (h->seed % 777 == 0) {
            CHECK_OK(cenote_pool_replace_all(h->pool));
        }
    }
    CHECK_OK(cenote_pool_unref(h->pool));
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 20000;
    hand hands[THREADS];
    int samples = 0;
    cenote_options options;
    cenote_status status = {0};
    CHECK_OK(cenote_options_init(&options, sizeof options));
    options.create = create;
    options.destroy = destroy;
    options.before_acquire = check;
    options.before_release = check;
    options.healthcheck = check;
    options.healthcheck_interval_ms = 1;
    options.dispose = dispose;
    options.max = MAX;
    options.min = 1;
    options.backoff_first_ms = 0;
    cenote_pool *pool = pool_of(&options);
    atomic_store(&running, THREADS);
    for (int i = 0; i < THREADS; i++) {
        hands[i].pool = pool;
        hands[i].seed = 7919u * (unsigned)(i + 1);
        hands[i].rounds = rounds;
        CHECK(pthread_create(&hands[i].thread, NULL, work, &hands[i]) == 0);
    }
    /* P-056: whatever goes on, every sample is sound. */
    while (atomic_load(&running) > 0) {
        status.size = sizeof status;
        CHECK_OK(cenote_pool_status(pool, &status));
        CHECK(status.total == status.idle + status.active + status.creating);
        CHECK(status.total <= MAX && status.reserved <= status.idle);
        samples++;
        sched_yield();
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(hands[i].thread, NULL) == 0);
    }
    UNTIL(atomic_load(&callbacks) == atomic_load(&asked));
    int closed = cenote_pool_close_and_drain(pool, 60000);
    /* Destructors fail every now and then; nothing is left all the same. */
    CHECK(closed == CENOTE_OK || closed == CENOTE_ERR_DESTROY);
    CHECK(cenote_pool_total(pool) == 0);
    CHECK_OK(cenote_pool_unref(pool));
    UNTIL(atomic_load(&disposed) == 1);
    CHECK(atomic_load(&made) == atomic_load(&destroyed));
    CHECK(atomic_load(&callbacks) == atomic_load(&asked));
    printf("hammer: %d threads, %d rounds each: %d served, %d called back, %d made and destroyed, "
           "%d samples\n",
           THREADS, rounds, atomic_load(&served), atomic_load(&asked), atomic_load(&made), samples);
    return 0;
}
