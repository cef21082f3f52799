// Groups of asynchronous copies from global to shared memory.
#pragma once

// Ends this thread's group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
// Until at most `Groups` of this thread's groups of copies are under way.
template <int Groups = 0>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}
