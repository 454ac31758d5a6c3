/*
 * The smallest program: a pool of buffers.
 *
 *     cc hello.c $(pkg-config --cflags --libs cenote) -o hello && ./hello
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cenote.h>

static int make_buffer(void *data, void **resource) {
    (void)data;
    *resource = calloc(1, 4096);
    return *resource == NULL;
}

static int free_buffer(void *data, void *resource) {
    (void)data;
    free(resource);
    return 0;
}

int main(void) {
    cenote_pool *pool;
    cenote_options options;
    cenote_lease lease;

    cenote_options_init(&options, sizeof options);
    options.create = make_buffer;
    options.destroy = free_buffer;
    options.max = 4;
    if (cenote_pool_new(&options, &pool) != CENOTE_OK) {
        fprintf(stderr, "no pool: %s\n", cenote_last_error_text());
        return 1;
    }
    if (cenote_acquire(pool, 1000, &lease) != CENOTE_OK) {
        fprintf(stderr, "no buffer: %s\n", cenote_last_error_text());
        return 1;
    }
    strcpy(lease.resource, "hello");
    printf("%s, %d of 4 in use\n", (char *)lease.resource, cenote_pool_active(pool));
    cenote_release(pool, &lease);
    cenote_pool_unref(pool);
    return 0;
}
