// A program that uses the driver in every way: caller WAY [WHAT] [NUMBER]. WAY is linked, dlsym, v1 or v2.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

typedef unsigned long long u64;
typedef struct { unsigned char bytes[64]; } Handle;
typedef struct { size_t width, height; unsigned format, channels; } Description;

#ifdef LINKED
#define DECLARE(result, name, ...) result name(__VA_ARGS__); static result (*p_##name)(__VA_ARGS__) = name;
#else
#define DECLARE(result, name, ...) static result (*p_##name)(__VA_ARGS__);
#endif
#define EACH(USE) \
    USE(cuInit, "cuInit") USE(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain") \
    USE(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease") USE(cuCtxSetLimit, "cuCtxSetLimit") \
    USE(cuMemAlloc_v2, "cuMemAlloc") USE(cuMemFree_v2, "cuMemFree") USE(cuMemAllocPitch_v2, "cuMemAllocPitch") \
    USE(cuMemCreate, "cuMemCreate") USE(cuMemRelease, "cuMemRelease") USE(cuMemMap, "cuMemMap") \
    USE(cuStreamCreate, "cuStreamCreate") USE(cuStreamDestroy_v2, "cuStreamDestroy") \
    USE(cuEventCreate, "cuEventCreate") USE(cuEventDestroy_v2, "cuEventDestroy") \
    USE(cuModuleLoadData, "cuModuleLoadData") USE(cuLaunchKernel, "cuLaunchKernel") \
    USE(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle") USE(cuMemAllocAsync, "cuMemAllocAsync") \
    USE(cuMemFreeAsync, "cuMemFreeAsync") USE(cuFuncGetAttribute, "cuFuncGetAttribute") USE(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags") \
    USE(cuGraphLaunch, "cuGraphLaunch") USE(cuGraphExecDestroy, "cuGraphExecDestroy") USE(cuArrayCreate_v2, "cuArrayCreate") \
    USE(cuStreamBeginCapture_v2, "cuStreamBeginCapture") USE(cuStreamEndCapture, "cuStreamEndCapture") \
    USE(cuMemcpyHtoD_v2, "cuMemcpyHtoD")

DECLARE(int, cuInit, unsigned)
DECLARE(int, cuDevicePrimaryCtxRetain, void **, int)
DECLARE(int, cuDevicePrimaryCtxRelease_v2, int)
DECLARE(int, cuCtxSetLimit, int, size_t)
DECLARE(int, cuMemAlloc_v2, u64 *, size_t)
DECLARE(int, cuMemFree_v2, u64)
DECLARE(int, cuMemAllocPitch_v2, u64 *, size_t *, size_t, size_t, unsigned)
DECLARE(int, cuMemCreate, u64 *, size_t, const void *, u64)
DECLARE(int, cuMemRelease, u64)
DECLARE(int, cuMemMap, u64, size_t, size_t, u64, u64)
DECLARE(int, cuStreamCreate, void **, unsigned)
DECLARE(int, cuStreamDestroy_v2, void *)
DECLARE(int, cuEventCreate, void **, unsigned)
DECLARE(int, cuEventDestroy_v2, void *)
DECLARE(int, cuModuleLoadData, void **, const void *)
DECLARE(int, cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)
DECLARE(int, cuFuncGetAttribute, int *, int, void *)
DECLARE(int, cuIpcOpenMemHandle_v2, u64 *, Handle, unsigned)
DECLARE(int, cuMemAllocAsync, u64 *, size_t, void *)
DECLARE(int, cuMemFreeAsync, u64, void *)
DECLARE(int, cuGraphInstantiateWithFlags, void **, void *, u64)
DECLARE(int, cuGraphLaunch, void *, void *)
DECLARE(int, cuGraphExecDestroy, void *)
DECLARE(int, cuArrayCreate_v2, void **, const Description *)
DECLARE(int, cuStreamBeginCapture_v2, void *, int)
DECLARE(int, cuStreamEndCapture, void *, void **)
DECLARE(int, cuMemcpyHtoD_v2, u64, const void *, size_t)

static void need(int is_true, const char *what) {
    if (!is_true) {
        fprintf(stderr, "not true: %s\n", what);
        exit(99);
    }
}
#define NEED(what) need(what, #what)
#define MUST(call) do { errno = 0; NEED((call) == 0); NEED(errno == 77); } while (0)

