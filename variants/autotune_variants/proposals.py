"""What `autotune tune` measures when nothing is named: attention, decode, MLP and block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.device import Device
from autotune.model import Problem
from autotune.registry import registry

Proposal = tuple[str, Mapping[str, int], str, str | None]
"""Operation, sizes, dtype, and the flag that is set."""


def problems(device: Device) -> Iterator[Problem]:
    """On a CPU eight problems, about four minutes on two cores; on a GPU some fifty."""
    known = {operation.name: operation for operation in registry.operations()}
    proposed = _on_gpu() if device.kind == "cuda" else _on_cpu()
    for name, sizes, dtype, flag in proposed:
        if name in known:
            flags: dict[str, Any] = {flag: True} if flag else {}
            yield Problem.of(known[name], sizes, dtype, **flags)


def _on_cpu() -> Iterator[Proposal]:
    # The study's comparison of separate and fused passes; the winner changes with N.
    for n in (512, 1024, 2048):
        yield "attention_train", {"B": 2, "H": 1, "N": n, "D": 64}, "float32", None
    for n in (512, 2048):
        yield "attention", {"B": 2, "H": 1, "N": n, "D": 64}, "float32", None
    yield "attention", {"B": 2, "H": 1, "N": 1024, "D": 64}, "float64", None
    # The best number of threads moves with the length of the cache.
    for n in (4096, 262_144):
        yield "decode", {"B": 1, "H": 1, "N": n, "D": 64}, "float32", None


def _on_gpu() -> Iterator[Proposal]:
    # The study's problem, and the same in the dtypes that models train in.
    for dtype in ("float64", "float32", "bfloat16"):
        for n in (512, 1024, 2048, 4096, 8192, 16384):
            yield "attention_train", {"B": 2, "H": 1, "N": n, "D": 64}, dtype, None
        for n in (512, 2048, 8192):
            yield "attention", {"B": 2, "H": 1, "N": n, "D": 64}, dtype, None
        for n in (2048, 8192):
            yield "attention_backward", {"B": 2, "H": 1, "N": n, "D": 64}, dtype, None
    # Heads as models have them: many, grouped, causal.
    many = {"B": 2, "H": 16, "D": 128}
    for n in (1024, 4096, 8192):
        yield "attention_train", {**many, "N": n}, "bfloat16", None
    yield "attention_train", {**many, "N": 4096}, "bfloat16", "causal"
    yield "attention_train", {**many, "N": 4096}, "float16", None
    grouped = {"B": 1, "H": 32, "Hkv": 8, "D": 128}
    for n in (1024, 4096):
        yield "attention_train", {**grouped, "N": n}, "bfloat16", "causal"
        yield "attention", {**grouped, "N": n}, "bfloat16", "causal"
    # Long caches: a batch of grouped heads, and a single one.
    cache = {"B": 16, "H": 32, "Hkv": 8, "N": 65_536, "D": 128}
    yield "decode", cache, "bfloat16", None
    yield "decode", {"B": 1, "H": 1, "N": 1_048_576, "D": 64}, "float64", None
    # The study's MLP, and its block after the parts of it; the widths of a model's MLP.
    for dtype in ("float64", "float32"):
        yield "norm_mlp_train", {"N": 8192, "D": 64, "F": 256}, dtype, None
        yield "norm_mlp_train", {"N": 4096, "D": 64, "F": 256}, dtype, "residual"
        yield "transformer_block_train", {"B": 2, "N": 2048, "D": 64, "F": 256}, dtype, None
    yield "gated_mlp", {"N": 8192, "D": 4096, "F": 14_336}, "bfloat16", None
    yield "rmsnorm", {"N": 8192, "D": 4096}, "bfloat16", None


registry.add_proposal(problems)
