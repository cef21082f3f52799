"""Variants of the transformer block: which parts it is composed of; see parts.py for how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Pass, PowerOfTwo, Threads, variant
from autotune.model import Variant
from autotune.model.expression import evaluate
from autotune.registry import registry
from autotune_variants.block.operations import (
    projected_block,
    projected_block_train,
    transformer_block,
    transformer_block_train,
)

Run = Callable[..., None]

_OPERATIONS = (
    *("rmsnorm", "rmsnorm_backward", "attention", "attention_backward"),
    *("gated_mlp", "gated_mlp_train", "norm_mlp", "norm_mlp_train"),
)
PARTS: tuple[Variant, ...] = tuple(
    each for name in _OPERATIONS for each in registry.variants(name) if each.device == "cpu"
)
"""Every built-in variant that may serve a part; this module is imported after all of theirs."""

_LIKE_X, _LIKE_Q = ("B", "N", "D"), ("B", "N", "H", "Dh")
_LIKE_K = ("B", "N", "Hkv", "Dh")
# Elements that parts may use: of the size of what they store at least, or tiles for some threads.
_ROOM = "room * (B*N*(3*D + 4*F) + 3*D*F + 2*B*N*H*Dh + 65536)"
_PRODUCTS = Choice("products", ("simd", "blas"), default="simd")
_TURNED = Intermediate("turned", ("D", "max(H, Hkv)*Dh"))  # one matrix of weights
_QKV = "2*B*N*D*(H + 2*Hkv)*Dh"
_SCORES, _PROJECTION, _MLP = "4*B*H*N*N*Dh", "2*B*N*D*H*Dh", "6*B*N*D*F"


def _owned(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, "owned")


def _temporaries(projected: bool, train: bool, fused: bool) -> tuple[Intermediate, ...]:
    forward = {
        **{"z1": _LIKE_X, "q": _LIKE_Q, "k": _LIKE_K, "v": _LIKE_K, "heads": _LIKE_Q},
        **{"lse": ("B", "H", "N"), "r": _LIKE_X},
    }
    found: dict[str, tuple[str, ...]] = dict(forward)
    if not fused:
        found["z2"] = _LIKE_X
    if train:
        found |= {"grad_r": _LIKE_X, "grad_q": _LIKE_Q, "grad_k": _LIKE_K, "grad_v": _LIKE_K}
        found |= {"grad_z1": _LIKE_X, "lines": _LIKE_X}
    if train and projected:
        found["grad_heads"] = _LIKE_Q
    if train and not fused:
        found["grad_z2"] = _LIKE_X
    arrays = tuple(Intermediate(name, dims) for name, dims in found.items())
    return (*arrays, *((_TURNED,) if train else ()), Intermediate("room", (_ROOM,)))


def _first_half(projected: bool) -> tuple[Pass, ...]:
    """What a part reads and writes at least: its own variant's passes have the rest."""
    project = (
        Pass("project", reads=("heads", "w_o"), writes=_owned("r"), flops=_PROJECTION),
        Pass("residual", reads=("r", "x"), writes=_owned("r")),
    )
    return (
        Pass("norm1", reads=("x", "weight1"), writes=_owned("z1"), flops="4*B*N*D"),
        Pass(
            "projections",
            reads={"z1": 3, "w_q": 1, "w_k": 1, "w_v": 1},
            writes=_owned("q", "k", "v"),
            flops=_QKV,
        ),
        Pass("attention", reads=("q", "k", "v"), writes=_owned("heads", "lse"), flops=_SCORES),
        *(project if projected else (Pass("residual", reads=("heads", "x"), writes=_owned("r")),)),
    )


_WEIGHTS = ("w_gate", "w_up", "w_down")
_GRADS = tuple(f"grad_{name}" for name in _WEIGHTS)


