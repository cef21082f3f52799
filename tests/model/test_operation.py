"""Operation: shapes, dims, flags and dtypes, and what wrong ones get."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import DeclarationError, ShapeError, UnknownNameError
from autotune.model.operation import Operation, canonical_dtype, parse_tensors
from autotune.model.problem import Problem


def declare(**fields: object) -> Operation:
    """An attention-like operation, not registered."""
    settings: dict[str, object] = {
        "name": "toy",
        "dims": ("B", "H", "Hkv", "Nq", "Nk", "D"),
        "inputs": parse_tensors("q[B,H,Nq,D] k[B,Hkv,Nk,D]"),
        "outputs": parse_tensors("out[B,H,Nq,D]"),
        "reference": lambda q, k, causal, scale: q,
        "plain": lambda q, k, causal, scale: q,
        "shape": ("B", "H", "N", "D"),
        "aliases": {"N": ("Nq", "Nk")},
        "defaults": {"Hkv": "H", "Nk": "Nq"},
        "flags": {"causal": False},
        "scalars": {"scale": "D**-0.5"},
        "rules": ("H % Hkv == 0",),
        "flops": "4*B*H*Nq*Nk*D",
    }
    return Operation(**{**settings, **fields})  # type: ignore[arg-type]


def test_positional_shape_spreads_aliases_and_fills_defaults() -> None:
    sizes = declare().sizes_from_shape((2, 4, 128, 64))
    assert sizes == {"B": 2, "H": 4, "Hkv": 4, "Nq": 128, "Nk": 128, "D": 64}
    assert list(sizes) == ["B", "H", "Hkv", "Nq", "Nk", "D"]


def test_explicit_dims_win_over_aliases_and_defaults() -> None:
    sizes = declare().complete({"B": 1, "H": 8, "Hkv": 2, "N": 16, "Nk": 32, "D": 8})
    assert (sizes["Nq"], sizes["Nk"], sizes["Hkv"]) == (16, 32, 2)


def test_sizes_from_arrays_name_the_dim_that_disagrees() -> None:
    with pytest.raises(ShapeError, match=r"D is 64 in q\[B,H,Nq,D\] but 32 in k\[B,Hkv,Nk,D\]"):
        declare().sizes_from_arrays([(1, 1, 8, 64), (1, 1, 8, 32)])
    with pytest.raises(ValueError, match="takes 2 arrays"):
        declare().sizes_from_arrays([(1, 1, 8, 64)])
    with pytest.raises(ShapeError, match="has 4 dims"):
        declare().sizes_from_arrays([(8, 64), (1, 1, 8, 64)])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"B": 1, "H": 3, "Hkv": 2, "N": 4, "D": 8}, "needs H % Hkv == 0, got H=3, Hkv=2"),
        ({"B": 1, "H": 1, "N": -1, "D": 8}, "whole number >= 0"),
        ({"B": 1, "H": 1, "N": 4}, "also needs the dim D"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError, match=message.replace("%", "%")):
        declare().complete(sizes)


def test_unknown_dim_gets_the_nearest_spelling() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'Nq'"):
        declare().complete({"B": 1, "H": 1, "Nqq": 4, "D": 8})


def test_unknown_flag_gets_the_nearest_spelling() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'causal'"):
        Problem.of(declare(), (1, 1, 4, 8), "float32", casual=True)


@pytest.mark.parametrize(
    "spelling", ["float32", "fp32", np.float32, "<f4", np.dtype("f4"), "single"]
)
def test_dtype_spellings_are_one(spelling: object) -> None:
    assert canonical_dtype(spelling) == "float32"


class _TorchDtype:
    """As torch spells it, without torch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


_TorchDtype.__module__ = "torch"


def test_bfloat16_and_torch_spellings() -> None:
    for spelling in ("bf16", "bfloat16", "BFloat16", _TorchDtype("bfloat16")):
        assert canonical_dtype(spelling) == "bfloat16"
    assert canonical_dtype(_TorchDtype("float16")) == "float16"
    with pytest.raises(UnknownNameError, match="known: bfloat16, float16, float32, float64"):
        canonical_dtype("int7")
    with pytest.raises(UnknownNameError, match="quint8"):
        canonical_dtype(_TorchDtype("quint8"))


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    for spelling in (ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert canonical_dtype(spelling) == "bfloat16"


def test_dtypes_that_are_refused() -> None:
    with pytest.raises(ShapeError, match="byte order"):
        canonical_dtype(">f4")
    with pytest.raises(UnknownNameError, match="floot32"):
        canonical_dtype("floot32")
    with pytest.raises(UnknownNameError, match="int8"):
        declare().check_dtype("int8")


def test_an_undeclared_dim_or_name_is_a_declaration_error() -> None:
    with pytest.raises(DeclarationError, match="undeclared dim M"):
        declare(outputs=parse_tensors("out[B,M]"))
    with pytest.raises(DeclarationError, match="undeclared name Z"):
        declare(flops="Z*2")
    with pytest.raises(DeclarationError, match="may not contain Attribute"):
        declare(flops="B.real")


def test_scalars_and_flops_follow_from_the_sizes() -> None:
    problem = Problem.of(declare(), (2, 1, 8, 64), "float64")
    assert problem.scalars() == (0.125,)
    assert problem.scalars({"scale": 2.0}) == (2.0,)
    assert problem.flops == 4 * 2 * 1 * 8 * 8 * 64
    assert problem.compulsory_bytes == (2 * 2 * 8 * 64 * 8, 2 * 8 * 64 * 8)


def test_in_place_outputs_are_recognised() -> None:
    operation = declare(outputs=parse_tensors("q[B,H,Nq,D]"))
    assert operation.updated == {"q"}
    assert operation.fresh_outputs == ()


def test_key_round_trip() -> None:
    operation = declare()
    problem = Problem.of(operation, {"B": 2, "H": 4, "Hkv": 2, "N": 8, "D": 4}, causal=True)
    assert Problem.from_key(operation, problem.key) == problem
    assert hash(Problem.from_key(operation, problem.key)) == hash(problem)


def test_an_expression_without_a_value_names_what_it_was_given() -> None:
    operation = declare(flops="B // Nk", scalars={"scale": "B // Nk"})
    problem = Problem.of(operation, {"B": 2, "H": 1, "Nq": 4, "Nk": 0, "D": 8})
    with pytest.raises(DeclarationError, match=r"cannot evaluate 'B // Nk' at B=2, Nk=0"):
        problem.scalars()
    assert problem.flops == 0


def test_calling_an_operation_runs_its_reference() -> None:
    twice = declare(reference=lambda q, k, causal, scale: 2 * q)
    assert twice(np.ones(3), None, causal=False, scale=1.0).tolist() == [2.0, 2.0, 2.0]


def test_undeclared_axes_are_what_each_positional_size_sets() -> None:
    named = declare(shape=("B", "H", "N", "D"), axes=())
    assert named.varying[0] == ()
    assert ("Nq", "Nk") in named.varying
    assert declare(axes=(("Nq",),)).varying == (("Nq",),)
    assert declare(axes=((),)).varying == ((),)
