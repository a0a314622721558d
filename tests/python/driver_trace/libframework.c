// Stands for a library that uses CUDA's runtime.
int cudaMalloc(unsigned long long *out, unsigned long bytes);

int framework_allocate(unsigned long bytes) {
    unsigned long long address;
    int result = cudaMalloc(&address, bytes);
    return result + (address == 0);
}
