/*
 * A host with one thread: its callbacks run there, and when it says so.
 */

#include "loop.h"

static void an_acquire_on_the_hosts_thread_never_waits(void) {
    makers m;
    cenote_options options = hosted(&m, 1, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    cenote_lease none;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_WOULD_BLOCK);
    CHECK(cenote_acquire(pool, 1000, &none) == CENOTE_ERR_WOULD_BLOCK);
    CHECK(cenote_acquire(pool, 0, &none) == CENOTE_ERR_TIMEOUT);
    CHECK(try_gives_nothing(pool));
    CHECK(cenote_pool_waiting(pool) == 0);
    CHECK_OK(cenote_release(pool, &lease));
    check_counts(pool, 1, 1, 0);
    CHECK(cenote_pool_close_and_drain(pool, 10) == CENOTE_OK);
    end_hosted(pool, &m);
}

static void waiters_are_called_back_when_the_loop_runs_in_order(void) {
    makers m;
    result r[3];
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    for (int i = 0; i < 3; i++) {
        ask(pool, CENOTE_FOREVER, &r[i], NULL);
    }
    turn_until_quiet();
    CHECK(cenote_pool_waiting(pool) == 3);
    CHECK_OK(cenote_release(pool, &lease));
    for (int i = 0; i < 3; i++) {
        CHECK(r[i].calls == 0);
        turn_until_quiet();
        check_done(&r[i], CENOTE_OK);
        CHECK(number_of(&r[i].lease) == 1);
        CHECK_OK(cenote_release(pool, &r[i].lease));
    }
    end_hosted(pool, &m);
}

/* P-060a, P-060b, P-061: reserved for a waiter that has not run yet. */
static void what_is_reserved_for_a_waiter_is_nobody_elses_and_goes_on_when_it_cancels(void) {
    makers m;
    result first, second;
    uint64_t waiter;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &first, &waiter);
    ask(pool, CENOTE_FOREVER, &second, NULL);
    turn_until_quiet();
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(try_gives_nothing(pool));
    CHECK_OK(cenote_waiter_cancel(pool, waiter));
    CHECK(try_gives_nothing(pool));
    turn_until_quiet();
    check_done(&first, CENOTE_ERR_CANCELLED);
    check_done(&second, CENOTE_OK);
    CHECK_OK(cenote_release(pool, &second.lease));
    check_counts(pool, 1, 1, 0);
    CHECK(m.created == 1);
    end_hosted(pool, &m);
}

/* P-065b */
static void what_is_not_reserved_stays_available(void) {
    makers m;
    result r;
    cenote_lease leases[3];
    cenote_status status = {0};
    cenote_options options = hosted(&m, 0, 3);
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        leases[i] = acquired(pool);
    }
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    for (int i = 0; i < 3; i++) {
        CHECK_OK(cenote_release(pool, &leases[i]));
    }
    status.size = sizeof status;
    CHECK_OK(cenote_pool_status(pool, &status));
    CHECK(status.idle == 3 && status.reserved == 1);
    cenote_lease lease = tried(pool);
    turn_until_quiet();
    check_done(&r, CENOTE_OK);
    CHECK(r.lease.resource != lease.resource);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_release(pool, &r.lease));
    CHECK(m.created == 3);
    end_hosted(pool, &m);
}

/* P-063a, P-063b */
static void a_pool_that_closes_takes_a_reservation_back(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    turn_until_quiet();
    CHECK_OK(cenote_release(pool, &lease));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(m.destroyed == 1 && cenote_pool_idle(pool) == 0);
    turn_until_quiet();
    check_done(&r, CENOTE_ERR_CLOSED);
    CHECK(m.created == 1);
    end_hosted(pool, &m);
}

/* P-031, by the host's clock */
static void time_runs_out_by_the_hosts_clock(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, 50, &r, NULL);
    pass(49);
    CHECK(r.calls == 0);
    pass(2);
    check_done(&r, CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

static void a_timer_that_comes_too_early_is_set_again(void) {
    makers m;
    result r;
    int early = 0;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    ask(pool, 50, &r, NULL);
    pass(10);
    for (int i = 0; i < MANY; i++) {
        if (host.timers[i].what.run != NULL) {
            job soon = host.timers[i].what;
            host.timers[i].what.run = NULL;
            soon.run(soon.arg);
            early++;
        }
    }
    CHECK(early == 1 && r.calls == 0);
    pass(41);
    check_done(&r, CENOTE_ERR_TIMEOUT);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

/* P-048a, P-048b, P-049a, P-049b */
static void health_checks_run_on_the_hosts_clock_and_replace_what_is_unhealthy(void) {
    makers m;
    cenote_options options = hosted(&m, 2, 4);
    options.healthcheck_interval_ms = 30;
    cenote_pool *pool = pool_of(&options);
    CHECK(m.created == 2);
    m.unhealthy = 1;
    pass(29);
    CHECK(m.checked == 0);
    pass(91);
    CHECK(m.checked >= 4);
    CHECK(m.destroyed == 1 && m.order[0] == 1);
    CHECK(m.created == 3);
    check_counts(pool, 2, 2, 0);
    CHECK_OK(cenote_pool_close(pool));
    int checked = m.checked;
    pass(100);
    CHECK(m.checked == checked);
    end_hosted(pool, &m);
}

static void what_is_idle_for_too_long_goes_and_the_breaker_cools_down(void) {
    makers m;
    cenote_options options = hosted(&m, 0, 2);
    options.idle_timeout_ms = 1000;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    pass(900);
    CHECK(m.destroyed == 0);
    pass(600);
    CHECK(m.destroyed == 1);
    CHECK_OK(cenote_breaker_open_after(pool, 1, 500));
    m.fail_create = -1;
    CHECK(cenote_acquire(pool, 0, &lease) == CENOTE_ERR_CREATE);
    m.created--;
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_INACTIVE);
    pass(600);
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_RECOVERING);
    m.fail_create = 0;
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(cenote_breaker_state(pool) == CENOTE_BREAKER_ACTIVE);
    end_hosted(pool, &m);
}

