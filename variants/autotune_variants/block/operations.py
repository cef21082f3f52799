"""The transformer block, without and with an output projection: forward, and with gradients."""

from __future__ import annotations

from typing import Any

from autotune import operation
from autotune_variants.block import published
from autotune_variants.block.reference import PLAIN, REFERENCE, Parts, block, block_train
from autotune_variants.products import Array

_FIRST = "x[B,N,D] weight1[D] w_q[D,H,Dh] w_k[D,Hkv,Dh] w_v[D,Hkv,Dh]"
_OUTPUT = "w_o[H,Dh,D]"
_LAST = "weight2[D] w_gate[D,F] w_up[D,F] w_down[F,D]"
_ATTENTION, _MLP = "4*B*H*(N*(N + 1)//2 if causal else N*N)*Dh", "6*B*N*D*F"
_PROJECTIONS, _PROJECTION = "2*B*N*D*(H + 2*Hkv)*Dh", "2*B*N*D*H*Dh"


def _inputs(projected: bool) -> str:
    return f"{_FIRST} {_OUTPUT} {_LAST}" if projected else f"{_FIRST} {_LAST}"


def _gradients(projected: bool) -> str:
    return " ".join(f"grad_{tensor}" for tensor in _inputs(projected).split())


def _sample(problem: Any, rng: Any) -> tuple[Array, ...]:
    """Standard-normal inputs, every matrix over the root of how many terms its products sum."""
    sizes, found = problem.sizes, []
    for tensor in problem.operation.inputs:
        terms = 1
        if tensor.name.startswith("w_"):
            terms = sizes["H"] * sizes["Dh"] if tensor.name == "w_o" else sizes[tensor.dims[0]]
        found.append(rng.standard_normal(tensor.shape(sizes)) * max(terms, 1) ** -0.5)
    return tuple(found)


def _named(operation_inputs: str, arrays: tuple[Array, ...]) -> dict[str, Array]:
    names = [tensor.partition("[")[0] for tensor in operation_inputs.split()]
    return dict(zip(names, arrays, strict=True))


def _fields(projected: bool) -> dict[str, Any]:
    same_width = () if projected else ("D == H*Dh",)
    return {
        "dims": "B N D F H Hkv Dh",
        "shape": "B N D F",
        "defaults": {"H": 1, "Hkv": "H", "Dh": "D // max(H, 1)"},
        "flags": {"causal": False},
        "scalars": {"eps": 1e-6},
        "rules": ("H == Hkv or (Hkv > 0 and H % Hkv == 0)", *same_width),
        "axes": (("N",), ("B", "H", "Hkv"), ("D", "F", "Dh")),
        "dtypes": ("float32", "float64", "bfloat16", "float16"),
        "sample": _sample,
    }


def _forward_fields(projected: bool) -> dict[str, Any]:
    products = f"{_PROJECTIONS} + {_PROJECTION}" if projected else _PROJECTIONS
    return {
        **_fields(projected),
        "inputs": _inputs(projected),
        "outputs": "out[B,N,D]",
        "flops": f"{products} + {_ATTENTION} + {_MLP}",
        "tolerance": {"out": 2.0},
    }


def _train_fields(projected: bool) -> dict[str, Any]:
    products = f"({_PROJECTIONS} + {_PROJECTION})" if projected else f"({_PROJECTIONS})"
    names = (tensor.partition("[")[0] for tensor in _gradients(projected).split())
    return {
        **_fields(projected),
        "inputs": f"{_inputs(projected)} grad_out[B,N,D]",
        "outputs": f"out[B,N,D] {_gradients(projected)}",
        "flops": f"3*{products} + 3*{_ATTENTION} + 3*{_MLP}",
        "tolerance": {"out": 2.0, **dict.fromkeys(names, 3.0)},
    }


def _forward(projected: bool, parts: Parts, arrays: tuple[Array, ...], options: Any) -> Array:
    return block(_named(_inputs(projected), arrays), parts, **options)


def _train(projected: bool, parts: Parts, arrays: tuple[Array, ...], options: Any) -> Any:
    *given, grad_out = arrays
    named = _named(_inputs(projected), tuple(given))
    return block_train({**named, "grad_out": grad_out}, parts, **options)


def _plain(*arrays: Array, **options: Any) -> Array:
    return _forward(False, PLAIN, arrays, options)


def _plain_train(*arrays: Array, **options: Any) -> Any:
    return _train(False, PLAIN, arrays, options)


def _plain_projected(*arrays: Array, **options: Any) -> Array:
    return _forward(True, PLAIN, arrays, options)


def _plain_projected_train(*arrays: Array, **options: Any) -> Any:
    return _train(True, PLAIN, arrays, options)


@operation(**_forward_fields(projected=False), plain=_plain)
def transformer_block(*arrays: Array, causal: bool, eps: float) -> Array:
    """R = x + Attention(Norm(x)), then R + MLP(Norm(R)): pre-norm, without output projection.

    B sequences of N tokens of D = H*Dh features; Hkv heads for keys and values; the MLP is
    `gated_mlp` with F hidden features, Norm is `rmsnorm`, attention that of `attention` with scale
    Dh**-0.5, mask included. Formulas: HAL 05734881, where H = 1.
    """
    return _forward(False, REFERENCE, arrays, {"causal": causal, "eps": eps})


@operation(**_train_fields(projected=False), plain=_plain_train, published=published.TRAIN)
def transformer_block_train(*arrays: Array, causal: bool, eps: float) -> tuple[Array, ...]:
    """Forward and backward of `transformer_block` in one call: out and nine gradients.

    Those of x, of the weights of both normalisations, of w_q, w_k, w_v, w_gate, w_up and w_down.
    """
    found: tuple[Array, ...] = _train(False, REFERENCE, arrays, {"causal": causal, "eps": eps})
    return found


@operation(**_forward_fields(projected=True), plain=_plain_projected)
def projected_block(*arrays: Array, causal: bool, eps: float) -> Array:
    """`transformer_block` with an output projection w_o behind attention, as models have it.

    H*Dh may differ from D here.
    """
    return _forward(True, REFERENCE, arrays, {"causal": causal, "eps": eps})


@operation(**_train_fields(projected=True), plain=_plain_projected_train)
def projected_block_train(*arrays: Array, causal: bool, eps: float) -> tuple[Array, ...]:
    """Forward and backward of `projected_block` in one call: out and ten gradients."""
    found: tuple[Array, ...] = _train(True, REFERENCE, arrays, {"causal": causal, "eps": eps})
    return found
