/*
 * Events, the visit of a garbage collector, and the table of functions.
 */

#include "check.h"

typedef struct diary {
    cenote_pool *pool;
    char kinds[128];
    uint64_t resource;
    uint32_t reason;
    uint32_t hook;
    uint32_t from, to;
    uint32_t phase;
    char error[128];
    int disposed;
} diary;

static void write_down(void *data, cenote_pool *pool, const cenote_event *event) {
    diary *d = data;
    size_t length = strlen(d->kinds);
    CHECK(pool == d->pool);
    CHECK(event->size == sizeof *event);
    CHECK(length + 1 < sizeof d->kinds);
    d->kinds[length] = " cfardhwtlbxD"[event->kind];
    d->resource = event->resource;
    if (event->kind == CENOTE_EVENT_DESTROYED) {
        d->reason = event->reason;
    }
    if (event->kind == CENOTE_EVENT_HOOK_FAILED) {
        d->hook = event->hook;
    }
    if (event->kind == CENOTE_EVENT_BREAKER_CHANGED) {
        d->from = event->from;
        d->to = event->to;
    }
    if (event->kind == CENOTE_EVENT_TIMED_OUT) {
        d->phase = event->phase;
    }
    if (event->error != NULL) {
        snprintf(d->error, sizeof d->error, "%s", event->error);
    }
}

static void close_diary(void *data) {
    diary *d = data;
    d->disposed++;
}

static void expect(diary *d, const char *kinds) {
    if (strcmp(d->kinds, kinds) != 0) {
        fprintf(stderr, "events: %s, expected: %s\n", d->kinds, kinds);
    }
    CHECK(strcmp(d->kinds, kinds) == 0);
    memset(d->kinds, 0, sizeof d->kinds);
}

static void everything_that_happens_is_told_in_order(void) {
    makers m;
    diary d = {0};
    uint64_t id = 0;
    cenote_options options = things(&m, 0, 1);
    options.before_release = thing_before_release;
    options.backoff_first_ms = 0;
    cenote_pool *pool = pool_of(&options);
    d.pool = pool;
    CHECK_OK(cenote_event_add_callback(pool, write_down, &d, close_diary, &id));
    CHECK(id != 0);
    cenote_lease lease = acquired(pool), none;
    expect(&d, "ca");
    CHECK(d.resource == 1);
    CHECK(cenote_acquire(pool, 1, &none) == CENOTE_ERR_TIMEOUT);
    /* On a slow machine its time is over before it could begin to wait. */
    expect(&d, d.kinds[0] == 'w' ? "wt" : "t");
    CHECK(d.phase == CENOTE_PHASE_WAITING);
    CHECK_OK(cenote_release(pool, &lease));
    expect(&d, "r");
    lease = acquired(pool);
    m.refuse_release = 1;
    CHECK_OK(cenote_release(pool, &lease));
    expect(&d, "ahd");
    CHECK(d.hook == CENOTE_HOOK_BEFORE_RELEASE && d.reason == CENOTE_REASON_RELEASE_REJECTED);
    CHECK(strstr(d.error, "before_release callback returned 9: worn out") != NULL);
    m.fail_create = -1;
    CHECK(cenote_acquire(pool, CENOTE_FOREVER, &none) == CENOTE_ERR_CREATE);
    expect(&d, "f");
    CHECK(strstr(d.error, "no route to the thing") != NULL);
    m.fail_create = 0;
    lease = acquired(pool);
    expect(&d, "ca");
    CHECK_OK(cenote_discard(pool, &lease));
    expect(&d, "d");
    CHECK(d.reason == CENOTE_REASON_DISCARDED);
    CHECK_OK(cenote_breaker_deactivate(pool));
    CHECK_OK(cenote_breaker_activate(pool));
    expect(&d, "bb");
    CHECK(d.from == CENOTE_BREAKER_INACTIVE && d.to == CENOTE_BREAKER_ACTIVE);
    CHECK_OK(cenote_pool_close(pool));
    expect(&d, "xD");
    end(pool, &m);
    CHECK(d.disposed == 1);
}

