/*
 * One checkout and return from C and from Rust's closure path, side by side in one run.
 *
 *     bench             measures, prints a table, fails if C costs 40 ns more
 *     bench CASE COUNT  only makes so many checkouts, to be counted under callgrind
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cenote.h>

/* The Rust side. */
void rust_plain(long rounds);
void rust_hooks(long rounds);
void rust_blocking(long rounds);

enum { ROUNDS = 100000, SAMPLES = 41, ALLOWED = 40 };

static int make(void *data, void **resource) {
    *resource = data;
    return 0;
}

static int look(void *data, void *resource) {
    (void)data;
    return *(volatile long *)resource < 0;
}

static void checkouts(long rounds, cenote_resource_fn hook) {
    long uses = 0;
    cenote_pool *pool;
    cenote_lease lease;
    cenote_options options;
    cenote_options_init(&options, sizeof options);
    options.create = make;
    options.data = &uses;
    options.before_acquire = hook;
    options.before_release = hook;
    if (cenote_pool_new(&options, &pool) != CENOTE_OK) {
        fprintf(stderr, "%s\n", cenote_last_error_text());
        exit(1);
    }
    for (long i = 0; i < rounds; i++) {
        if (cenote_acquire(pool, 1000, &lease) != CENOTE_OK) {
            fprintf(stderr, "%s\n", cenote_last_error_text());
            exit(1);
        }
        ++*(long *)lease.resource;
        cenote_release(pool, &lease);
    }
    if (uses != rounds) {
        fprintf(stderr, "%ld uses instead of %ld\n", uses, rounds);
        exit(1);
    }
    cenote_pool_unref(pool);
}

static void c_plain(long rounds) {
    checkouts(rounds, NULL);
}

static void c_hooks(long rounds) {
    checkouts(rounds, look);
}

static const struct {
    const char *name;
    void (*run)(long rounds);
} cases[] = {
    {"rust-plain", rust_plain},       {"c-plain", c_plain}, {"rust-hooks", rust_hooks},
    {"c-hooks", c_hooks},             {"rust-blocking", rust_blocking},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double nanos(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int count, char **words) {
    static double samples[CASES][SAMPLES];
    double median[CASES];
    int failed = 0;
    if (count == 3) {
        for (int i = 0; i < CASES; i++) {
            if (strcmp(words[1], cases[i].name) == 0) {
                cases[i].run(atol(words[2]));
                return 0;
            }
        }
        fprintf(stderr, "there is no case %s\n", words[1]);
        return 1;
    }
    /* In turns, so that a busy moment of the machine hits all of them. */
    for (int sample = 0; sample < SAMPLES; sample++) {
        for (int i = 0; i < CASES; i++) {
            double began = nanos();
            cases[i].run(ROUNDS);
            samples[i][sample] = (nanos() - began) / ROUNDS;
        }
    }
    printf("%-16s%10s%10s\n", "checkout", "median", "best");
    for (int i = 0; i < CASES; i++) {
        qsort(samples[i], SAMPLES, sizeof(double), compare);
        median[i] = samples[i][SAMPLES / 2];
        printf("%-16s%7.1f ns%7.1f ns\n", cases[i].name, median[i], samples[i][0]);
    }
    for (int i = 0; i < 4; i += 2) {
        double more = median[i + 1] - median[i];
        printf("%s costs %.1f ns more than %s (allowed: %d)\n", cases[i + 1].name, more,
               cases[i].name, ALLOWED);
        failed |= more > ALLOWED;
    }
    return failed;
}