def _second_half(train: bool, fused: bool) -> tuple[Pass, ...]:
    flops = f"3*{_MLP}" if train else _MLP
    above, grads = (("grad_out",), _GRADS) if train else ((), ())
    if fused:
        own = ("grad_r", "grad_weight2") if train else ()
        reads, writes = ("r", "weight2", *_WEIGHTS, *above), ("out", *own, *grads)
        return (Pass("norm_mlp", reads=reads, writes=_owned(*writes), flops=flops),)
    norm = Pass("norm2", reads=("r", "weight2"), writes=_owned("z2"), flops="4*B*N*D")
    grad_z = ("grad_z2",) if train else ()
    writes = ("out", *grad_z, *grads)
    mlp = Pass("mlp", reads=("z2", *_WEIGHTS, *above), writes=_owned(*writes), flops=flops)
    residual = Pass("residual2", reads=("out", "r"), writes=_owned("out"))
    if not train:
        return (norm, mlp, residual)
    backward = Pass(
        "norm2_gradients",
        reads=("r", "weight2", "grad_z2"),
        writes=_owned("grad_r", "grad_weight2"),
        flops="11*B*N*D",
    )
    back = Pass("residual_grad2", reads=("grad_r", "grad_out"), writes=_owned("grad_r"))
    return (norm, mlp, backward, back, residual)


def _backward(projected: bool) -> tuple[Pass, ...]:
    above = "grad_heads" if projected else "grad_r"
    project = (
        Pass(
            "grad_project", reads=("heads", "grad_r"), writes=_owned("grad_w_o"), flops=_PROJECTION
        ),
        Pass("grad_heads", reads=("grad_r", "w_o"), writes=_owned(above), flops=_PROJECTION),
    )
    grads = ("grad_q", "grad_k", "grad_v")
    return (
        *(project if projected else ()),
        Pass(
            "attention_gradients",
            reads=("q", "k", "v", "heads", "lse", above),
            writes=_owned(*grads),
            flops=f"5*{_SCORES}/2",
        ),
        Pass(
            "grad_projections",
            reads={"z1": 3, **dict.fromkeys(grads, 1)},
            writes=_owned("grad_w_q", "grad_w_k", "grad_w_v"),
            flops=_QKV,
        ),
        Pass(
            "grad_z1",
            reads=(*grads, "w_q", "w_k", "w_v"),
            writes=_owned("grad_z1", "lines", "turned"),
            flops=_QKV,
        ),
        Pass("sum_grad_z1", reads={"grad_z1": 2, "lines": 2}, writes=_owned("grad_z1", "lines")),
        Pass(
            "norm1_gradients",
            reads=("x", "weight1", "grad_z1"),
            writes=_owned("grad_x", "grad_weight1"),
            flops="11*B*N*D",
        ),
        Pass("residual_grad", reads=("grad_x", "grad_r"), writes=_owned("grad_x")),
    )


def _declare(operation: Any, name: str, doc: str, *, fused: bool) -> None:
    projected = "w_o" in {tensor.name for tensor in operation.inputs}
    train = "grad_out" in {tensor.name for tensor in operation.inputs}
    arrays = _temporaries(projected, train, fused)
    halves = (*_first_half(projected), *_second_half(train, fused))

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        from autotune_variants.block.parts import run_block

        values = {**problem.names, **config}
        shapes = {a.name: tuple(int(evaluate(d, values)) for d in a.dims) for a in arrays}
        return run_block(problem, config, shapes)

    build.__doc__ = doc
    variant(
        operation,
        name,
        dtypes=("float32", "float64"),
        passes=(*halves, *(_backward(projected) if train else ())),
        intermediates=arrays,
        # Threads are those of the projections. No placement: it would pin the caller, who is also a
        # thread of every part, and whose mask the threads that a part starts inherit.
        tunables=(PowerOfTwo("room", 1, 16, default=2), _PRODUCTS, Threads()),
        blas="parallel",
        parts=PARTS,
    )(build)


for _operation in (
    *(transformer_block, transformer_block_train, projected_block, projected_block_train),
):
    _declare(
        *(_operation, "parts_norm_mlp"),
        "Parts by dispatch; the second normalisation and the MLP are one part.",
        fused=True,
    )
    _declare(
        *(_operation, "parts"),
        "Parts by dispatch; both normalisations are parts of their own.",
        fused=False,
    )
