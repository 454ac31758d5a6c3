/*
 * What LLVM's compilers call under ThreadSanitizer and GCC's runtime does not have. The plain
 * functions are watched by that runtime all the same.
 */

#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);

void *__tsan_memcpy(void *to, const void *from, size_t size) {
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size) {
    return memmove(to, from, size);
}

void *__tsan_memset(void *to, int value, size_t size) {
    return memset(to, value, size);
}
