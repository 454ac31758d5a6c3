/*
 * fork: pools made in the child work, and pools that the child inherits are closed there.
 */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

static void called_back(void *data, cenote_pool *pool, int code, const cenote_lease *lease) {
    (void)pool;
    CHECK(lease == NULL);
    atomic_store((atomic_int *)data, code);
}

/* A pool does its work here, with the background thread: queue, deadline, callback. */
static void check_works(void) {
    makers m;
    cenote_options options = things(&m, 1, 1);
    options.healthcheck = thing_check;
    options.healthcheck_interval_ms = 1;
    cenote_pool *pool = pool_of(&options);
    UNTIL(atomic_load(&m.checked) > 0);
    /* A check may have the resource just now. */
    cenote_lease lease = acquired(pool), none;
    CHECK(cenote_acquire(pool, 5, &none) == CENOTE_ERR_TIMEOUT);
    atomic_int code = 0;
    CHECK_OK(cenote_acquire_async(pool, 5, called_back, &code, NULL));
    UNTIL(atomic_load(&code) != 0);
    CHECK(atomic_load(&code) == CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

typedef void (*in_child_fn)(void *arg);

/*
 * Runs this in a child, which must end by itself. It says so through a pipe and is killed then:
 * what it forgets on purpose is no leak to look for.
 */
static void in_child(in_child_fn run, void *arg) {
    int ends[2];
    char done = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        run(arg);
        CHECK(write(ends[1], "y", 1) == 1);
        raise(SIGKILL);
    }
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], &done, 1) == 1 && done == 'y');
    CHECK(close(ends[0]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

static void works(void *arg) {
    (void)arg;
    check_works();
}

static void h4_a_pool_made_in_a_child_works(void) {
    /* The parent's background thread exists. */
    check_works();
    in_child(works, NULL);
    check_works();
}

typedef struct inherited {
    makers *m;
    cenote_pool *pool;
    cenote_lease released, discarded;
} inherited;

static void use_inherited(void *arg) {
    inherited *i = arg;
    cenote_lease lease;
    CHECK(cenote_acquire(i->pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CLOSED);
    CHECK_SAYS("build a pool in the child");
    CHECK(cenote_acquire(i->pool, 0, &lease) == CENOTE_ERR_CLOSED);
    CHECK(try_gives_nothing(i->pool));
    CHECK(cenote_pool_is_closed(i->pool) == 1);
    CHECK_OK(cenote_release(i->pool, &i->released));
    CHECK_OK(cenote_discard(i->pool, &i->discarded));
    CHECK_OK(cenote_pool_close(i->pool));
    CHECK_OK(cenote_pool_unref(i->pool));
    CHECK(i->m->destroyed == 0 && i->m->disposed == 0);
    check_works();
}

static void h4_an_inherited_pool_is_closed_in_the_child(void) {
    makers m;
    cenote_options options = things(&m, 3, 3);
    inherited i = {&m, pool_of(&options), {0}, {0}};
    i.released = acquired(i.pool);
    i.discarded = acquired(i.pool);
    in_child(use_inherited, &i);
    check_counts(i.pool, 3, 1, 2);
    CHECK_OK(cenote_release(i.pool, &i.released));
    CHECK_OK(cenote_release(i.pool, &i.discarded));
    check_counts(i.pool, 3, 3, 0);
    CHECK(m.destroyed == 0);
    end(i.pool, &m);
}

static atomic_int stop;

static void *make_and_wait(void *arg) {
    makers m;
    (void)arg;
    while (!atomic_load(&stop)) {
        cenote_options options = things(&m, 0, 1);
        cenote_pool *pool = pool_of(&options);
        cenote_lease lease = acquired(pool), none;
        CHECK(cenote_acquire(pool, 1, &none) == CENOTE_ERR_TIMEOUT);
        CHECK_OK(cenote_release(pool, &lease));
        end(pool, &m);
    }
    return NULL;
}

/* Locks change hands while the parent forks. */
static void h4_a_child_of_a_busy_parent_works(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, make_and_wait, NULL) == 0);
    }
    for (int i = 0; i < 20; i++) {
        in_child(works, NULL);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(void) {
    printf("fork\n");
    RUN(h4_a_pool_made_in_a_child_works);
    RUN(h4_an_inherited_pool_is_closed_in_the_child);
    RUN(h4_a_child_of_a_busy_parent_works);
    return 0;
}
