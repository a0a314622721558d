// A library with a few functions of NCCL. Each copy has communicators of its own (TAG) and refuses those of others. With OLD it has no figures
// of its memory, as versions before 2.29.7.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef TAG
#define TAG 0x11
#endif
typedef unsigned long long u64;
typedef struct { int tag, calls, is_in_progress; u64 bytes; } Comm;

static void check(Comm *comm) {
    if (comm->tag == TAG) return;
    fprintf(stderr, "a communicator of another NCCL: %x in %x\n", comm->tag, TAG);
    abort();
}
// The real one takes an id of 128 bytes.
int ncclTestInit(Comm **out) {
    *out = calloc(1, sizeof(Comm));
    (*out)->tag = TAG;
    return 0;
}
void ncclTestProgress(Comm *comm, int is_in_progress) { comm->is_in_progress = is_in_progress; }
static int use(Comm *comm) {
    static int (*create)(u64 *, size_t, const void *, u64);
    check(comm);
    if (!create) {
        int (*find)(const char *, void **, int, u64, int *) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
        find("cuMemCreate", (void **)&create, 12000, 0, 0);
    }
    // The first call of a communicator connects.
    u64 handle;
    if (!comm->calls++) comm->bytes = 6 << 20;
    return comm->calls == 1 ? create(&handle, comm->bytes, (void *)0x1234, 0x5678) : 0;
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Comm *comm, void *stream) {
    return count == 3 && type == 7 && op == 1 && stream == (void *)8 ? use(comm) : 4;
}
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, Comm *comm, void *stream) {
    return root == 2 && stream == (void *)8 ? use(comm) : 4;
}
int ncclCommDestroy(Comm *comm) {
    check(comm);
    comm->tag = 0;
    return 0;
}
int ncclCommGetAsyncError(Comm *comm, int *out) {
    check(comm);
    *out = comm->is_in_progress ? 7 : 0;
    return 0;
}
int ncclCommCuDevice(Comm *comm, int *out) {
    check(comm);
    *out = 0;
    return 0;
}
#ifndef OLD
int ncclCommMemStats(Comm *comm, int what, u64 *out) {
    check(comm);
    // The real one prints a warning.
    if (comm->is_in_progress) abort();
    if (getenv("STUB_NCCL_REFUSES")) return 5;
    *out = what == 3 ? comm->bytes : what == 2 ? comm->bytes / 3 : what == 0 ? comm->bytes - comm->bytes / 3 : 0;
    return 0;
}
#endif
