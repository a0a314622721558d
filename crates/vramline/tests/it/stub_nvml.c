// A library with NVML's names and forms, written for tests of the code that calls it. Two devices: one in working order that is
// divided in two, one that has fallen off the bus. With OLD it lacks what came with later drivers; with BROKEN it does not start. With
// MANY there are eight whole devices instead, and the processes that the file STUB_NVML_PIDS lists, in turn on each.
#include <string.h>
#ifdef MANY
#include <stdio.h>
#include <stdlib.h>
#endif

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } Process;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } Pci;
typedef struct { unsigned gpu, memory; unsigned long long max, time, start; unsigned running, reserved[5]; } Stats;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, LOST = 15 };

#ifdef MANY
#define DEVICES 8
static int numbers[DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};
#else
static int whole = 0, lost = 1, parts[2] = {2, 3};
#endif
#define NUMBER(device) (*(int *)(device))

#ifdef BROKEN
int nvmlInit_v2(void) { return NOT_LOADED; }
#else
int nvmlInit_v2(void) { return OK; }
#endif
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { strncpy(out, "535.1.2", size); return OK; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { strncpy(out, "12.535.1.2", size); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 12020; return OK; }
#ifdef MANY
static const unsigned long long GIB = 1ULL << 30, EACH = 512ULL << 20;
// The processes of the file, device by device: each holds 512 MiB.
static unsigned listed(int number, Process *out, unsigned room) {
    const char *path = getenv("STUB_NVML_PIDS");
    FILE *file = path ? fopen(path, "r") : NULL;
    unsigned pid, at = 0, count = 0;
    while (file && fscanf(file, "%u", &pid) == 1) {
        if (at++ % DEVICES != (unsigned)number) continue;
        if (out && count < room) out[count] = (Process){pid, EACH, 0, 0};
        count++;
    }
    if (file) fclose(file);
    return count;
}
int nvmlDeviceGetCount_v2(unsigned *out) { *out = DEVICES; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= DEVICES) return INVALID;
    *out = &numbers[index];
    return OK;
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) { snprintf(out, size, "GPU-stub-%d", NUMBER(device)); return OK; }
int nvmlDeviceGetName(void *device, char *out, unsigned size) { (void)device; strncpy(out, "Stub", size); return OK; }
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *out) {
    out->total = 80 * GIB, out->reserved = GIB / 2;
    out->used = EACH * listed(NUMBER(device), NULL, 0);
    out->free = out->total - out->reserved - out->used;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *out) {
    unsigned room = *count;
    *count = listed(NUMBER(device), out, room);
    return *count > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *out) {
    (void)device, (void)out;
    *count = 0;
    return OK;
}
#else
// A third device is there, and not for this user.
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 3; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index > 1) return NO_PERMISSION;
    *out = index ? &lost : &whole;
    return OK;
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    const char *names[] = {"GPU-aa", "GPU-bb", "MIG-cc", "MIG-dd"};
    strncpy(out, names[NUMBER(device)], size);
    return OK;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) {
    if (NUMBER(device) == 1) return LOST;
    strncpy(out, NUMBER(device) ? "Stub MIG 1g" : "Stub", size);
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    if (NUMBER(device) == 1) return LOST;
    if (NUMBER(device) > 1) return NOT_SUPPORTED;
    *major = 8, *minor = 6;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(void *device, Pci *out) {
    if (NUMBER(device)) return NUMBER(device) == 1 ? LOST : NOT_SUPPORTED;
    strcpy(out->bus_id, "00000000:1B:00.0");
    return OK;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    if (NUMBER(device)) return NUMBER(device) == 1 ? LOST : INVALID;
    *current = *pending = 1;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *out) { *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **out) {
    // With a gap, as after a part was taken away.
    if (index != 0 && index != 2) return NOT_FOUND;
    *out = &parts[index / 2];
    return OK;
}
int nvmlDeviceGetAccountingMode(void *device, unsigned *out) {
    if (NUMBER(device)) return NOT_SUPPORTED;
    *out = 1;
    return OK;
}
int nvmlDeviceGetAccountingStats(void *device, unsigned pid, Stats *out) {
    if (pid != 11) return NOT_FOUND;
    memset(out, 0, sizeof *out);
    out->max = 7000;
    return OK;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *out) {
    if (NUMBER(device) == 1) return LOST;
    if (out->version != (sizeof(Memory) | 2 << 24)) return INVALID;
    // The second part has its memory in common with the processor.
    if (NUMBER(device) == 3) return NOT_SUPPORTED;
    out->total = 100000, out->reserved = 1000, out->free = 90000, out->used = 9000;
    return OK;
}
static int list(unsigned *count, Process *out, const Process *all, unsigned have) {
    if (*count < have) { *count = have; return TOO_SMALL; }
    memcpy(out, all, have * sizeof *all);
    *count = have;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *out) {
    static const Process all[] = {{11, 6000, 0, 0}, {12, -1ULL, -1U, -1U}};
    if (NUMBER(device) == 1) return LOST;
    return list(count, out, all, NUMBER(device) ? 0 : 2);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *out) {
    static const Process all[] = {{11, 6000, 0, 0}, {13, 2000, 0, 0}};
    if (NUMBER(device) > 1) return NOT_SUPPORTED;
    return list(count, out, all, 2);
}
#endif
#endif