/* run(arg) may come late, when the pool is long gone. */
static void a_late_call_of_the_loop_does_no_harm(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    cenote_pool *pool = pool_of(&options);
    ask(pool, CENOTE_FOREVER, &r, NULL);
    job late = host.jobs[0];
    turn_until_quiet();
    check_done(&r, CENOTE_OK);
    CHECK_OK(cenote_release(pool, &r.lease));
    end_hosted(pool, &m);
    late.run(late.arg);
    late.run(NULL);
}

/* A callback that runs the host's loop, inside the loop. */
static int create_running_the_loop(void *data, void **resource) {
    turn_until_quiet();
    return create(data, resource);
}

static void a_callback_may_run_the_loop_itself(void) {
    makers m;
    result r[3];
    cenote_options options = hosted(&m, 0, 2);
    options.create = create_running_the_loop;
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        ask(pool, 1000, &r[i], NULL);
    }
    turn_until_quiet();
    check_done(&r[0], CENOTE_OK);
    check_done(&r[1], CENOTE_OK);
    CHECK(r[2].calls == 0);
    CHECK_OK(cenote_release(pool, &r[0].lease));
    turn_until_quiet();
    check_done(&r[2], CENOTE_OK);
    CHECK_OK(cenote_release(pool, &r[1].lease));
    CHECK_OK(cenote_release(pool, &r[2].lease));
    end_hosted(pool, &m);
}

/* A callback that cancels the very waiter it runs for. */
static cenote_pool *cancelling;
static uint64_t to_cancel;
static int cancel_code;

static int create_cancelling(void *data, void **resource) {
    if (to_cancel != 0) {
        cancel_code = cenote_waiter_cancel(cancelling, to_cancel);
        to_cancel = 0;
    }
    return create(data, resource);
}

static void a_callback_may_cancel_the_waiter_it_runs_for(void) {
    makers m;
    result r;
    cenote_options options = hosted(&m, 0, 1);
    options.create = create_cancelling;
    cenote_pool *pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    cancelling = pool;
    cancel_code = CENOTE_EMPTY;
    ask(pool, CENOTE_FOREVER, &r, &to_cancel);
    turn_until_quiet();
    CHECK(to_cancel != 0);
    CHECK_OK(cenote_discard(pool, &lease));
    turn_until_quiet();
    CHECK(cancel_code == CENOTE_OK);
    check_done(&r, CENOTE_ERR_CANCELLED);
    check_counts(pool, 1, 1, 0);
    CHECK(m.created == 2);
    end_hosted(pool, &m);
}

static void a_runtime_without_its_functions_is_an_error_that_names_them(void) {
    makers m;
    cenote_pool *pool;
    cenote_options options = hosted(&m, 0, 1);
    runtime.timer = NULL;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("runtime->timer");
    options = hosted(&m, 0, 1);
    runtime.post = NULL;
    CHECK(cenote_pool_new(&options, &pool) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("runtime->post");
    options = hosted(&m, 0, 1);
    runtime.now = NULL;
    pool = pool_of(&options);
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    end_hosted(pool, &m);
}

int main(void) {
    printf("host\n");
    begin_loop();
    RUN(an_acquire_on_the_hosts_thread_never_waits);
    RUN(waiters_are_called_back_when_the_loop_runs_in_order);
    RUN(what_is_reserved_for_a_waiter_is_nobody_elses_and_goes_on_when_it_cancels);
    RUN(what_is_not_reserved_stays_available);
    RUN(a_pool_that_closes_takes_a_reservation_back);
    RUN(time_runs_out_by_the_hosts_clock);
    RUN(a_timer_that_comes_too_early_is_set_again);
    RUN(health_checks_run_on_the_hosts_clock_and_replace_what_is_unhealthy);
    RUN(what_is_idle_for_too_long_goes_and_the_breaker_cools_down);
    RUN(a_late_call_of_the_loop_does_no_harm);
    RUN(a_callback_may_run_the_loop_itself);
    RUN(a_callback_may_cancel_the_waiter_it_runs_for);
    RUN(a_runtime_without_its_functions_is_an_error_that_names_them);
    end_loop();
    return 0;
}