static void events_stop_start_and_callbacks_go(void) {
    makers m;
    diary one = {0}, two = {0};
    uint64_t first, second;
    cenote_options options = things(&m, 1, 1);
    cenote_pool *pool = pool_of(&options);
    one.pool = two.pool = pool;
    CHECK_OK(cenote_event_add_callback(pool, write_down, &one, close_diary, &first));
    CHECK_OK(cenote_event_add_callback(pool, write_down, &two, close_diary, &second));
    CHECK(first != second);
    CHECK_OK(cenote_event_stop(pool));
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_event_start(pool));
    CHECK_OK(cenote_release(pool, &lease));
    expect(&one, "r");
    expect(&two, "r");
    CHECK_OK(cenote_event_del_callback(pool, first));
    CHECK(one.disposed == 1 && two.disposed == 0);
    CHECK(cenote_event_del_callback(pool, first) == CENOTE_ERR_ARGUMENT);
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    expect(&one, "");
    expect(&two, "ar");
    CHECK_OK(cenote_event_dispose(pool));
    CHECK(two.disposed == 1);
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    expect(&two, "");
    /* It can begin anew. */
    CHECK_OK(cenote_event_add_callback(pool, write_down, &two, NULL, NULL));
    lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    expect(&two, "ar");
    end(pool, &m);
    CHECK(one.disposed == 1 && two.disposed == 1);
}

/* A callback that removes itself, and one that uses the pool. */
typedef struct reflexive {
    uint64_t id;
    int calls;
} reflexive;

static void once(void *data, cenote_pool *pool, const cenote_event *event) {
    reflexive *r = data;
    (void)event;
    r->calls++;
    CHECK_OK(cenote_event_del_callback(pool, r->id));
    CHECK(cenote_pool_total(pool) >= 0);
}

static void a_callback_may_remove_itself(void) {
    makers m;
    reflexive r = {0};
    cenote_options options = things(&m, 1, 1);
    cenote_pool *pool = pool_of(&options);
    CHECK_OK(cenote_event_add_callback(pool, once, &r, NULL, &r.id));
    cenote_lease lease = acquired(pool);
    CHECK_OK(cenote_release(pool, &lease));
    CHECK(r.calls == 1);
    end(pool, &m);
}

/* A callback that takes the next one away, in the middle of telling both. */
typedef struct jealous {
    int how;
    uint64_t other;
} jealous;

static void take_away(void *data, cenote_pool *pool, const cenote_event *event) {
    jealous *j = data;
    (void)event;
    switch (j->how) {
    case 0:
        CHECK_OK(cenote_event_del_callback(pool, j->other));
        break;
    case 1:
        CHECK_OK(cenote_event_dispose(pool));
        break;
    default:
        CHECK_OK(cenote_event_stop(pool));
        break;
    }
    j->how = 2;
}

static void who_is_removed_while_an_event_is_told_is_not_called_any_more(void) {
    for (int how = 0; how < 3; how++) {
        makers m;
        diary d = {0};
        jealous j = {how, 0};
        cenote_options options = things(&m, 1, 1);
        cenote_pool *pool = pool_of(&options);
        d.pool = pool;
        CHECK_OK(cenote_event_add_callback(pool, take_away, &j, NULL, NULL));
        CHECK_OK(cenote_event_add_callback(pool, write_down, &d, close_diary, &j.other));
        cenote_lease lease = acquired(pool);
        expect(&d, "");
        CHECK(d.disposed == (how < 2));
        CHECK_OK(cenote_release(pool, &lease));
        end(pool, &m);
    }
}

/* ---- the garbage collector -------------------------------------------------- */

typedef struct marks {
    int numbers[8];
    int count;
} marks;

static void mark(void *data, void *resource) {
    marks *seen = data;
    seen->numbers[seen->count++] = ((thing *)resource)->number;
}

/* P-053a, P-053b: what the host's collector needs to see through the pool. */
static void a_visit_shows_what_the_pool_alone_holds(void) {
    makers m;
    marks seen = {{0}, 0};
    cenote_lease leases[3];
    /* With min = 0, so that nobody refills in the background. */
    cenote_options options = things(&m, 0, 5);
    cenote_pool *pool = pool_of(&options);
    for (int i = 0; i < 3; i++) {
        leases[i] = acquired(pool);
    }
    CHECK(cenote_pool_visit(pool, mark, &seen) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(cenote_release(pool, &leases[i]));
    }
    CHECK(cenote_pool_visit(pool, mark, &seen) == 3);
    CHECK(seen.count == 3 && seen.numbers[0] + seen.numbers[1] + seen.numbers[2] == 6);
    cenote_lease out = acquired(pool);
    memset(&seen, 0, sizeof seen);
    CHECK(cenote_pool_visit(pool, mark, &seen) == 2);
    CHECK(seen.numbers[0] + seen.numbers[1] == 6 - number_of(&out));
    CHECK_OK(cenote_discard(pool, &out));
    CHECK_OK(cenote_pool_close(pool));
    CHECK(cenote_pool_visit(pool, mark, &seen) == 0);
    end(pool, &m);
}

/* ---- the table of functions ------------------------------------------------- */

