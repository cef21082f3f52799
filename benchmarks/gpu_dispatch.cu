// y = factor * x: as little work as a kernel can have.
extern "C" __global__ void scale(const float* x, float* y, long long count, float factor) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) y[i] = factor * x[i];
}
