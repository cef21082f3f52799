"""What the tiled CUDA variants declare, and how they pack and launch; no GPU needed."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from cuda_samples import GPUS, H200, RTX, cuda_variants, problem_of, spread

from autotune.cuda import CudaSource
from autotune.errors import ShapeError
from autotune.model import Config, Variant, is_deterministic, predict
from autotune.model.space import default_config, inadmissible, size, violated, why_not
from autotune_variants.attention.cuda.arguments import ARGUMENTS, arguments, bind

FAMILIES = ("cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_simt", "cuda_wgmma", "cuda_split_half")
VARIANTS = cuda_variants(*FAMILIES)
IDS = [f"{operation}-{variant.name}" for operation, variant in VARIANTS]

_SMALL = {"rows": 2, "forward": (4, 64), "backward": (4, 64)}
_LARGE = {"rows": 4, "forward": (3, 96), "backward": (2, 32)}
# What reached the numbers of the first runs on an H200: (variant, dtype, N, tunables).
WINNERS: tuple[tuple[str, str, int, Mapping[str, Any]], ...] = (
    ("cuda_dmma_stored", "float64", 512, {"rows": 1, "forward": (8, 64), "backward": (8, 64)}),
    (
        "cuda_dmma_atomic_stored",
        "float64",
        1024,
        {"rows": 2, "forward": (4, 64), "backward": (4, 64)},
    ),
    (
        "cuda_dmma_atomic_stored",
        "float64",
        8192,
        {"rows": 4, "forward": (3, 96), "backward": (2, 32)},
    ),
    ("cuda_dmma_atomic", "float64", 8192, {"rows": 4, "forward": (3, 96), "backward": (2, 32)}),
    ("cuda_dmma_stored", "float64", 4096, {"rows": 4, "forward": (2, 64), "backward": (2, 64)}),
    ("cuda_tf32x3", "float32", 512, {"rows": 1, "forward": (8, 128), "backward": (8, 128)}),
    ("cuda_tf32x3_atomic", "float32", 512, {"rows": 1, "forward": (4, 64), "backward": (4, 64)}),
    ("cuda_tf32x3", "float32", 4096, {"rows": 4, "forward": (2, 128), "backward": (2, 64)}),
    ("cuda_mma", "bfloat16", 512, {"rows": 1, "forward": (8, 128), "backward": (8, 128)}),
)


def _train(name: str) -> Variant:
    return next(v for operation, v in VARIANTS if (operation, v.name) == ("attention_train", name))


@pytest.mark.parametrize(("operation", "variant"), VARIANTS, ids=IDS)
def test_deterministic_unless_it_adds_atomically(operation: str, variant: Variant) -> None:
    adds = any(how == "atomic" for each in variant.passes for how in each.writes.values())
    named = "atomic" in variant.name or (
        operation != "attention" and variant.name.startswith(("cuda_wgmma", "cuda_split_half"))
    )
    assert adds == named
    assert is_deterministic(variant) is not adds


@pytest.mark.parametrize(("name", "dtype", "n", "chosen"), WINNERS)
def test_known_winners_are_in_the_space(
    name: str, dtype: str, n: int, chosen: Mapping[str, Any]
) -> None:
    problem, variant = problem_of("attention_train", (2, 1, n, 64), dtype), _train(name)
    config: dict[str, Any] = {"rows": chosen["rows"], "chunks": 1, "stages": 2}
    for role in ("forward", "backward"):
        config[f"{role}_split"], config[f"{role}_step"] = chosen[role]
    known = {"joined": True, "spread": False}
    config |= {key: value for key, value in known.items() if key in variant.tunable_names}
    assert set(config) == set(variant.tunable_names)
    assert violated(variant, problem, config, H200) is None


@pytest.mark.parametrize("n", [1, 128, 1024, 4096, 16384])
def test_defaults_exist_and_spaces_stay_small(n: int) -> None:
    for operation, variant in VARIANTS:
        problem = problem_of(operation, (2, 1, n, 64), variant.dtypes[0])
        assert default_config(variant, problem, H200) is not None, (operation, variant.name)
        assert size(variant, problem, H200) <= 2000
        assert n > 1024 or size(variant, problem, H200) <= 200


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("depth", [1, 40, 64, 72, 80, 96, 128, 192, 256])
def test_every_depth_is_served_in_every_dtype(gpu: Any, depth: int) -> None:
    for dtype in ("float64", "float32", "bfloat16", "float16"):
        for operation in ("attention", "attention_backward", "attention_train"):
            problem = problem_of(operation, (1, 2, 1000, depth), dtype)
            served = any(
                name == operation
                and not why_not(variant, problem, "cuda", gpu.limits)
                and any(spread(variant, problem, gpu, 1, 0))
                for name, variant in VARIANTS
            )
            assert served, (dtype, operation)


def test_what_cannot_be_launched_is_ruled_out() -> None:
    problem = problem_of("attention_train", (2, 1, 4096, 64), "float64")
    variant = _train("cuda_dmma_atomic")
    big = default_config(variant, problem, H200)
    assert big is not None
    assert "shared_per_block" in str(violated(variant, problem, big, RTX))
    wide = {**big, "backward_step": 128}
    assert violated(variant, problem, wide, H200) is not None
    other = problem_of("attention_train", {"B": 1, "H": 1, "N": 64, "D": 64, "Dv": 32}, "float64")
    assert why_not(variant, other, "cuda", H200.limits) == "needs Dv == D"


def test_additions_into_grad_q_are_predicted() -> None:
    problem = problem_of("attention_train", (2, 1, 2048, 64), "float64")
    variant = _train("cuda_dmma_atomic")
    config = default_config(variant, problem, H200)
    assert config is not None
    blocks = 2048 // (16 * int(config["rows"]))
    assert predict(variant, problem, config).atomics == 2 * 2048 * 64 * blocks
    quiet = _train("cuda_dmma")
    config = default_config(quiet, problem, H200)
    assert config is not None
    assert predict(quiet, problem, config).atomics == 0


@pytest.mark.parametrize(("operation", "variant"), VARIANTS, ids=IDS)
def test_launches_are_predicted(
    operation: str, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    kernel = type("Kernel", (), {"launcher": lambda self, **how: made.append(how)})()
    monkeypatch.setattr(CudaSource, "kernel", lambda *_: kernel)
    for shape in ((2, 1, 2048, 64), (1, 1, 1100, 128)):
        problem = problem_of(operation, shape, variant.dtypes[0])
        for config in spread(variant, problem, H200, 8, 0):
            made.clear()
            variant.build(problem, config)
            assert predict(variant, problem, config).launches == len(made)


def test_the_backward_starts_before_the_forward_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []

    class Kernel:
        def __init__(self, entry: str) -> None:
            self.entry = entry

        def launcher(self, *, dependent: bool, **_: Any) -> None:
            made.append((self.entry, dependent))

    monkeypatch.setattr(CudaSource, "kernel", lambda self, entry, macros: Kernel(entry))
    problem = problem_of("attention_train", (2, 1, 512, 64), "float64")
    variant = _train("cuda_dmma")
    config = default_config(variant, problem, H200)
    assert config is not None
    for joined, backward in (
        (True, [("backward_both", True)]),
        (False, [("backward_columns", True), ("backward_rows", False)]),
    ):
        made.clear()
        variant.build(problem, Config({**config, "joined": joined}))
        assert made == [("forward_train", False), *backward]


class _Device:
    """An array as CuPy shows it."""

    def __init__(self, array: Any, address: int) -> None:
        self.strides, self.itemsize = array.strides, array.itemsize
        self._c_contiguous = array.flags.c_contiguous
        self.data = type("Pointer", (), {"ptr": address})()


NAMES = ("q", "k", "v", "out", "lse")


def _arrays(dtype: str = "float32", depth: int = 64, start: int = 4096) -> list[Any]:
    shapes = [(2, 3, 5, depth)] * 4
    arrays = [np.empty(shape, dtype) for shape in shapes]
    arrays.append(np.empty((2, 3, 5), "float32"))
    return [_Device(each, start + 65536 * place) for place, each in enumerate(arrays)]


def _argument(packed: bytes, place: int) -> int:
    return int(struct.unpack_from("<q", packed, 8 * place)[0])


def test_arguments_lie_where_the_kernels_read_them() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    packed, aligned = arguments(problem, NAMES, {})(_arrays(), 0.25)
    assert f"S{len(packed)}" == ARGUMENTS
    pointers = [_argument(packed, place) for place in range(14)]
    assert pointers[:4] == [4096 + 65536 * place for place in range(4)]
    assert pointers[8] == 4096 + 65536 * 4
    assert not any(pointers[4:8] + pointers[9:])
    assert struct.unpack_from("<d", packed, 14 * 8)[0] == 0.25
    assert [_argument(packed, 15 + place) for place in range(5)] == [2, 3, 3, 5, 5]
    assert [_argument(packed, 20 + place) for place in range(4)] == [960, 320, 64, 1]
    assert [_argument(packed, 52 + place) for place in range(4)] == [15, 5, 1, 0]
    assert aligned


def test_strides_are_those_of_each_array() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    pack, arrays = arguments(problem, NAMES, {}), _arrays()
    packed = pack(arrays, 1.0)
    for array in arrays:
        array._c_contiguous = False
    assert pack(arrays, 1.0) == packed
    turned = np.empty((2, 5, 3, 64), "float32").transpose(0, 2, 1, 3)
    arrays[2].strides = turned.strides
    found, aligned = pack(arrays, 1.0)
    assert [_argument(found, 28 + place) for place in range(4)] == [960, 64, 192, 1]
    assert aligned


class _Tensor:
    """The same as torch shows it."""

    def __init__(self, array: _Device) -> None:
        self._array = array

    def data_ptr(self) -> int:
        return int(self._array.data.ptr)

    def element_size(self) -> int:
        return int(self._array.itemsize)

    def is_contiguous(self) -> bool:
        return bool(self._array._c_contiguous)

    def stride(self) -> tuple[int, ...]:
        return tuple(each // self._array.itemsize for each in self._array.strides)


def test_tensors_of_torch_give_the_same_struct() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    pack, arrays = arguments(problem, NAMES, {}), _arrays()
    tensors = [_Tensor(array) for array in arrays]
    assert pack(tensors, 0.5) == pack(tensors, 0.5) == pack(arrays, 0.5)
    arrays[2].strides, arrays[2]._c_contiguous = (3840, 256, 768, 4), False
    assert pack(tensors, 0.5) == pack(arrays, 0.5) != pack(_arrays(), 0.5)


def test_calls_that_come_back_get_their_struct_and_are_not_kept_for_ever() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    pack = arguments(problem, NAMES, {})
    for place in [*range(100), *range(100)]:
        scale, start = 1 + place % 2, 4096 * (place // 2 + 1)
        packed, _ = pack(_arrays(start=start), scale)
        assert _argument(packed, 0) == start
        assert struct.unpack_from("<d", packed, 14 * 8)[0] == scale
        assert len(pack._known) <= 64
    assert pack(_arrays(), 1.0)[0] is pack(_arrays(), 1.0)[0]


def test_what_is_no_array_is_refused() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    with pytest.raises(AttributeError):
        arguments(problem, NAMES, {})([np.zeros(3)] * 5, 1.0)


@pytest.mark.parametrize(("depth", "start"), [(64, 4100), (7, 4096)])
def test_rows_off_16_bytes_are_noticed(depth: int, start: int) -> None:
    sizes = {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": depth}
    problem = problem_of("attention", sizes, "float32")
    assert not arguments(problem, NAMES, {})(_arrays(depth=depth, start=start), 1.0)[1]


def test_strides_off_an_element_are_refused() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    arrays = _arrays()
    arrays[1].strides, arrays[1]._c_contiguous = (960, 321, 64, 4), False
    with pytest.raises(ShapeError, match="strides of"):
        arguments(problem, NAMES, {})(arrays, 1.0)


def test_the_other_alignment_is_planned_when_it_comes() -> None:
    problem = problem_of("attention", {"B": 2, "H": 3, "Hkv": 3, "N": 5, "D": 64}, "float32")
    planned: list[bool] = []
    launched: list[bool] = []

    def plan(aligned: bool) -> Any:
        planned.append(aligned)
        return [lambda packed: launched.append(aligned)]

    run = bind(problem, NAMES, plan, {})
    assert planned == [True]
    run(*_arrays(), 1.0)
    run(*_arrays(start=4100), 1.0)
    run(*_arrays(), 1.0)
    assert planned == [True, False]
    assert launched == [True, False, True]


def test_spread_finds_different_configs() -> None:
    problem = problem_of("attention_train", (2, 1, 4096, 64), "float64")
    assert len(set(spread(_train("cuda_dmma"), problem, H200, 5, 0))) == 5


def test_stored_weights_larger_than_the_memory_do_not_serve() -> None:
    variant = _train("cuda_dmma_atomic_stored")
    for n, fits in ((16_384, True), (131_072, False)):
        problem = problem_of("attention_train", (2, 1, n, 64), "float64")
        config = default_config(variant, problem, H200)
        assert config is not None
        why = inadmissible(variant, problem, config, H200)
        assert (why is None) == fits
        assert fits or "bytes at this size (the device has" in str(why)
        recomputed = _train("cuda_dmma_atomic")
        config = default_config(recomputed, problem, H200)
        assert config is not None
        assert inadmissible(recomputed, problem, config, H200) is None
