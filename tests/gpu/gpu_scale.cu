// y = 2 x, done right and in ways in which kernels go wrong.
extern "C" __global__ void scale(const float* x, float* y, long long count, int repeats) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    for (int r = 0; r < repeats; ++r)
        for (long long j = i; j < count; j += (long long)gridDim.x * blockDim.x) y[j] = FACTOR * x[j];
}

extern "C" __global__ void beyond(const float* x, float* y, long long count, int repeats) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    for (long long j = i; j < count + 1; j += (long long)gridDim.x * blockDim.x) y[j] = 2.0f * (j < count ? x[j] : 0.0f);
}

extern "C" __global__ void illegal(const float* x, float* y, long long count, int repeats) {
    if (threadIdx.x == 0) *reinterpret_cast<volatile float*>(16) = x[0];
}

extern "C" __global__ void trap(const float* x, float* y, long long count, int repeats) {
    if (threadIdx.x == 0) asm("trap;");
}

extern "C" __global__ void misaligned(const float* x, float* y, long long count, int repeats) {
    if (threadIdx.x == 0) *reinterpret_cast<volatile double*>(reinterpret_cast<char*>(y) + 4) = x[0];
}
