"""CUDA kernels: sources, compiling and launching. Importing this loads neither CuPy nor NVRTC."""

from __future__ import annotations

from autotune.cuda.arrays import pointer, strides_in_elements
from autotune.cuda.source import CudaSource

__all__ = ["CudaSource", "pointer", "strides_in_elements"]
