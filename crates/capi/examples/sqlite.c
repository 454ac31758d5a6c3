/*
 * Real connections: eight threads share three SQLite connections to one file.
 *
 *     cc sqlite.c $(pkg-config --cflags --libs cenote sqlite3) -pthread -o sqlite && ./sqlite
 *
 * A connection that is handed out is alive, and one that comes back with a transaction open is
 * rolled back; if that fails, it is closed, and the next one gets another.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cenote.h>
#include <sqlite3.h>

enum { THREADS = 8, ROUNDS = 50 };

static int complain(sqlite3 *db, int code) {
    cenote_set_error_text(db != NULL ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    return code;
}

static int connect(void *data, void **resource) {
    sqlite3 *db = NULL;
    int code = sqlite3_open(data, &db);
    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(db, 10000);
        code = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    }
    if (code != SQLITE_OK) {
        complain(db, code);
        sqlite3_close(db);
        return code;
    }
    *resource = db;
    return 0;
}

static int disconnect(void *data, void *resource) {
    int code = sqlite3_close(resource);
    (void)data;
    return code == SQLITE_OK ? 0 : complain(resource, code);
}

static int is_alive(void *data, void *resource) {
    (void)data;
    return sqlite3_exec(resource, "SELECT 1", NULL, NULL, NULL) != SQLITE_OK;
}

static int clean_up(void *data, void *resource) {
    int code = SQLITE_OK;
    (void)data;
    if (!sqlite3_get_autocommit(resource)) {
        code = sqlite3_exec(resource, "ROLLBACK", NULL, NULL, NULL);
    }
    return code == SQLITE_OK ? 0 : complain(resource, code);
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void run(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail(sql, sqlite3_errmsg(db));
    }
}

static void *work(void *arg) {
    cenote_pool *pool = arg;
    for (int round = 0; round < ROUNDS; round++) {
        cenote_lease lease;
        if (cenote_acquire(pool, 30000, &lease) != CENOTE_OK) {
            fail("acquire", cenote_last_error_text());
        }
        run(lease.resource, "BEGIN IMMEDIATE");
        run(lease.resource, "UPDATE counter SET n = n + 1");
        if (round % 5 == 4) {
            /* Forgotten: the pool rolls it back. */
        } else {
            run(lease.resource, "COMMIT");
        }
        cenote_release(pool, &lease);
    }
    return NULL;
}

static int read_number(void *number, int columns, char **values, char **names) {
    (void)columns;
    (void)names;
    *(int *)number = atoi(values[0]);
    return 0;
}

int main(void) {
    char path[] = "/tmp/cenote-sqlite-XXXXXX";
    pthread_t threads[THREADS];
    cenote_options options;
    cenote_status status = {0};
    cenote_pool *pool;
    cenote_lease lease;
    int number = 0;
    int expected = THREADS * (ROUNDS - ROUNDS / 5);
    int file = mkstemp(path);
    if (file < 0) {
        fail(path, "no temporary file");
    }
    close(file);

    cenote_options_init(&options, sizeof options);
    options.name = "sqlite";
    options.data = path;
    options.create = connect;
    options.destroy = disconnect;
    options.healthcheck = is_alive;
    options.healthcheck_interval_ms = 1000;
    options.before_release = clean_up;
    options.min = 1;
    options.max = 3;
    if (cenote_pool_new(&options, &pool) != CENOTE_OK) {
        fail("cenote_pool_new", cenote_last_error_text());
    }

    if (cenote_acquire(pool, CENOTE_FOREVER, &lease) != CENOTE_OK) {
        fail("acquire", cenote_last_error_text());
    }
    run(lease.resource, "CREATE TABLE counter (n INTEGER NOT NULL)");
    run(lease.resource, "INSERT INTO counter VALUES (0)");
    cenote_release(pool, &lease);

    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, pool) != 0) {
            fail("pthread_create", "no thread");
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }

    if (cenote_acquire(pool, CENOTE_FOREVER, &lease) != CENOTE_OK) {
        fail("acquire", cenote_last_error_text());
    }
    sqlite3_exec(lease.resource, "SELECT n FROM counter", read_number, &number, NULL);
    cenote_release(pool, &lease);
    status.size = sizeof status;
    cenote_pool_status(pool, &status);
    printf("%d committed of %d, the rest rolled back; %d connections for %d threads, %d waited\n",
           number, THREADS * ROUNDS, (int)status.created, THREADS, (int)status.waited);
    if (cenote_pool_close(pool) != CENOTE_OK) {
        fail("close", cenote_last_error_text());
    }
    cenote_pool_unref(pool);
    unlink(path);
    return number == expected ? 0 : 1;
}
