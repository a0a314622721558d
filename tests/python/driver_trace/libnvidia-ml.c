// A library with the few functions of NVML that the interposer asks.
#include <string.h>

#include "device.h"

static int first, second;

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = index ? &second : &first;
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    if (strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")) return 6;
    *out = &first;
    return 0;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory *out) {
    if (out->version != (sizeof(Memory) | 2 << 24) || handle != &first) return 2;
    out->total = 80ll << 30, out->reserved = 1 << 30, out->used = device()->used;
    out->free = out->total - out->reserved - out->used;
    return 0;
}
typedef struct { unsigned number; unsigned long long used; unsigned instances[2]; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    unsigned room = *count, found = 0;
    device()->lists++;
    if (handle != &first || room < 2) return 7;
    if (device()->contexts) out[found++] = (Process){getpid() + device()->shift, device()->used - device()->others, {~0u, ~0u}};
    if (device()->others) out[found++] = (Process){999999, device()->others, {~0u, ~0u}};
    *count = found;
    return 0;
}
