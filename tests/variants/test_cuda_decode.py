"""decode on CUDA as far as no GPU is needed: arguments, launches, compiling."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_samples import GPUS, H200, Gpu, needs_nvrtc, spread

from autotune.cuda.ahead import compiling_for
from autotune.cuda.launch import collecting
from autotune.cuda.structs import ArgumentStruct
from autotune.model import Problem, is_deterministic, predict
from autotune.model.space import default_config
from autotune.registry import registry

NAMES = ("cuda_split", "cuda_unsplit")


def problem(shape: tuple[int, ...] = (2, 8, 2, 1000, 64), dtype: str = "bfloat16") -> Problem:
    dims = dict(zip(("B", "H", "Hkv", "N", "D"), shape, strict=True))
    return Problem.of(registry.operation("decode"), dims, dtype)


def array(address: int, *shape: int, strides: tuple[int, ...] | None = None) -> Any:
    """What a CuPy array of two-byte numbers tells a launch."""
    packed = tuple(2 * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return SimpleNamespace(
        data=SimpleNamespace(ptr=address),
        _c_contiguous=strides is None,
        strides=strides or packed,
        itemsize=2,
    )


def arguments() -> ArgumentStruct:
    return ArgumentStruct(
        ("q", "k", "out"),
        pointers=("q", "k", "unused", "out"),
        strided={"q": "bhd", "k": "bhnd"},
        shapes={"q": (2, 4, 8), "k": (2, 1, 5, 8)},
        sizes=(2, 4),
        itemsize=2,
    )


def test_the_struct_has_pointers_scale_sizes_and_strides() -> None:
    pack = arguments()
    q, k, out = array(1 << 40, 2, 4, 8), array(2 << 40, 2, 1, 5, 8), array(3 << 40, 2, 4, 8)
    packed, aligned = pack((q, k, out), 0.5)
    assert aligned
    assert pack.code == f"S{len(packed)}"
    assert struct.unpack("<4Qd2q8q", packed) == (
        *(1 << 40, 2 << 40, 0, 3 << 40, 0.5, 2, 4),
        *(32, 8, 0, 1),
        *(40, 40, 8, 1),
    )
    assert pack((q, k, out), 0.5) == (packed, True)  # from memory


@pytest.mark.parametrize(
    ("q", "aligned", "strides"),
    [
        (array((1 << 40) + 2, 2, 4, 8), False, (32, 8, 0, 1)),
        (array(1 << 40, 2, 4, 8, strides=(64, 16, 4)), False, (32, 8, 0, 2)),
        (array(1 << 40, 2, 4, 8, strides=(64, 18, 2)), False, (32, 9, 0, 1)),
        (array(1 << 40, 2, 4, 8, strides=(16, 64, 2)), True, (8, 32, 0, 1)),
    ],
    ids=["address", "columns", "rows", "transposed"],
)
def test_rows_that_are_not_aligned_are_noticed(
    q: Any, aligned: bool, strides: tuple[int, ...]
) -> None:
    k, out = array(2 << 40, 2, 1, 5, 8), array(3 << 40, 2, 4, 8)
    packed, found = arguments()((q, k, out), 1.0)
    assert found == aligned
    assert struct.unpack("<4Qd2q8q", packed)[7:11] == strides


@pytest.mark.parametrize("name", NAMES)
def test_it_is_deterministic_and_reads_the_cache_once(name: str) -> None:
    variant, one = registry.variant("decode", name), problem()
    config = default_config(variant, one, H200)
    assert config is not None
    assert is_deterministic(variant)
    counts = predict(variant, one, config)
    cache = 2 * 2 * 2 * 1000 * 64 * 2
    assert cache <= counts.bytes_read < 1.3 * cache
    assert counts.launches == (2 if name == "cuda_split" else 1)


def test_a_block_for_each_split_and_eight_queries() -> None:
    variant, one = registry.variant("decode", "cuda_split"), problem((3, 20, 2, 4096, 128))
    with collecting() as launchers:
        variant.build(one, {"warps": 2, "splits": 8})
    assert [each.function.entry for each in launchers] == ["attend_splits", "combine_splits"]
    macros = dict(launchers[0].function.macros)
    assert (macros["GROUP"], macros["SPLITS"], macros["WARPS"]) == (10, 8, 2)
    assert launchers[0].shared == 4 * 8 * (2 * 2 + 128)
    assert macros["ALIGNED"]
    with collecting() as none:
        variant.build(problem((0, 20, 2, 4096, 128)), {"warps": 2, "splits": 8})
    assert none == []


def compile_one(name: str, dtype: str, shape: tuple[int, ...], gpu: Gpu, seed: int) -> None:
    variant, one = registry.variant("decode", name), problem(shape, dtype)
    config = next(spread(variant, one, gpu, 1, seed))
    with compiling_for(gpu.arch):
        variant.build(one, config)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_it_compiles_for_hopper(dtype: str) -> None:
    needs_nvrtc()
    compile_one("cuda_split", dtype, (2, 8, 2, 1000, 64), H200, 1)
    compile_one("cuda_unsplit", dtype, (1, 20, 2, 1000, 80 if dtype[0] == "b" else 7), H200, 2)


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu is not H200], ids=str)
def test_it_compiles_for_others(gpu: Gpu) -> None:
    needs_nvrtc()
    compile_one("cuda_split", "bfloat16", (2, 8, 2, 1000, 128), gpu, 3)
    compile_one("cuda_split", "float64", (2, 8, 2, 1000, 64), gpu, 4)
