/* Prints the size of each aligned allocation: XNNPACK packs weights into these. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int posix_memalign(void **memory, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "posix_memalign");
    fprintf(stderr, "allocated %zu\n", size);
    return real(memory, alignment, size);
}
