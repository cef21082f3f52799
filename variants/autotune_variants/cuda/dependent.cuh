// Programmatic dependent launch. What follows in the stream may start once every block has let it; what was launched so
// waits for all that the kernel ahead writes. For a kernel that was launched plainly neither does anything.
#pragma once

__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