static void the_table_has_every_function(void) {
    const cenote_api *api = cenote_get_api(CENOTE_API_VERSION);
    CHECK(api != NULL);
    CHECK(cenote_get_api(0) == NULL && cenote_get_api(CENOTE_API_VERSION + 1) == NULL);
    CHECK(api->size == sizeof *api && api->version == CENOTE_API_VERSION);
    CHECK(api->events != NULL && api->events->size == sizeof *api->events);
    for (size_t at = 0; at < sizeof *api / sizeof(void *); at++) {
        CHECK(((void *const *)api)[at] != NULL);
    }
    CHECK(api->acquire == cenote_acquire && api->events->stop == cenote_event_stop);
}

static void the_macros_go_by_the_table(void) {
    makers m;
    cenote_lease lease;
    cenote_pool *pool = NULL;
    void *object = NULL;
    cenote_options options = things(&m, 0, 1);
    CHECK_OK(CENOTE_NEW_POOL(&options, &pool));
    CHECK_OK(CENOTE_NEW_POOL_OBJ(pool, &object));
    CHECK(object == pool);
    CHECK_OK(CENOTE_POOL_ACQUIRE(pool, 100, &lease));
    CHECK_OK(CENOTE_POOL_RELEASE(pool, &lease));
    CHECK_OK(CENOTE_POOL_CLOSE(pool));
    CHECK_OK(cenote_pool_unref(object));
    end(pool, &m);
}

/* A host with its own idea of acquiring and of objects; the rest is the library's. */
static const cenote_api *library;
static int acquires;

static int counting_acquire(cenote_pool *pool, int64_t timeout_ms, cenote_lease *lease) {
    acquires++;
    return library->acquire(pool, timeout_ms, lease);
}

static int wrapping_object(cenote_pool *pool, void **object) {
    cenote_pool **box = malloc(sizeof *box);
    CHECK(box != NULL);
    CHECK_OK(library->pool_ref(pool));
    *box = pool;
    *object = box;
    return CENOTE_OK;
}

static void a_host_can_register_a_table_of_its_own(void) {
    static cenote_api theirs;
    makers m;
    cenote_lease lease;
    cenote_pool *pool = NULL;
    void *object = NULL;
    library = cenote_get_api(CENOTE_API_VERSION);
    theirs = *library;
    theirs.size = 16;
    CHECK(cenote_register_api(&theirs) == CENOTE_ERR_ARGUMENT);
    theirs = *library;
    theirs.version = 7;
    CHECK(cenote_register_api(&theirs) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("version 7");
    theirs = *library;
    theirs.acquire = NULL;
    CHECK(cenote_register_api(&theirs) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("NULL");
    theirs = *library;
    cenote_event_table events = *library->events;
    theirs.events = &events;
    events.size = 8;
    CHECK(cenote_register_api(&theirs) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("table of events has 8 bytes");
    events = *library->events;
    events.stop = NULL;
    CHECK(cenote_register_api(&theirs) == CENOTE_ERR_ARGUMENT);
    CHECK_SAYS("table of events is NULL");
    CHECK(cenote_get_api(CENOTE_API_VERSION) == library);
    theirs = *library;
    theirs.acquire = counting_acquire;
    theirs.pool_object = wrapping_object;
    CHECK_OK(cenote_register_api(&theirs));
    CHECK(cenote_get_api(CENOTE_API_VERSION) == &theirs);
    cenote_options options = things(&m, 0, 1);
    CHECK_OK(CENOTE_NEW_POOL(&options, &pool));
    CHECK_OK(CENOTE_NEW_POOL_OBJ(pool, &object));
    CHECK_OK(CENOTE_POOL_ACQUIRE(pool, 0, &lease));
    CHECK(acquires == 1);
    CHECK_OK(CENOTE_POOL_RELEASE(pool, &lease));
    CHECK(*(cenote_pool **)object == pool);
    CHECK_OK(cenote_pool_unref(*(cenote_pool **)object));
    free(object);
    CHECK_OK(cenote_register_api(NULL));
    CHECK(cenote_get_api(CENOTE_API_VERSION) == library);
    end(pool, &m);
}

int main(void) {
    printf("events\n");
    RUN(everything_that_happens_is_told_in_order);
    RUN(events_stop_start_and_callbacks_go);
    RUN(a_callback_may_remove_itself);
    RUN(who_is_removed_while_an_event_is_told_is_not_called_any_more);
    RUN(a_visit_shows_what_the_pool_alone_holds);
    RUN(the_table_has_every_function);
    RUN(the_macros_go_by_the_table);
    RUN(a_host_can_register_a_table_of_its_own);
    return 0;
}
