/*
 * The rows of the conformance list, part 1 (the pool), that make sense from C, by their IDs:
 * time-outs, closing, the breaker. The other ones, and those left out, are in conformance.c.
 */

#include "worker.h"

/* P-031, P-038a, P-038b, P-055a */
static void time_runs_out_and_leaves_nothing_behind(void) {
    /* Negative ones are deadlines that have passed, by however much. */
    int64_t times[] = {0, -1, -2, INT64_MIN, 1, 50};
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    for (int i = 0; i < 6; i++) {
        cenote_lease none;
        CHECK(cenote_acquire(pool, times[i], &none) == CENOTE_ERR_TIMEOUT);
        CHECK(none.resource == NULL);
        CHECK(cenote_last_error_code() == CENOTE_ERR_TIMEOUT);
        CHECK_SAYS(times[i] <= 0 ? "without waiting" : "waiting for a resource");
    }
    CHECK_OK(cenote_release(pool, &lease));
    /* Without waiting is not without creating. */
    CHECK_OK(cenote_acquire(pool, 0, &lease));
    CHECK_OK(cenote_discard(pool, &lease));
    CHECK_OK(cenote_acquire(pool, 0, &lease));
    CHECK(number_of(&lease) == 2);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-005a, P-005b, P-013a, P-013b */
static void close_destroys_the_idle_ones_oldest_first_and_once(void) {
    makers m;
    cenote_options options = things(&m, 2, 2);
    cenote_pool *pool = pool_of(&options);
    CHECK(cenote_pool_is_closed(pool) == 0);
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 2 && m.order[0] == 1 && m.order[1] == 2);
    CHECK(cenote_pool_is_closed(pool) == 1);
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 2);
    end(pool, &m);
}

/* P-006, P-014, P-055b */
static void a_closed_pool_gives_nothing(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_pool_close(pool));
    cenote_lease lease;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CLOSED);
    CHECK(try_gives_nothing(pool));
    CHECK(m.created == 0);
    end(pool, &m);
}

/* P-015a, P-015b */
static void what_is_out_when_the_pool_closes_is_destroyed_by_its_release(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    options.before_release = thing_before_release;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 0);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(m.destroyed == 1);
    CHECK(m.releasing == 0);
    end(pool, &m);
}

/* P-018 */
static void a_destructors_error_comes_out_of_close(void) {
    makers m;
    cenote_options options = things(&m, 2, 2);
    cenote_pool *pool = pool_of(&options);
    m.fail_destroy = 1;
    CHECK(cenote_pool_close(pool) == CENOTE_ERR_DESTROY);
    CHECK(cenote_last_error_detail() == 7);
    CHECK_SAYS("2 destructors failed");
    CHECK_SAYS("it would not die");
    CHECK(m.destroyed == 2);
    end(pool, &m);
}

/* P-028 */
static void the_last_reference_closes(void) {
    makers m;
    cenote_options options = things(&m, 2, 2);
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_pool_ref(pool));
    CHECK_OK(cenote_pool_unref(pool));
    CHECK(m.destroyed == 0);
    CHECK_OK(cenote_pool_unref(pool));
    CHECK(m.destroyed == 2 && m.order[0] == 1 && m.order[1] == 2);
    UNTIL(m.disposed == 1);
}

/* P-032a, P-032b, P-036 */
static void close_wakes_everybody_who_waits(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    worker w[3];
    for (int i = 0; i < 3; i++) {
        start(&w[i], pool, CENOTE_FOREVER);
    }
    UNTIL(cenote_pool_waiting(pool) == 3);
    CHECK_OK(cenote_pool_close(pool));
    for (int i = 0; i < 3; i++) {
        join(&w[i]);
        CHECK(w[i].code == CENOTE_ERR_CLOSED);
    }
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

/* P-040 */
static void the_breaker_moves_by_hand(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    CHECK_OK(cenote_breaker_deactivate(pool));
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    CHECK_OK(cenote_breaker_recover(pool));
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_RECOVERING);
    /* P-043 */
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_breaker_activate(pool));
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    end(pool, &m);
}

/* P-041, P-042a, P-042b */
static void an_open_breaker_lets_nobody_through_and_keeps_the_resources(void) {
    makers m;
    cenote_options options = things(&m, 2, 2);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease;
    CHECK_OK(cenote_breaker_deactivate(pool));
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_UNAVAILABLE);
    CHECK(try_gives_nothing(pool));
    CHECK_OK(cenote_breaker_activate(pool));
    lease = tried(pool);
    CHECK(m.created == 2);
    CHECK_OK(cenote_release(pool, &lease));
    end(pool, &m);
}

typedef struct judge {
    cenote_pool *pool;
    int good;
    int bad;
    int disposed;
    char why[128];
} judge;

static void judge_success(void *data, cenote_pool *pool, uint32_t state) {
    judge *j = data;
    CHECK(pool == j->pool && state == CENOTE_BREAKER_ACTIVE);
    j->good++;
}

static int judge_failure(void *data, cenote_pool *pool, uint32_t state, const char *why) {
    judge *j = data;
    CHECK(pool == j->pool && state == CENOTE_BREAKER_ACTIVE);
    j->bad++;
    snprintf(j->why, sizeof j->why, "%s", why);
    return j->bad == 2;
}

static void judge_dispose(void *data) {
    judge *j = data;
    j->disposed++;
}

