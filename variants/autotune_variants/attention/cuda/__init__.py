"""CUDA kernels of attention and their variants."""
