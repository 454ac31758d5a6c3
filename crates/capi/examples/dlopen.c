/*
 * An extension that is not linked to the library: it finds the table of functions when it is
 * loaded, and goes by that.
 *
 *     cc dlopen.c -ldl -o dlopen && ./dlopen libcenote.so.0
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The macros of the header go by this. */
#define CENOTE_API api
#include <cenote.h>

static const cenote_api *api;

static int make(void *data, void **resource) {
    *resource = data;
    return 0;
}

/* Finds the library: the host's own table, if it has registered one. */
static int bind(const char *library) {
    cenote_get_api_fn get_api;
    void *symbol;
    void *found = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (found == NULL || (symbol = dlsym(found, CENOTE_GET_API_NAME)) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    /* What dlsym gives is no function pointer by the letter of C. */
    memcpy(&get_api, &symbol, sizeof get_api);
    api = get_api(CENOTE_API_VERSION);
    if (api == NULL) {
        fprintf(stderr, "%s does not have version %d\n", library, CENOTE_API_VERSION);
    }
    /* It stays loaded: closing this handle would change nothing. */
    dlclose(found);
    return api != NULL;
}

int main(int count, char **words) {
    char resource[] = "found at load time";
    cenote_options options;
    cenote_pool *pool = NULL;
    cenote_lease lease;
    void *object = NULL;

    if (!bind(count > 1 ? words[1] : "libcenote.so.0")) {
        return 1;
    }
    api->options_init(&options, sizeof options);
    options.create = make;
    options.data = resource;
    if (CENOTE_NEW_POOL(&options, &pool) != CENOTE_OK ||
        CENOTE_NEW_POOL_OBJ(pool, &object) != CENOTE_OK ||
        CENOTE_POOL_ACQUIRE(pool, 1000, &lease) != CENOTE_OK) {
        fprintf(stderr, "%s\n", api->last_error_text());
        return 1;
    }
    printf("%s, by version %d of the table\n", (char *)lease.resource, (int)api->version);
    CENOTE_POOL_RELEASE(pool, &lease);
    CENOTE_POOL_CLOSE(pool);
    api->pool_unref((cenote_pool *)object);
    api->pool_unref(pool);
    return 0;
}