/* P-044, P-045a, P-045b, P-052a, P-052b */
static void a_strategy_hears_of_successes_and_failures_and_opens(void) {
    makers m;
    judge j = {0};
    cenote_strategy strategy = {0};
    strategy.size = sizeof strategy;
    strategy.data = &j;
    strategy.report_success = judge_success;
    strategy.report_failure = judge_failure;
    strategy.dispose = judge_dispose;
    cenote_options options = things(&m, 0, 1);
    options.before_release = thing_before_release;
    options.strategy = &strategy;
    cenote_pool *pool = pool_of(&options);
    j.pool = pool;
    cenote_lease lease = acquired(pool);
    CHECK(j.good == 0 && j.bad == 0);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(j.good == 1 && j.bad == 0);
    m.refuse_release = 1;
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(j.good == 1 && j.bad == 1);
    CHECK(strstr(j.why, "a resource failed validation on release") != NULL);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    m.fail_create = -1;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CREATE);
    CHECK(j.bad == 2);
    CHECK(strstr(j.why, "no route to the thing") != NULL);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_UNAVAILABLE);
    CHECK_OK(cenote_breaker_set_strategy(pool, NULL));
    CHECK(j.disposed == 1);
    CHECK_OK(cenote_breaker_set_strategy(pool, &strategy));
    CHECK(j.good == 1 && j.bad == 2);
    end(pool, &m);
    CHECK(j.disposed == 2);
}

static void the_strategies_of_the_library_open_the_breaker(void) {
    makers m;
    cenote_lease lease;
    cenote_options options = things(&m, 0, 1);
    options.backoff_first_ms = 0;
    cenote_pool *pool = pool_of(&options);
    CHECK(cenote_breaker_open_after(pool, 0, 1000) == CENOTE_ERR_ARGUMENT);
    CHECK(cenote_breaker_open_at_rate(pool, 1.5, 1000, 1, 1000) == CENOTE_ERR_ARGUMENT);
    CHECK_OK(cenote_breaker_open_after(pool, 2, 1000));
    m.fail_create = -1;
    for (int i = 0; i < 2; i++) {
        CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
        CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CREATE);
    }
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    CHECK_OK(cenote_breaker_open_at_rate(pool, 0.5, 60000, 1, 1000));
    CHECK_OK(cenote_breaker_activate(pool));
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &lease) == CENOTE_ERR_CREATE);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    end(pool, &m);
}

static void draining_waits_for_what_is_out_and_says_what_is_left(void) {
    makers m;
    cenote_options options = things(&m, 0, 2);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK(cenote_pool_close_and_drain(pool, 1) == CENOTE_ERR_IN_USE);
    CHECK_SAYS("1 place was still in use");
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close_and_drain(pool, CENOTE_FOREVER));
    end(pool, &m);
}

static void a_deadline_that_has_passed_does_not_drain(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK(cenote_pool_close_and_drain(pool, -1) == CENOTE_ERR_IN_USE);
    CHECK(cenote_pool_close_and_drain(pool, INT64_MIN) == CENOTE_ERR_IN_USE);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close_and_drain(pool, -1));
    end(pool, &m);
}

/* The longest time that is not for ever waits as well: it does not overflow. */
static void the_longest_time_waits(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    worker w;
    start(&w, pool, CENOTE_FOREVER - 1);
    UNTIL(cenote_pool_waiting(pool) == 1);
    CHECK_OK(cenote_release(pool, &lease));
    join(&w);
    CHECK_OK(w.code);
    CHECK_OK(cenote_release(pool, &w.lease));
    CHECK_OK(cenote_pool_close_and_drain(pool, CENOTE_FOREVER - 1));
    end(pool, &m);
}

static void a_pool_grows_shrinks_and_replaces(void) {
    makers m;
    cenote_options options = things(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease first = acquired(pool);
    CHECK(try_gives_nothing(pool));
    CHECK_OK(cenote_pool_resize(pool, 2));
    cenote_lease second = tried(pool);
    CHECK(cenote_pool_resize(pool, 0) == CENOTE_ERR_CONFIG);
    CHECK_OK(cenote_pool_resize(pool, 1));
    CHECK_OK(cenote_release(pool, &first));
    CHECK(m.destroyed == 1);
    CHECK_OK(cenote_pool_replace_all(pool));
    CHECK_OK(cenote_release(pool, &second));
    UNTIL(m.destroyed == 2);
    end(pool, &m);
}

int main(void) {
    printf("endings\n");
    RUN(time_runs_out_and_leaves_nothing_behind);
    RUN(close_destroys_the_idle_ones_oldest_first_and_once);
    RUN(a_closed_pool_gives_nothing);
    RUN(what_is_out_when_the_pool_closes_is_destroyed_by_its_release);
    RUN(a_destructors_error_comes_out_of_close);
    RUN(the_last_reference_closes);
    RUN(close_wakes_everybody_who_waits);
    RUN(the_breaker_moves_by_hand);
    RUN(an_open_breaker_lets_nobody_through_and_keeps_the_resources);
    RUN(a_strategy_hears_of_successes_and_failures_and_opens);
    RUN(the_strategies_of_the_library_open_the_breaker);
    RUN(draining_waits_for_what_is_out_and_says_what_is_left);
    RUN(a_deadline_that_has_passed_does_not_drain);
    RUN(the_longest_time_waits);
    RUN(a_pool_grows_shrinks_and_replaces);
    return 0;
}
