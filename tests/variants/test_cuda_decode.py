"""decode on CUDA as far as no GPU is needed: arguments, launches, compiling."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_samples import A100, GPUS, H200, RTX, Gpu, needs_nvrtc

from autotune.cuda import launch
from autotune.cuda.ahead import compiling_for
from autotune.cuda.launch import collecting
from autotune.cuda.structs import ArgumentStruct
from autotune.model import Problem, is_deterministic, predict, workspace_bytes
from autotune.model.space import configs, default_config, violated, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry

NAMES = ("cuda_split", "cuda_unsplit", "cuda_cluster")


@pytest.fixture(autouse=True)
def plugins() -> None:
    load_plugins()


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
        variant.build(one, {"warps": 2, "splits": 8, "stages": 0})
    assert [each.function.entry for each in launchers] == ["attend_splits", "combine_splits"]
    macros = dict(launchers[0].function.macros)
    assert (macros["GROUP"], macros["SPLIT"], macros["WARPS"]) == (10, 1, 2)
    assert launchers[0].shared == 2 * 8 * (128 + 8 + 3) * 4
    assert launchers[1].shared == 4 * (8 + 256 + 8)
    assert macros["ALIGNED"]
    with collecting() as none:
        variant.build(problem((0, 20, 2, 4096, 128)), {"warps": 2, "splits": 8, "stages": 0})
    assert none == []


def test_the_combine_starts_before_the_splits_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        launch, "_launcher", lambda function, *rest: made.append((function.entry, rest[-1]))
    )
    variant = registry.variant("decode", "cuda_split")
    variant.build(problem(), {"warps": 4, "splits": 8, "stages": 2})
    assert made == [("attend_splits", False), ("combine_splits", True)]


def test_more_splits_need_no_other_kernels() -> None:
    variant, one = registry.variant("decode", "cuda_split"), problem()
    with collecting() as launchers:
        for splits in (2, 16):
            variant.build(one, {"warps": 4, "splits": splits, "stages": 3})
    two, sixteen = launchers[:2], launchers[2:]
    assert [each.function.macros for each in two] == [each.function.macros for each in sixteen]


def test_a_cluster_is_one_launch_without_workspace() -> None:
    variant, one = registry.variant("decode", "cuda_cluster"), problem()
    config = {"warps": 4, "blocks": 8, "stages": 0}
    assert workspace_bytes(variant, one, config) == 0
    assert predict(variant, one, config).launches == 1
    with collecting() as launchers:
        variant.build(one, config)
    (only,) = launchers
    assert only.function.entry == "attend_cluster"
    assert dict(only.function.macros)["CLUSTER"] == 8
    inbox, merging = 8 * (2 * 4 + 4 * 64 // 8), 4 * 4 * (64 + 8 + 3)
    assert only.shared == 16 + 4 * (inbox + merging)


@pytest.mark.parametrize(("gpu", "admits"), [(A100, False), (H200, True), (RTX, True)], ids=str)
def test_clusters_are_for_devices_that_have_them(gpu: Gpu, admits: bool) -> None:
    variant = registry.variant("decode", "cuda_cluster")
    why = why_not(variant, problem(), "cuda", gpu.limits)
    assert why == (None if admits else "needs compute >= 90 (here compute=80)")


@pytest.mark.parametrize("name", NAMES)
def test_copies_under_way_fit_and_are_of_whole_units(name: str) -> None:
    variant = registry.variant("decode", name)
    for gpu in GPUS:
        for config in configs(variant, problem((1, 8, 8, 4096, 128), "float64"), gpu):
            tiles = 2 * 8 * 128 * 8 * int(config["warps"]) * int(config["stages"])
            assert tiles <= gpu.limits["shared_per_block"]
        odd = configs(variant, problem((1, 8, 8, 4096, 60), "bfloat16"), gpu)
        assert {config["stages"] for config in odd} <= {0}
    staged = configs(variant, problem((1, 8, 8, 4096, 64)), H200)
    assert {config["stages"] for config in staged} == {0, 2, 3, 4}


def test_rows_off_their_alignment_come_by_plain_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_launcher", lambda *_: lambda packed: None)
    variant, one = registry.variant("decode", "cuda_unsplit"), problem((1, 1, 1, 100, 64))
    with collecting() as launchers:
        run = variant.build(one, {"warps": 4, "stages": 3})
        q, out = array((1 << 40) + 2, 1, 1, 64), array(2 << 40, 1, 1, 64)
        run(q, array(3 << 40, 1, 1, 100, 64), array(4 << 40, 1, 1, 100, 64), out, 0.125)
    aligned, others = (dict(each.function.macros) for each in launchers)
    assert (aligned["ALIGNED"], aligned["STAGES"]) == (True, 3)
    assert (others["ALIGNED"], others["STAGES"]) == (False, 0)


def compile_one(name: str, dtype: str, shape: tuple[int, ...], gpu: Gpu, **config: Any) -> None:
    variant, one = registry.variant("decode", name), problem(shape, dtype)
    assert violated(variant, one, config, gpu) is None
    with compiling_for(gpu.arch):
        variant.build(one, config)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_it_compiles_for_hopper(dtype: str) -> None:
    needs_nvrtc()
    compile_one("cuda_split", dtype, (2, 8, 2, 1000, 64), H200, warps=4, splits=4, stages=2)
    odd = (1, 20, 2, 1000, 80 if dtype[0] == "b" else 7)
    compile_one("cuda_unsplit", dtype, odd, H200, warps=2, stages=0)
    compile_one("cuda_cluster", dtype, (1, 3, 3, 100, 40), H200, warps=8, blocks=8, stages=0)


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu is not H200], ids=str)
def test_it_compiles_for_others(gpu: Gpu) -> None:
    needs_nvrtc()
    shape = (2, 8, 2, 1000, 64)
    compile_one("cuda_split", "bfloat16", shape, gpu, warps=4, splits=2, stages=3)
    compile_one("cuda_split", "float64", shape, gpu, warps=2, splits=16, stages=0)
    if gpu is not A100:
        compile_one("cuda_cluster", "bfloat16", shape, gpu, warps=4, blocks=2, stages=4)
