"""Kernels in C and Fortran, built by this machine's compilers. Importing this runs none of them."""

from __future__ import annotations

from autotune.native.compilers import needs_compiler
from autotune.native.flags import build_tunables
from autotune.native.source import NativeSource

__all__ = ["NativeSource", "build_tunables", "needs_compiler"]
