// Stands for an allocator that a user preloads: counts calls of malloc, and finds the next malloc as such libraries do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

static void *(*next)(size_t);
static _Atomic long calls;

void *malloc(size_t bytes) {
    if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    calls++;
    return next(bytes);
}
long counted(void) { return calls; }
