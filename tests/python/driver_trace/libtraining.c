// Stands for a framework that uses NCCL: linked with it, with a copy of it inside (INSIDE), or through dlsym (DLSYM).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#ifdef INSIDE
#define TAG 0x22
#include "libnccl.c"
#else
typedef struct Comm Comm;
int ncclTestInit(Comm **);
void ncclTestProgress(Comm *, int);
int ncclAllReduce(const void *, void *, size_t, int, int, Comm *, void *);
int ncclReduce(const void *, void *, size_t, int, int, int, Comm *, void *);
int ncclCommDestroy(Comm *);
#endif

int training_step(int calls) {
    int (*reduce)(const void *, void *, size_t, int, int, Comm *, void *) = ncclAllReduce;
    int (*destroy)(Comm *) = ncclCommDestroy;
#ifdef DLSYM
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    reduce = dlsym(library, "ncclAllReduce");
    destroy = dlsym(library, "ncclCommDestroy");
#endif
    Comm *comm;
    int result = ncclTestInit(&comm);
    for (int call = 0; call < calls && !result; call++) {
        // The fourth call comes while an operation is in progress.
        ncclTestProgress(comm, call == 3);
        result = reduce(0, 0, 3, 7, 1, comm, (void *)8);
    }
    ncclTestProgress(comm, 0);
    result = result ? result : ncclReduce(0, 0, 3, 7, 1, 2, comm, (void *)8);
    return result ? result : destroy(comm);
}
