/*
 * Threads that acquire once, for tests that have to wait for each other.
 */
#ifndef WORKER_H
#define WORKER_H

#include "check.h"

typedef struct worker {
    pthread_t thread;
    cenote_pool *pool;
    int64_t timeout_ms;
    int code;
    cenote_lease lease;
    atomic_int done;
} worker;

static inline void *acquire_once(void *arg) {
    worker *w = arg;
    w->code = cenote_acquire(w->pool, w->timeout_ms, &w->lease);
    atomic_store(&w->done, 1);
    return NULL;
}

static inline void start(worker *w, cenote_pool *pool, int64_t timeout_ms) {
    memset(w, 0, sizeof *w);
    w->pool = pool;
    w->timeout_ms = timeout_ms;
    CHECK(pthread_create(&w->thread, NULL, acquire_once, w) == 0);
}

static inline void join(worker *w) {
    CHECK(pthread_join(w->thread, NULL) == 0);
}

#endif
