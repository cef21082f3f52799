"""CUDA kernels of decode."""
