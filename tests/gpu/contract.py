"""What every variant on CUDA must do, and the cases on which it is held to that."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pytest

from autotune.arrays import Guarded, array_dtype, poison, same_bits
from autotune.cuda.ahead import compiling_for
from autotune.cuda.launch import architecture_of
from autotune.cuda.nvrtc import CompileError
from autotune.expected import Expected, expected_outputs
from autotune.inputs import Buffers, make_buffers
from autotune.memory import Memory
from autotune.model import Config, Problem, Variant, is_deterministic
from autotune.model.space import configs, default_config, why_not
from autotune.model.traits import intermediate_shapes
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.verify import judge

REPEATS = 20
_RANDOM_AMONG = 400  # a random config is one of the first so many


@dataclass(frozen=True)
class Case:
    """A problem, and what is unusual about it."""

    dims: tuple[tuple[str, int], ...]
    causal: bool = False
    residual: bool = False
    layout: str = "packed"
    scale: float | None = None
    gain: float = 1.0  # of all inputs
    trend: tuple[float, float] | None = None  # added to logits from first to last key; a tenth
    gains: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)  # of q, k, v and grad_out besides
    infinite: str = ""  # which keys are: "one", with weight 0 or "either" 0 or NaN, or "all"

    @classmethod
    def of(cls, shape: tuple[int, ...], **unusual: Any) -> Case:
        """From (B, H, Hkv, Nq, Nk, D)."""
        return cls(tuple(zip(("B", "H", "Hkv", "Nq", "Nk", "D"), shape, strict=True)), **unusual)

    def __str__(self) -> str:
        words = [f"{name}{size}" for name, size in self.dims]
        words += [f"scale{self.scale}"] if self.scale is not None else []
        words += [f"gain{self.gain:g}"] if self.gain != 1 else []
        words += ["trend{:g}to{:g}".format(*self.trend)] if self.trend else []
        words += [f"{each:g}" for each in self.gains if set(self.gains) != {1}]
        words += [f"infinite_{self.infinite}"] if self.infinite else []
        words += ["causal"] if self.causal else []
        words += ["residual"] if self.residual else []
        return "-".join((*words, *([self.layout] if self.layout != "packed" else [])))


# Ragged lengths and first-class depths, each at least once, with all that may come together.
SHAPES = (
    Case.of((2, 1, 1, 7, 7, 40), causal=True, layout="strided"),
    Case.of((1, 2, 1, 8, 65, 72), causal=True),
    Case.of((1, 4, 2, 63, 63, 80), layout="strided"),
    Case.of((2, 2, 2, 65, 7, 96), causal=True),  # the first queries attend nothing
    Case.of((1, 2, 1, 127, 1000, 128)),
    Case.of((1, 1, 1, 129, 129, 192), causal=True, layout="strided"),
    Case.of((1, 3, 1, 1000, 129, 256)),
    Case.of((1, 2, 2, 129, 63, 7)),
    Case.of((1, 1, 1, 33, 70, 1), layout="strided"),
    Case.of((2, 2, 1, 1000, 1000, 64)),
)
# Kernels know nothing of lengths, so that these share theirs (D and causal are theirs).
SMALL = (
    Case.of((1, 1, 1, 1, 1, 64), causal=True),
    Case.of((1, 1, 1, 0, 5, 64), causal=True),
    Case.of((1, 2, 1, 5, 0, 64), causal=True),
)
SCALES = (
    Case.of((1, 2, 1, 129, 200, 64), scale=-0.3, causal=True),
    Case.of((1, 1, 1, 129, 129, 64), scale=0.0, causal=True),
)
# Online softmaxes move their shifts late, never, or down; groups that split the keys disagree.
TRENDS = tuple(
    Case.of((1, 2, 1, 150, 700, 64), trend=trend, causal=causal)
    for trend in ((0.0, 600.0), (600.0, 0.0), (-600.0, -600.0), (-3000.0, -100.0))
    for causal in (False, True)
)
REPEATED = Case.of((1, 2, 1, 300, 333, 64), causal=True)
DEPTHS = tuple(Case.of((1, 2, 1, 130, 150, depth), causal=True) for depth in (64, 80, 96, 128))
UNALIGNED = Case.of((2, 1, 1, 150, 150, 64), layout="unaligned")


def magnitudes(dtype: str) -> Case:
    """Logits of about 1e4; in float16 scores and their gradients beyond its range."""
    shape = (1, 1, 1, 200, 300, 64)
    if dtype == "float16":
        return Case.of(shape, gain=1000.0, scale=1e-7, causal=True)
    return Case.of(shape, gain=30.0 if dtype == "bfloat16" else 60.0, causal=True)


@dataclass(frozen=True)
class Candidate:
    """A variant by name on a case; `seed` None is its default config, else a random one."""

    operation: str
    variant: str
    dtype: str
    case: Case
    seed: int | None = None

    def __str__(self) -> str:
        how = "default" if self.seed is None else f"random{self.seed}"
        return f"{self.operation}-{self.variant}-{self.dtype}-{self.case}-{how}"

    @property
    def declared(self) -> Variant:
        """The variant."""
        load_plugins()
        return registry.variant(self.operation, self.variant)

    @cached_property
    def problem(self) -> Problem:
        """The problem."""
        load_plugins()
        case = self.case
        operation = registry.operation(self.operation)
        wanted = {"causal": case.causal, "residual": case.residual}
        flags = {name: value for name, value in wanted.items() if name in operation.flags}
        return Problem.of(operation, dict(case.dims), self.dtype, layout=case.layout, **flags)

    def config(self, device: Any) -> Config | None:
        """Its config on a device; None if the variant does not admit the problem there."""
        variant, problem = self.declared, self.problem
        if why_not(variant, problem, "cuda", device.limits):
            return None
        if self.seed is None:
            return default_config(variant, problem, device)
        admitted = list(islice(configs(variant, problem, device), _RANDOM_AMONG))
        return random.Random(f"{self}").choice(admitted) if admitted else None


def candidates(
    cases: tuple[Case, ...], prefixes: tuple[str, ...], *, seed: int | None = None, share: int = 1
) -> Iterator[Candidate]:
    """The variants on CUDA whose names start with one of the prefixes, on the cases of their dims.

    Each case takes the next dtype of its variant. With `share` n every variant takes each n-th
    case only, its neighbour those in between. AUTOTUNE_TEST_ALL in the environment has every
    variant take every case in every dtype.
    """
    load_plugins()
    everything = bool(os.environ.get("AUTOTUNE_TEST_ALL"))
    share = 1 if everything else share
    for operation in registry.operations():
        needed = {*operation.dims} - {*operation.defaults}
        own = tuple(case for case in cases if needed <= {*dict(case.dims)} <= {*operation.dims})
        found = (each for each in registry.variants(operation) if each.device == "cuda")
        wanted = (each for each in found if each.name.startswith(prefixes))
        for place, variant in enumerate(wanted):
            dtypes = variant.dtypes or operation.dtypes
            for number, case in enumerate(own[place % share :: share]):
                turn = (number + place) % len(dtypes)
                for dtype in dtypes if everything else dtypes[turn : turn + 1]:
                    yield Candidate(operation.name, variant.name, dtype, case, seed)


def in_each_dtype(case_of: Callable[[str], Case], prefixes: tuple[str, ...]) -> list[Candidate]:
    """Every variant of attention so called, in each of its dtypes on the case for that dtype."""
    found = {(c.operation, c.variant): c.declared for c in candidates((REPEATED,), prefixes)}
    return [
        Candidate(*names, dtype, case_of(dtype))
        for names, variant in found.items()
        for dtype in variant.dtypes
    ]


def large_magnitudes(prefixes: tuple[str, ...]) -> list[Candidate]:
    """Every variant so called, in each of its dtypes on the large magnitudes of that dtype."""
    return in_each_dtype(magnitudes, prefixes)


def at_depths(prefixes: tuple[str, ...]) -> list[Candidate]:
    """Every variant so called, in each of its dtypes at each of the usual depths of a head."""
    return [each for case in DEPTHS for each in in_each_dtype(_always(case), prefixes)]


def repeated(prefixes: tuple[str, ...]) -> list[Candidate]:
    """Every variant so called, in each of its dtypes on what is run many times."""
    return in_each_dtype(_always(REPEATED), prefixes)


def _always(case: Case) -> Callable[[str], Case]:
    return lambda dtype: case


def compile_candidate(candidate: Candidate, device: Any) -> None:
    """Have its kernels on disk; a failure shows when the test runs."""
    config = candidate.config(device)
    if config is None:
        return
    arch = architecture_of(str(device.limits["compute"]))
    with suppress(CompileError), compiling_for(arch):
        candidate.declared.build(candidate.problem, config)


class Bound:
    """A candidate built for its case, with guarded arrays around it."""

    def __init__(self, candidate: Candidate, config: Config, memory: Memory) -> None:
        self.candidate, self.memory = candidate, memory
        variant, problem = candidate.declared, candidate.problem
        self.buffers = _buffers(candidate.case, problem, memory)
        self.run = variant.build(problem, config)
        shapes = intermediate_shapes(variant, problem, config)
        self.intermediates = [
            Guarded.empty(shape, array_dtype(dtype), allocate=memory.allocate)
            for shape, dtype in shapes
        ]

    def __call__(self) -> tuple[Any, ...]:
        """Outputs of one run on poisoned outputs and intermediates."""
        buffers = self.buffers
        buffers.reset()
        for each in self.intermediates:
            poison(each.array)
        arrays = (*buffers.input_arrays, *(each.array for each in buffers.fresh))
        self.run(*arrays, *(each.array for each in self.intermediates), *buffers.scalars)
        return tuple(output.copy() for output in buffers.output_arrays)

    def problems(self, outputs: tuple[Any, ...], expected: tuple[Expected, ...]) -> str | None:
        """What is wrong with a run, or None."""
        verdict = judge(outputs, expected, self.buffers)
        if not verdict.passed:
            return verdict.reason
        names = (array.name for array in self.candidate.declared.intermediates)
        for name, each in zip(names, self.intermediates, strict=True):
            if not each.intact():
                return f"wrote outside of {name}"
        return None


def check(candidate: Candidate, device: Any, memory: Memory, *, additions: int = 0) -> None:
    """One run: right within the gate's bounds, nothing written outside, inputs unchanged.

    Where float32 sums are made of so many `additions` one after another, in whatever order, three
    times sqrt(additions) roundings are allowed (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
    """
    bound = bound_to(candidate, device, memory)
    outputs = bound()
    least = 3 * math.sqrt(additions) * 2.0**-24
    expected = tuple(
        replace(each, bound=max(each.bound, least)) for each in expected_outputs(bound.buffers)
    )
    found = bound.problems(outputs, expected)
    assert found is None, found


def check_repeats(candidate: Candidate, device: Any, memory: Memory) -> None:
    """The same bits from every run, where the variant's passes say so."""
    if not is_deterministic(candidate.declared):
        pytest.skip(f"{candidate.variant} adds atomically")
    bound = bound_to(candidate, device, memory)
    first = bound()
    for number in range(1, REPEATS):
        again = bound()
        assert all(map(same_bits, first, again)), f"run {number} differs from the first"


def bound_to(candidate: Candidate, device: Any, memory: Memory) -> Bound:
    """The candidate built, or a skip that says why it is not."""
    return Bound(candidate, config_or_skip(candidate, device), memory)


def config_or_skip(candidate: Candidate, device: Any) -> Config:
    """The candidate's config, or a skip that says why there is none."""
    config = candidate.config(device)
    if config is None:
        why = why_not(candidate.declared, candidate.problem, "cuda", device.limits)
        pytest.skip(why or "no config fits")
    return config


def _buffers(case: Case, problem: Problem, memory: Memory) -> Buffers:
    """Buffers with the case's scale and magnitudes; out and lse follow from q, k and v."""
    buffers = make_buffers(problem, memory=memory)
    names = [tensor.name for tensor in problem.operation.inputs]
    arrays = dict(zip(names, buffers.input_arrays, strict=True))
    for name, gain in zip(("q", "k", "v", "grad_out"), case.gains, strict=True):
        if name in arrays:
            arrays[name][...] = arrays[name].astype("float64") * case.gain * gain
    scalars = buffers.scalars if case.scale is None else (case.scale,)
    if case.trend:
        # the last terms of the scores, and whole numbers, so that nearly all of the sums is exact
        gain = (1.0 if problem.dtype == "float64" else 0.1) / scalars[0]
        terms = np.rint(np.linspace(*case.trend, arrays["k"].shape[2]) * gain)
        arrays["q"][..., -1], arrays["k"][..., -1] = 1, memory.asarray(terms)
    if case.infinite:
        middle = arrays["k"].shape[2] // 2
        arrays["k"][:, :, slice(None) if case.infinite == "all" else middle, 0] = np.inf
        if case.infinite != "either":
            arrays["q"][..., 0] = -np.abs(arrays["q"].astype("float64")[..., 0])
    if {"out", "lse"} <= arrays.keys():
        _fill_residuals(arrays, problem, scalars[0])
    unchanged = {place: memory.witness(array) for place, array in enumerate(buffers.input_arrays)}
    return replace(buffers, scalars=scalars, _unchanged=unchanged)


def _fill_residuals(arrays: Mapping[str, Any], problem: Problem, scale: float) -> None:
    attention = registry.operation("attention")
    wide = [arrays[name].astype("float64") for name in ("q", "k", "v")]
    with np.errstate(invalid="ignore"):  # an infinite key
        out, lse = attention.reference(*wide, **problem.flags, scale=scale)
    arrays["out"][...], arrays["lse"][...] = out, lse
