"""Variant, traits and space: what follows from one declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from autotune.errors import DeclarationError
from autotune.model import (
    Choice,
    Config,
    Intermediate,
    Operation,
    Pass,
    PowerOfTwo,
    Problem,
    Range,
    Threads,
    Variant,
    is_deterministic,
    predict,
)
from autotune.model.operation import parse_tensors
from autotune.model.space import configs, default_config, inadmissible, size, unmet, why_not
from autotune.model.traits import intermediate_shapes
from autotune.registry import variant as register


@dataclass(frozen=True)
class FourCores:
    """A machine with four cores; `limits` make it a GPU."""

    limits: Mapping[str, int] = field(default_factory=dict)

    def thread_counts(self) -> tuple[int, ...]:
        return (1, 2, 4)

    def placements(self) -> tuple[str, ...]:
        return ("free", "compact")


MACHINE = FourCores()


def attention() -> Operation:
    """Single-head attention with the study's arrays."""
    return Operation(
        name="attn",
        dims=("B", "N", "D"),
        inputs=parse_tensors("q[B,N,D] k[B,N,D] v[B,N,D]"),
        outputs=parse_tensors("out[B,N,D]"),
        reference=lambda q, k, v: q,
        plain=lambda q, k, v: q,
        flops="4*B*N*N*D",
    )


def declare(**fields: object) -> Variant:
    settings: dict[str, object] = {
        "name": "toy",
        "operation": attention(),
        "build": lambda problem, config: None,
    }
    return Variant(**{**settings, **fields})  # type: ignore[arg-type]


def test_the_studys_atomic_counts() -> None:
    """Published: 536,870,912 additions at B=2, N=2048, D=64 for one atomic array, twice for two."""
    one = Pass("rows", parallel=("B", "N"), writes={"gk": "atomic"}, sequential=())
    problem = Problem.of(attention(), (2, 2048, 64), "float64")
    arrays = (Intermediate("gk", ("B", "M", "D")), Intermediate("gv", ("B", "M", "D")))
    arrays = tuple(Intermediate(a.name, ("B", "N+0", "D")) for a in arrays)
    assert predict(declare(passes=(one,), intermediates=arrays), problem, {}).atomics == 2**29
    two = Pass("rows", parallel=("B", "N"), writes={"gk": "atomic", "gv": "atomic"})
    assert predict(declare(passes=(two,), intermediates=arrays), problem, {}).atomics == 2**30


def test_the_studys_forward_traffic() -> None:
    """Published: 75.497 MB = 6.291 read + 69.206 written; B=2, N=2048, D=64, float64, A stored."""
    forward = Pass(
        "forward", parallel=("B", "N"), reads=("q", "k", "v"), writes={"a": "owned", "out": "owned"}
    )
    variant = declare(passes=(forward,), intermediates=(Intermediate("a", ("B", "N", "N")),))
    counts = predict(variant, Problem.of(attention(), (2, 2048, 64), "float64"), {})
    assert counts.bytes_read == 6_291_456
    assert counts.bytes_written == 69_206_016
    assert counts.bytes_moved == 75_497_472
    assert counts.workspace_bytes == 2 * 2048 * 2048 * 8
    assert counts.launches == 1


def test_determinism_follows_from_the_passes() -> None:
    owned = Pass("p", parallel=("B",), writes={"out": "owned"})
    atomic = Pass("p", parallel=("B",), writes={"out": "atomic"})
    assert is_deterministic(declare(passes=(owned,)))
    assert not is_deterministic(declare(passes=(owned, atomic)))
    assert not is_deterministic(declare())
    assert is_deterministic(declare(deterministic=True))


