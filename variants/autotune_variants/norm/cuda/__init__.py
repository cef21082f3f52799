"""CUDA kernels of rmsnorm."""
