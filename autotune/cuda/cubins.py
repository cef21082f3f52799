"""Keeps compiled CUDA kernels on disk, under a digest of everything they were compiled from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from autotune.cuda import nvrtc
from autotune.kept import KeptCode

if TYPE_CHECKING:
    from autotune.cuda.source import CudaSource

KEPT = KeptCode("cuda", ".cubin", largest=512 * 2**20)
"""The kernels on disk."""


def cubin(source: CudaSource, command: list[str], arch: str) -> bytes:
    """The machine code of `source` for `arch`: from disk if it is there and whole, or compiled."""
    options = [f"--gpu-architecture={arch}", *command]
    parts = [source.digest, nvrtc.version(), nvrtc.build(), *options]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def compiled() -> bytes:
        given = [*options, f"-I{source.path.parent}"]
        return nvrtc.compile_cubin(source.text, source.path.name, given)

    return KEPT.get(name, compiled)
