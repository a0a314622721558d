// A library with the names and forms of NVIDIA's driver, written for tests of the interposer. It takes memory as a driver does: for the
// context, for streams, for the first launch of a function. It checks that every argument arrives as it was sent.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "device.h"

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NOT_FOUND = 500 };
typedef unsigned long long u64;
typedef struct { unsigned char bytes[64]; } Handle;

static _Atomic int is_initialized, has_context;
static _Atomic u64 pool_reserved, pool_used;
static _Thread_local int captures;

#define CALLED (device()->calls++, errno = 77)

int cuInit(unsigned flags) {
    CALLED;
    if (!is_initialized++) device()->used += 2 * MIB;
    return flags ? INVALID : OK;
}
int cuDeviceGetUuid_v2(unsigned char *out, int number) {
    if (!is_initialized) return NOT_INITIALIZED;
    for (int byte = 0; byte < 16; byte++) out[byte] = byte;
    return number ? INVALID : OK;
}
int cuCtxGetDevice(int *out) {
    *out = 0;
    return has_context ? OK : 201;
}
int cuDevicePrimaryCtxRetain(void **out, int number) {
    CALLED;
    if (!has_context++) device()->used += 500 * MIB, device()->contexts++;
    *out = (void *)0xc0ffee;
    return number ? INVALID : OK;
}
int cuCtxSetCurrent(void *context) { CALLED; return OK; }
int cuDevicePrimaryCtxRelease_v2(int number) {
    CALLED;
    if (!--has_context) device()->used -= 500 * MIB, device()->contexts--;
    return OK;
}
int cuCtxSetLimit(int limit, size_t value) {
    CALLED;
    device()->used += 4 * MIB;
    return OK;
}
// The size is kept at the address. Memory comes in pages of 2 MiB.
static u64 paged(u64 bytes) { return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB); }
static int take(u64 *out, u64 bytes) {
    if (bytes > 64ll << 30) return OUT_OF_MEMORY;
    u64 *block = malloc(sizeof(u64));
    *block = bytes;
    long intrudes = atomic_exchange(&device()->intrudes, 0);
    device()->others += intrudes, device()->used += paged(bytes) + intrudes;
    *out = (u64)block;
    return OK;
}
static int give(u64 address) {
    device()->used -= paged(*(u64 *)address);
    free((void *)address);
    return OK;
}
int cuMemAlloc_v2(u64 *out, size_t bytes) { CALLED; return take(out, bytes); }
int cuMemFree_v2(u64 address) { CALLED; return give(address); }
int cuMemAllocPitch_v2(u64 *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    CALLED;
    *pitch = (width + 511) / 512 * 512;
    return element == 4 ? take(out, *pitch * height) : INVALID;
}
int cuMemCreate(u64 *out, size_t bytes, const void *properties, u64 flags) {
    CALLED;
    return properties == (void *)0x1234 && flags == 0x5678 ? take(out, bytes) : INVALID;
}
int cuMemRelease(u64 handle) { CALLED; return give(handle); }
int cuMemMap(u64 address, size_t bytes, size_t offset, u64 handle, u64 flags) {
    CALLED;
    return offset == 0 && flags == 0 && handle ? OK : INVALID;
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    CALLED;
    *out = (void *)0xdead0000;
    return OK;
}
int cuStreamCreate(void **out, unsigned flags) {
    CALLED;
    device()->used += MIB / 2;
    *out = (void *)0x57;
    return OK;
}
int cuStreamCreateWithPriority(void **out, unsigned flags, int priority) { return cuStreamCreate(out, flags); }
int cuStreamDestroy_v2(void *stream) { CALLED; device()->used -= MIB / 2; return OK; }
int cuEventCreate(void **out, unsigned flags) { CALLED; *out = (void *)0xe7; return OK; }
int cuEventDestroy_v2(void *event) { CALLED; return OK; }
int cuModuleLoadData(void **out, const void *image) {
    CALLED;
    device()->used += 2 * MIB;
    *out = (void *)0x30d;
    return OK;
}
int cuModuleUnload(void *module) { CALLED; device()->used -= 2 * MIB; return OK; }
// The first launch of the function 0xbig takes local memory.
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **arguments, void **extra) {
    static _Atomic int is_first = 1;
    CALLED;
    if (x != 1 || y != 2 || z != 3 || bx != 4 || by != 5 || bz != 6 || shared != 7 || stream != (void *)8) return INVALID;
    if (arguments != (void *)9 || extra != (void *)10) return INVALID;
    if (function == (void *)0xb16 && is_first) is_first = 0, device()->used += 92 * MIB;
    return OK;
}
int cuModuleGetFunction(void **out, void *module, const char *name) { CALLED; *out = (void *)0xf00; return OK; }
int cuLaunchKernelEx(const void *config, void *function, void **arguments, void **extra) { CALLED; return config ? OK : INVALID; }
int cuMemcpyAsync(u64 to, u64 from, size_t bytes, void *stream) { CALLED; return OK; }
int cuEventRecord(void *event, void *stream) { CALLED; return OK; }
int cuStreamSynchronize(void *stream) { CALLED; return OK; }
int cuStreamIsCapturing(void *stream, int *out) { CALLED; *out = captures; return OK; }
int cuFuncGetAttribute(int *out, int attribute, void *function) { CALLED; *out = 256; return OK; }
int cuIpcOpenMemHandle_v2(u64 *out, Handle handle, unsigned flags) {
    CALLED;
    for (int byte = 0; byte < 64; byte++)
        if (handle.bytes[byte] != 3 * byte) return INVALID;
    return flags == 1 ? take(out, MIB) : INVALID;
}
int cuStreamBeginCapture_v2(void *stream, int mode) { CALLED; captures++; return OK; }
int cuStreamEndCapture(void *stream, void **out) { CALLED; captures--; *out = (void *)0x6a; return OK; }
int cuGraphLaunch(void *graph, void *stream) { CALLED; return OK; }
int cuGraphExecDestroy(void *graph) { CALLED; device()->used -= 6 * MIB; return OK; }
typedef struct { size_t width, height; unsigned format, channels; } Description;
int cuArrayCreate_v2(void **out, const Description *what) {
    CALLED;
    device()->used += 2 * MIB;
    *out = (void *)0xa7;
    return what->width == 512 && what->format == 0x20 ? OK : INVALID;
}
int cuDeviceGetMemPool(void **out, int number) { *out = (void *)0x9001; return OK; }
int cuMemPoolGetAttribute(void *pool, int attribute, u64 *out) {
    // Nobody may ask while a stream is captured.
    if (captures) abort();
    if (pool != (void *)0x9001) return INVALID;
    *out = attribute == 5 ? pool_reserved : pool_used;
    return OK;
}
int cuMemAllocAsync(u64 *out, size_t bytes, void *stream) {
    CALLED;
    pool_used += bytes;
    while (pool_reserved < pool_used) pool_reserved += 32 * MIB, device()->used += 32 * MIB;
    u64 *block = malloc(sizeof(u64));
    *block = bytes;
    *out = (u64)block;
    return OK;
}
int cuMemFreeAsync(u64 address, void *stream) {
    CALLED;
    pool_used -= *(u64 *)address;
    free((void *)address);
    return OK;
}
int cuGraphInstantiateWithFlags(void **out, void *graph, u64 flags) {
    CALLED;
    device()->used += 6 * MIB;
    *out = (void *)0x6e;
    return OK;
}
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) { CALLED; return OK; }
int cuDriverGetVersion(int *out) { *out = 13000; return OK; }

// Names are those of the newest version. The older form is handed out to programs of older versions.
int cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *status);
int cuGetProcAddress(const char *name, void **out, int version, u64 flags) {
    return cuGetProcAddress_v2(name, out, version, flags, 0);
}
static void *own(const char *name) {
    Dl_info info;
    if (!dladdr((void *)&cuInit, &info)) return 0;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    // By its version, so that nobody stands between a driver and its own functions.
    return library ? dlvsym(library, name, "STUB_1") : 0;
}
int cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *status) {
    static const char *endings[] = {"_v2", ""};
    char full[128];
    for (int ending = 0; ending < 2; ending++) {
        if (!strcmp(name, "cuGetProcAddress") && version < 12000 && !*endings[ending] == 0) continue;
        strcpy(full, name), strcat(full, endings[ending]);
        *out = own(full);
        if (*out) {
            if (status) *status = 0;
            return OK;
        }
    }
    if (status) *status = 1;
    return NOT_FOUND;
}