static void find(const char *way) {
    if (!strcmp(way, "linked")) return;
#ifndef LINKED
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    NEED(library != 0);
    int (*v1)(const char *, void **, int, u64) = dlsym(library, "cuGetProcAddress");
    int (*v2)(const char *, void **, int, u64, int *) = dlsym(library, "cuGetProcAddress_v2");
    NEED(v1 != 0 && v2 != 0);
    int status = 5;
    // The newer form asked of the older one, and the other way round.
    if (!strcmp(way, "v1")) NEED(v2("cuGetProcAddress", (void **)&v1, 11040, 0, &status) == 0 && status == 0);
    if (!strcmp(way, "v2")) NEED(v1("cuGetProcAddress", (void **)&v2, 12000, 0) == 0);
    void *missing;
    NEED(v2("cuNoSuchThing", &missing, 12000, 0, &status) == 500 && status == 1);
#define FIND(name, plain) \
    if (!strcmp(way, "dlsym")) p_##name = dlsym(library, #name); \
    if (!strcmp(way, "v1")) NEED(v1(plain, (void **)&p_##name, 11040, 0) == 0); \
    if (!strcmp(way, "v2")) NEED(v2(plain, (void **)&p_##name, 12000, 0, &status) == 0); \
    NEED(p_##name != 0);
    EACH(FIND)
    NEED(dlsym(library, "curious") == 0 && dlerror() != 0);
#endif
}

static void launch(u64 function) {
    MUST(p_cuLaunchKernel((void *)function, 1, 2, 3, 4, 5, 6, 7, (void *)8, (void *)9, (void *)10));
}

static void use_all(void) {
    void *handle;
    u64 first, second, third;
    size_t pitch;
    Handle shared;
    MUST(p_cuInit(0));
    MUST(p_cuDevicePrimaryCtxRetain(&handle, 0));
    NEED(handle == (void *)0xc0ffee);
    MUST(p_cuCtxSetLimit(2, 4 * MIB));
    MUST(p_cuModuleLoadData(&handle, "image"));
    int attribute;
    MUST(p_cuFuncGetAttribute(&attribute, 1, (void *)0xb16));
    for (int turn = 0; turn < 10; turn++) launch(0xb16), launch(0x5a11);
    for (int turn = 0; turn < 4; turn++) MUST(p_cuStreamCreate(&handle, 0));
    MUST(p_cuStreamDestroy_v2(handle));
    for (int turn = 0; turn < 2000; turn++) MUST(p_cuEventCreate(&handle, 0));
    MUST(p_cuMemAlloc_v2(&first, 3 * MIB));
    NEED(p_cuMemAlloc_v2(&second, (size_t)65 << 30) == 2);
    MUST(p_cuMemAllocPitch_v2(&second, &pitch, 1000, 4096, 4));
    NEED(pitch == 1024);
    MUST(p_cuMemCreate(&third, 20 * MIB, (void *)0x1234, 0x5678));
    MUST(p_cuMemMap(0x7000000, 20 * MIB, 0, third, 0));
    MUST(p_cuMemFree_v2(first));
    for (int byte = 0; byte < 64; byte++) shared.bytes[byte] = 3 * byte;
    MUST(p_cuIpcOpenMemHandle_v2(&first, shared, 1));
    u64 blocks[64];
    for (int turn = 0; turn < 64; turn++) MUST(p_cuMemAllocAsync(&blocks[turn], 1000 * 1000, (void *)3));
    for (int turn = 0; turn < 64; turn++) MUST(p_cuMemFreeAsync(blocks[turn], (void *)3));
    // The pool is not looked at while a stream is captured.
    MUST(p_cuStreamBeginCapture_v2((void *)3, 0));
    MUST(p_cuMemAllocAsync(&blocks[0], 2 * MIB, (void *)3));
    MUST(p_cuMemFreeAsync(blocks[0], (void *)3));
    MUST(p_cuStreamEndCapture((void *)3, &handle));
    Description description = {512, 256, 0x20, 4};
    MUST(p_cuArrayCreate_v2(&handle, &description));
    MUST(p_cuGraphInstantiateWithFlags(&handle, (void *)1, 0));
    for (int turn = 0; turn < 3; turn++) MUST(p_cuGraphLaunch(handle, 0));
}

// Another process takes memory: before our context, between calls, inside a call, and gives it back. `shift` is that of a container.
static void neighbour(int shift) {
    void *handle;
    u64 address;
    device()->shift = shift;
    device()->others += 50 * MIB, device()->used += 50 * MIB;
    if (shift) device()->others -= 50 * MIB, device()->used -= 50 * MIB;
    MUST(p_cuInit(0));
    MUST(p_cuDevicePrimaryCtxRetain(&handle, 0));
    usleep(30000);
    MUST(p_cuMemAlloc_v2(&address, 4 * MIB));
    device()->others += 30 * MIB, device()->used += 30 * MIB;
    MUST(p_cuMemFree_v2(address));
    device()->intrudes = 10 * MIB;
    MUST(p_cuMemAlloc_v2(&address, 6 * MIB));
    device()->used -= device()->others, device()->others = 0;
    MUST(p_cuMemAlloc_v2(&address, 2 * MIB));
}

#define TIME(name, count, calls) do { \
    struct timespec begin, end; \
    clock_gettime(CLOCK_MONOTONIC, &begin); \
    for (int turn = 0; turn < (count); turn++) { calls; } \
    clock_gettime(CLOCK_MONOTONIC, &end); \
    printf("%s %.2f\n", name, ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / (count)); \
} while (0)

static volatile int is_over;

static void *random_calls(void *seed) {
    unsigned state = (unsigned)(size_t)seed * 2654435761u;
    void *handle;
    while (!is_over) {
        u64 address;
        usleep(rand_r(&state) % 500);
        switch (rand_r(&state) % 8) {
            case 0: MUST(p_cuMemAlloc_v2(&address, rand_r(&state) % (8 * MIB) + 1)); MUST(p_cuMemFree_v2(address)); break;
            case 1: MUST(p_cuStreamCreate(&handle, 0)); MUST(p_cuStreamDestroy_v2(handle)); break;
            case 2: MUST(p_cuMemAllocAsync(&address, rand_r(&state) % (4 * MIB), 0)); MUST(p_cuMemFreeAsync(address, 0)); break;
            case 3: MUST(p_cuMemCreate(&address, 2 * MIB, (void *)0x1234, 0x5678)); MUST(p_cuMemRelease(address)); break;
            case 4: launch(rand_r(&state) % 100 + 1); break;
            case 5: MUST(p_cuEventCreate(&handle, 0)); MUST(p_cuEventDestroy_v2(handle)); break;
            case 6: MUST(p_cuDevicePrimaryCtxRetain(&handle, 0)); MUST(p_cuDevicePrimaryCtxRelease_v2(0)); break;
            // What others do at the same time.
            case 7: dlclose(dlopen("libm.so.6", RTLD_NOW)); free(malloc(100)); break;
        }
    }
    return 0;
}

static void soak(const char *way, int seconds) {
    pthread_t threads[8];
    void *handle;
    MUST(p_cuInit(0));
    MUST(p_cuDevicePrimaryCtxRetain(&handle, 0));
    for (size_t one = 0; one < 8; one++) pthread_create(&threads[one], 0, random_calls, (void *)(one + 1));
    time_t end = time(0) + seconds;
    int forks = 0;
    while (time(0) < end) {
        pid_t child = fork();
        NEED(child >= 0);
        if (!child) {
            u64 address;
            MUST(p_cuMemAlloc_v2(&address, 4 * MIB));
            MUST(p_cuMemFree_v2(address));
            if (forks % 3 == 0) kill(getpid(), SIGKILL);
            _exit(forks % 100);
        }
        int status;
        NEED(waitpid(child, &status, 0) == child);
        if (forks % 3 == 0) NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else NEED(WIFEXITED(status) && WEXITSTATUS(status) == forks % 100);
        forks++;
        usleep(20000);
    }
    is_over = 1;
    for (int one = 0; one < 8; one++) pthread_join(threads[one], 0);
    printf("%d forks by %s\n", forks, way);
}

static void *allocate(void *unused) {
    u64 address;
    for (int turn = 0; turn < 50; turn++) {
        MUST(p_cuMemAlloc_v2(&address, 2 * MIB));
        MUST(p_cuMemFree_v2(address));
    }
    return 0;
}

static void at_end(void) {
    u64 address;
    MUST(p_cuMemAlloc_v2(&address, 2 * MIB));
}

int main(int count, char **words) {
    const char *way = words[1], *what = count > 2 ? words[2] : "all";
    int number = count > 3 ? atoi(words[3]) : 0;
    // Registered before the driver is used, so it is called late.
    if (!strcmp(what, "exit")) atexit(at_end);
    find(way);
    if (!strcmp(what, "all")) use_all();
    if (!strcmp(what, "soak")) soak(way, number);
    if (!strcmp(what, "threads")) {
        pthread_t threads[8];
        use_all();
        for (int one = 0; one < 8; one++) pthread_create(&threads[one], 0, allocate, 0);
        for (int one = 0; one < 8; one++) pthread_join(threads[one], 0);
    }
    if (!strcmp(what, "fork")) {
        MUST(p_cuInit(0));
        if (!fork()) {
            use_all();
            _exit(7);
        }
        int status;
        wait(&status);
        NEED(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    if (!strcmp(what, "exit")) use_all(), exit(number);
    if (!strcmp(what, "signal")) use_all(), kill(getpid(), number), pause();
    if (!strcmp(what, "closes")) {
        // A daemon closes everything and opens files of its own.
        use_all();
        for (int file = 3; file < 1024; file++) close(file);
        for (int file = 3; file < 1020; file++) dup(1);
        use_all();
    }
    if (!strcmp(what, "neighbour")) neighbour(number);
    if (!strcmp(what, "cost")) {
        // Nanoseconds of calls that happen all the time.
        u64 address;
        use_all();
        TIME("launch", number, p_cuLaunchKernel((void *)0xb16, 1, 2, 3, 4, 5, 6, 7, (void *)8, (void *)9, (void *)10));
        TIME("graph", number, p_cuGraphLaunch((void *)0x6e, 0));
        TIME("copy", number, p_cuMemcpyHtoD_v2(0, 0, 0));
        TIME("pool", number, p_cuMemAllocAsync(&address, 1000, 0); p_cuMemFreeAsync(address, 0));
        TIME("memory", number / 100, p_cuMemAlloc_v2(&address, 1000); p_cuMemFree_v2(address));
        return 0;
    }
    // What a user's own preloaded library counted.
    long (*counted)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "counted");
    if (counted) printf("counted %s\n", counted() > 0 ? "calls" : "nothing");
    printf("done\n");
    return 0;
}
