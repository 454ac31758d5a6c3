/*
 * A host with one thread and an event loop of its own, whose clock stands still until a test
 * moves it: so nothing here depends on how fast the machine is. Its callbacks check that they
 * run on its thread.
 */
#ifndef LOOP_H
#define LOOP_H

#include "check.h"

enum { MANY = 64 };

typedef struct job {
    cenote_run_fn run;
    void *arg;
} job;

/* The event loop. Other threads only post. */
typedef struct loop {
    pthread_t thread;
    pthread_mutex_t lock;
    job jobs[MANY];
    int posted;
    int posts;
    int refuse;
    uint64_t now;
    /* One timer for each pool. */
    struct {
        job what;
        uint64_t at;
    } timers[MANY];
    int timer_calls;
} loop;

static loop host;

static inline void on_host_thread(void) {
    CHECK(pthread_equal(pthread_self(), host.thread));
}

static inline uint64_t host_now(void *data) {
    loop *l = data;
    pthread_mutex_lock(&l->lock);
    uint64_t now = l->now;
    pthread_mutex_unlock(&l->lock);
    return now;
}

static inline void host_timer(void *data, uint64_t at, cenote_run_fn run, void *arg) {
    loop *l = data;
    int spare = -1;
    on_host_thread();
    l->timer_calls++;
    for (int i = 0; i < MANY; i++) {
        if (l->timers[i].what.run != NULL && l->timers[i].what.arg == arg) {
            spare = i;
            break;
        }
        if (l->timers[i].what.run == NULL && spare < 0) {
            spare = i;
        }
    }
    CHECK(spare >= 0);
    l->timers[spare].at = at;
    l->timers[spare].what.arg = arg;
    l->timers[spare].what.run = at == CENOTE_NEVER ? NULL : run;
}

static inline int host_post(void *data, cenote_run_fn run, void *arg) {
    loop *l = data;
    int refused;
    pthread_mutex_lock(&l->lock);
    refused = l->refuse;
    if (!refused) {
        CHECK(l->posted < MANY);
        l->jobs[l->posted].run = run;
        l->jobs[l->posted].arg = arg;
        l->posted++;
        l->posts++;
    }
    pthread_mutex_unlock(&l->lock);
    return refused;
}

/* Runs what was posted; whether there was anything. */
static inline int turn(void) {
    job jobs[MANY];
    int count;
    pthread_mutex_lock(&host.lock);
    count = host.posted;
    memcpy(jobs, host.jobs, sizeof jobs);
    host.posted = 0;
    pthread_mutex_unlock(&host.lock);
    for (int i = 0; i < count; i++) {
        jobs[i].run(jobs[i].arg);
    }
    return count > 0;
}

static inline void turn_until_quiet(void) {
    while (turn()) {
    }
}

/* Moves the clock to where the next timers are, again and again, up to a time. */
static inline void pass(uint64_t ms) {
    uint64_t until = host.now + ms * 1000000;
    turn_until_quiet();
    for (;;) {
        uint64_t next = until;
        for (int i = 0; i < MANY; i++) {
            if (host.timers[i].what.run != NULL && host.timers[i].at < next) {
                next = host.timers[i].at;
            }
        }
        if (next > host.now) {
            pthread_mutex_lock(&host.lock);
            host.now = next;
            pthread_mutex_unlock(&host.lock);
        }
        for (int i = 0; i < MANY; i++) {
            if (host.timers[i].what.run != NULL && host.timers[i].at <= host.now) {
                job due = host.timers[i].what;
                host.timers[i].what.run = NULL;
                due.run(due.arg);
            }
        }
        turn_until_quiet();
        if (next == until) {
            return;
        }
    }
}

/* The callbacks of check.h, on the right thread. */
static inline int create(void *data, void **resource) {
    on_host_thread();
    return thing_create(data, resource);
}

static inline int destroy(void *data, void *resource) {
    on_host_thread();
    return thing_destroy(data, resource);
}

static inline int healthcheck(void *data, void *resource) {
    on_host_thread();
    return thing_check(data, resource);
}

static inline int before_acquire(void *data, void *resource) {
    on_host_thread();
    return thing_before_acquire(data, resource);
}

static inline int before_release(void *data, void *resource) {
    on_host_thread();
    return thing_before_release(data, resource);
}

static inline void dispose(void *data) {
    on_host_thread();
    thing_dispose(data);
}

static cenote_runtime runtime;

static inline cenote_options hosted(makers *m, size_t min, size_t max) {
    cenote_options options = things(m, min, max);
    memset(&runtime, 0, sizeof runtime);
    runtime.size = sizeof runtime;
    runtime.data = &host;
    runtime.now = host_now;
    runtime.timer = host_timer;
    runtime.post = host_post;
    options.runtime = &runtime;
    options.create = create;
    options.destroy = destroy;
    options.healthcheck = healthcheck;
    options.before_acquire = before_acquire;
    options.before_release = before_release;
    options.dispose = dispose;
    return options;
}

typedef struct result {
    int calls;
    int code;
    cenote_lease lease;
} result;

static inline void on_done(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    result *r = data;
    (void)pool;
    on_host_thread();
    r->calls++;
    r->code = code;
    if (lease != NULL) {
        r->lease = *lease;
    }
}

static inline void ask(cenote_pool *pool, int64_t timeout_ms, result *r, uint64_t *waiter) {
    memset(r, 0, sizeof *r);
    CHECK_OK(cenote_acquire_async(pool, timeout_ms, on_done, r, waiter));
    /* Never inside the call. */
    CHECK(r->calls == 0);
}

static inline void check_done(const result *r, int code) {
    CHECK(r->calls == 1 && r->code == code);
}

static inline void end_hosted(cenote_pool *pool, makers *m) {
    CHECK_OK(cenote_pool_unref(pool));
    turn_until_quiet();
    CHECK(m->disposed == 1);
    CHECK(m->destroyed == m->created);
    for (int i = 0; i < MANY; i++) {
        CHECK(host.timers[i].what.run == NULL);
    }
}

static inline void begin_loop(void) {
    host.thread = pthread_self();
    host.now = 5000000000u;
    CHECK(pthread_mutex_init(&host.lock, NULL) == 0);
}

static inline void end_loop(void) {
    CHECK(pthread_mutex_destroy(&host.lock) == 0);
}

#endif
