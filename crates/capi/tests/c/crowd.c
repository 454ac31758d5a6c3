/*
 * Four threads do everything at once to the pool of a host with one thread, whose loop takes
 * work and refuses it in turns: crowd [ROUNDS]. Every waiter is called back once, no call hangs,
 * and at the end as much was destroyed as was made.
 */
#include "loop.h"

enum { GUESTS = 4 };

static atomic_int running, asked, answered, refused;

static void count_answer(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    (void)data;
    CHECK((code == CENOTE_OK) == (lease != NULL));
    if (lease != NULL) {
        cenote_lease mine = *lease;
        CHECK_OK(cenote_release(pool, &mine));
    } else {
        CHECK(code == CENOTE_ERR_CANCELLED || code == CENOTE_ERR_TIMEOUT);
    }
    atomic_fetch_add(&answered, 1);
}

static void hear(void *data, cenote_pool *pool, const cenote_event *event) {
    (void)data;
    (void)pool;
    CHECK(event->size == sizeof *event);
}

typedef struct hand {
    pthread_t thread;
    cenote_pool *pool;
    unsigned seed;
    int rounds;
} hand;

static void *work(void *arg) {
    hand *h = arg;
    for (int i = 0; i < h->rounds; i++) {
        cenote_lease lease;
        uint64_t waiter;
        int code;
        h->seed = h->seed * 1664525u + 1013904223u;
        unsigned what = (h->seed >> 16) % 8;
        if (what < 3) {
            atomic_fetch_add(&asked, 1);
            CHECK_OK(cenote_acquire_async(h->pool, what == 0 ? 0 : CENOTE_FOREVER, count_answer,
                                          NULL, &waiter));
            if (what == 2) {
                code = cenote_waiter_cancel(h->pool, waiter);
                CHECK(code == CENOTE_OK || code == CENOTE_ERR_NOT_WAITING);
            }
            continue;
        }
        if (what == 3) {
            CHECK_OK(cenote_event_add_callback(h->pool, hear, NULL, NULL, &waiter));
            CHECK_OK(cenote_event_del_callback(h->pool, waiter));
            continue;
        }
        code = what == 4   ? cenote_try_acquire(h->pool, &lease)
               : what == 5 ? cenote_acquire(h->pool, 0, &lease)
                           : cenote_acquire(h->pool, CENOTE_FOREVER, &lease);
        if (code != CENOTE_OK) {
            CHECK(code == CENOTE_EMPTY || code == CENOTE_ERR_TIMEOUT ||
                  code == CENOTE_ERR_CANCELLED);
            if (code == CENOTE_ERR_CANCELLED) {
                atomic_fetch_add(&refused, 1);
            }
            continue;
        }
        ((thing *)lease.resource)->uses++;
        CHECK_OK(what == 7 ? cenote_discard(h->pool, &lease) : cenote_release(h->pool, &lease));
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 5000;
    makers m;
    hand hands[GUESTS];
    begin_loop();
    cenote_options options = hosted(&m, 0, 2);
    /* They run elsewhere when the loop refuses. */
    options.destroy = thing_destroy;
    options.before_release = NULL;
    options.dispose = thing_dispose;
    cenote_pool *pool = pool_of(&options);
    atomic_store(&running, GUESTS);
    for (int i = 0; i < GUESTS; i++) {
        hands[i].pool = pool;
        hands[i].seed = 7919u * (unsigned)(i + 1);
        hands[i].rounds = rounds;
        CHECK(pthread_create(&hands[i].thread, NULL, work, &hands[i]) == 0);
    }
    for (int turns = 0; atomic_load(&running) > 0; turns++) {
        pthread_mutex_lock(&host.lock);
        host.refuse = turns % 1000 == 999;
        pthread_mutex_unlock(&host.lock);
        turn();
        sched_yield();
    }
    host.refuse = 0;
    for (int i = 0; i < GUESTS; i++) {
        CHECK(pthread_join(hands[i].thread, NULL) == 0);
    }
    turn_until_quiet();
    CHECK(atomic_load(&answered) == atomic_load(&asked));
    CHECK(cenote_pool_waiting(pool) == 0 && cenote_pool_active(pool) == 0);
    end_hosted(pool, &m);
    end_loop();
    printf("crowd: %d guests, %d rounds each: %d called back, %d made and destroyed, %d refused\n",
           GUESTS, rounds, atomic_load(&asked), atomic_load(&m.created), atomic_load(&refused));
    return 0;
}