def test_tiles_divide_atomics_and_times_multiply_reads() -> None:
    each = Pass(
        "p",
        parallel={"B": 1, "N": "tile"},
        reads={"k": "ceil_div(N, tile)"},
        writes={"part": "atomic"},
    )
    arrays = (Intermediate("part", ("B", "D")),)
    variant = declare(passes=(each,), intermediates=arrays, tunables=(PowerOfTwo("tile", 16, 64),))
    counts = predict(variant, Problem.of(attention(), (2, 100, 8)), {"tile": 32})
    assert counts.atomics == 2 * 8 * 4
    assert counts.bytes_read == 4 * (2 * 100 * 8 * 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"passes": (Pass("p", writes={"nothing": "owned"}),)}, "names no array 'nothing'"),
        ({"passes": (Pass("p", parallel=("Z",)),)}, "has no axis 'Z'"),
        ({"constraints": ("tile < N",)}, "unknown name tile"),
        ({"tunables": (Choice("N", (1, 2)),)}, "share a name"),
    ],
)
def test_contradictions_are_declaration_errors(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(**fields)


def test_tunables_refuse_defaults_they_do_not_contain() -> None:
    with pytest.raises(DeclarationError):
        PowerOfTwo("tile", 16, 100)
    with pytest.raises(DeclarationError):
        PowerOfTwo("tile", 16, 64, default=128)
    with pytest.raises(DeclarationError):
        Range("n", 1, 9, step=4, default=2)
    with pytest.raises(DeclarationError):
        Choice("order", ("ij", "ji"), "kk")


def tiled() -> Variant:
    return declare(
        tunables=(
            PowerOfTwo("rows", 16, 128, default=64),
            Choice("order", ("ij", "ji")),
            Threads(),
        ),
        constraints=("rows <= max(N, 16)", "N > 1", "order == 'ij' or threads == 1"),
    )


def test_space_holds_exactly_what_the_constraints_admit() -> None:
    problem = Problem.of(attention(), (1, 32, 8))
    found = set(configs(tiled(), problem, MACHINE))
    expected = {
        Config(rows=rows, order=order, threads=threads)
        for rows in (16, 32)
        for order in ("ij", "ji")
        for threads in (1, 2, 4)
        if order == "ij" or threads == 1
    }
    assert found == expected
    assert size(tiled(), problem, MACHINE) == len(expected)
    assert size(tiled(), problem, MACHINE, limit=3) == 3


def test_default_is_the_nearest_admissible_config() -> None:
    problem = Problem.of(attention(), (1, 32, 8))
    assert default_config(tiled(), problem, MACHINE) == {"rows": 32, "order": "ij", "threads": 4}
    assert default_config(tiled(), Problem.of(attention(), (1, 1, 8)), MACHINE) is None


def test_why_not_names_the_broken_condition() -> None:
    assert why_not(tiled(), Problem.of(attention(), (1, 1, 8))) == "needs N > 1"
    assert why_not(tiled(), Problem.of(attention(), (1, 8, 8))) is None
    assert why_not(declare(device="cuda"), Problem.of(attention(), (1, 8, 8))) is not None
    only64 = declare(dtypes=("float64",))
    assert why_not(only64, Problem.of(attention(), (1, 8, 8))) == "does not support float32"


def test_stored_configs_are_checked_against_this_machine() -> None:
    problem = Problem.of(attention(), (1, 32, 8))
    variant = tiled()
    assert inadmissible(variant, problem, {"rows": 32}, MACHINE) is not None
    many = {"rows": 32, "order": "ij", "threads": 64}
    assert inadmissible(variant, problem, many, MACHINE) == "threads=64 is not available here"
    good = {"rows": 32, "order": "ij", "threads": 4}
    assert inadmissible(variant, problem, good, MACHINE) is None


def test_config_is_a_value() -> None:
    one, other = Config(a=1, b="x"), Config(b="x", a=1)
    assert one == other
    assert hash(one) == hash(other)
    assert one == {"a": 1, "b": "x"}
    assert str(Config()) == "-"
    with pytest.raises(KeyError):
        Config().integer("rows")


def test_an_accumulator_is_wide_only_for_narrow_problems() -> None:
    tensors = parse_tensors("x[N]"), parse_tensors("y[N] sums[N]:accumulator")
    dtypes = ("float64", "float32", "bfloat16", "float16")
    narrow = Operation("sums", ("N",), *tensors, reference=print, plain=print, dtypes=dtypes)
    for dtype, kept, written in (
        ("float64", "float64", 10 * (8 + 8)),
        ("float32", "float32", 10 * (4 + 4)),
        ("bfloat16", "float32", 10 * (2 + 4)),
        ("float16", "float32", 10 * (2 + 4)),
    ):
        problem = Problem.of(narrow, (10,), dtype)
        assert problem.element_type("accumulator") == kept
        assert problem.compulsory_bytes[1] == written
        variant = Variant(
            "v", narrow, print, intermediates=(Intermediate("part", ("N",), "accumulator"),)
        )
        assert intermediate_shapes(variant, problem, {}) == (((10,), kept),)


HOPPER = FourCores({"compute": 90, "sms": 132, "shared_per_block": 232_448})
AMPERE = FourCores({"compute": 80, "sms": 108, "shared_per_block": 166_912})


def staged() -> Variant:
    """A kernel for Hopper whose stages have to fit into shared memory."""
    return declare(
        device="cuda",
        tunables=(Range("stages", 1, 8, default=6),),
        constraints=("compute >= 90", "stages * 65536 * itemsize // 4 <= shared_per_block"),
    )


def test_constraints_may_ask_for_the_limits_of_the_device() -> None:
    problem = Problem.of(attention(), (1, 32, 8))
    assert [config["stages"] for config in configs(staged(), problem, HOPPER)] == [1, 2, 3]
    assert default_config(staged(), problem, HOPPER) == {"stages": 3}
    assert list(configs(staged(), problem, AMPERE)) == []
    assert size(staged(), Problem.of(attention(), (1, 32, 8), "float64"), HOPPER) == 1
    broken = inadmissible(staged(), problem, {"stages": 4}, HOPPER)
    assert broken is not None
    assert "(here shared_per_block=232448)" in broken


def test_why_not_says_what_the_device_has() -> None:
    problem = Problem.of(attention(), (1, 32, 8))
    assert why_not(staged(), problem, "cuda", HOPPER.limits) is None
    told = "needs compute >= 90 (here compute=80)"
    assert why_not(staged(), problem, "cuda", AMPERE.limits) == told
    assert unmet(staged(), AMPERE.limits) == told
    assert unmet(staged(), HOPPER.limits) is None
    assert unmet(tiled(), {}) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraints": ("compute >= 90",)}, "unknown name compute"),
        ({"device": "cuda", "constraints": ("computes >= 90",)}, "unknown name computes"),
        ({"device": "cuda", "passes": (Pass("p", flops="sms"),)}, "unknown name sms"),
        ({"device": "cuda", "tunables": (Choice("warp", (1, 2)),)}, "share a name"),
    ],
)
def test_limits_belong_to_constraints_of_their_kind(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(**fields)


def test_what_is_no_tunable_is_named() -> None:
    with pytest.raises(DeclarationError, match="3 is no tunable; declare Choice"):
        declare(tunables=(3,))


def test_a_range_too_long_to_list_is_refused() -> None:
    with pytest.raises(DeclarationError, match="tunable r: a range has at most 100,000 values"):
        Range("r", 0, 10**12)
    assert len(Range("r", 0, 10**12, step=10**8).values(MACHINE)) == 10_001
    with pytest.raises(DeclarationError, match="whole numbers"):
        Range("r", 0, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "two words", "a/b", "bell\a", "line\n"])
def test_a_name_is_one_word(name: str) -> None:
    with pytest.raises(DeclarationError, match=r"variant of .*: a name is one word"):
        declare(name=name)
    with pytest.raises(DeclarationError, match=r"operation .*: a name is one word"):
        replace(attention(), name=name)


def test_a_tunable_that_the_function_does_not_take_is_refused() -> None:
    def kernel(q: object, k: object, v: object, out: object) -> None:
        """Takes no tunable."""

    declared = register(attention(), "plain", tunables=[Threads(), Range("unroll", 1, 4)])
    with pytest.raises(DeclarationError, match="no parameter for the tunable 'unroll'"):
        declared(kernel)
