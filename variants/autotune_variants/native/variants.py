"""Declares the variants in C and Fortran; the two of an arrangement differ in nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune import Choice, Intermediate, Pass, Placement, Threads, variant
from autotune.native import NativeSource, build_tunables, needs_compiler
from autotune_variants.attention.operations import attention
from autotune_variants.attention.tiled_passes import FORWARD
from autotune_variants.decode import variants as decode_variants
from autotune_variants.decode.operations import decode
from autotune_variants.mlp import tiled as mlp_variants
from autotune_variants.mlp.operations import gated_mlp, gated_mlp_backward, gated_mlp_train
from autotune_variants.norm import passes as norm_passes
from autotune_variants.norm import variants as norm_variants
from autotune_variants.norm.operations import rmsnorm, rmsnorm_backward

Run = Callable[..., None]

_HERE = Path(__file__).parent
_SPELLED = {"c": "C", "fortran": "Fortran"}


def _declare(
    operation: Any,
    arrangement: str,
    file: str,
    *,
    entry: str,
    doc: str,
    settings: Callable[[Any, Mapping[str, Any]], Sequence[int]],
    tunables: Sequence[Any],
    **declared: Any,
) -> None:
    """Declare an arrangement for either language.

    `file` is the name of its sources without ending, `entry` their function; `settings` are what
    the function is told behind the number of threads, from problem and config.
    """
    for ending in (".c", ".f90"):
        source = NativeSource(_HERE / f"{file}{ending}")
        language = source.language
        builder = _builder(source, entry, settings)
        builder.__doc__ = f"{doc} (in {_SPELLED[language]})"
        variant(
            operation,
            f"{language}_{arrangement}",
            dtypes=("float32", "float64"),
            tunables=(*tunables, *build_tunables(language), Threads(), Placement()),
            requires=(needs_compiler(language),),
            **declared,
        )(builder)


def _builder(source: NativeSource, entry: str, settings: Callable[..., Sequence[int]]) -> Any:
    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        return source.kernel(entry, problem, config, settings(problem, config))

    return build


def _block(problem: Any, config: Mapping[str, Any]) -> Sequence[int]:
    return (int(config["block"]),)


_declare(
    decode,
    "split",
    "decode",
    entry="decode_split",
    doc="The cache cut into splits, each swept once with an online softmax, and combined.",
    settings=_block,
    passes=decode_variants.SPLIT,
    intermediates=decode_variants.temporaries("splits"),
    tunables=decode_variants.SPLIT_TUNABLES,
    constraints=decode_variants.SPLIT_CONSTRAINTS,
)


def _padded(dim: str) -> str:
    """A dim up to the next multiple of the elements in 64 bytes."""
    return f"ceil_div({dim}, 64 // itemsize)*(64 // itemsize)"


def _attention_tiles(problem: Any, config: Mapping[str, Any]) -> Sequence[int]:
    return int(config["block_q"]), int(config["block_k"]), int(problem.flags["causal"])


_declare(
    attention,
    "tiled",
    "attention",
    entry="attention_tiled",
    doc="Tiles of queries in parallel, online softmax over tiles of keys.",
    settings=_attention_tiles,
    passes=(FORWARD,),
    intermediates=(
        Intermediate("queries", ("threads", "block_q", "D")),
        Intermediate("keys", ("threads", "D", "block_k")),
        Intermediate("values", ("threads", "block_k", _padded("Dv"))),
        Intermediate("scores", ("threads", "block_q", "block_k")),
        Intermediate("sums", ("threads", "block_q", _padded("Dv"))),
        Intermediate("stats", ("threads", 2, "block_q")),
        Intermediate("lines", ("threads", "D")),
    ),
    tunables=(
        Choice("block_q", (16, 32, 64, 128), default=64, ordered=True),
        Choice("block_k", (32, 64, 128), default=64, ordered=True),
    ),
    constraints=("block_q < 2*Nq or block_q == 16", "block_k < 2*Nk or block_k == 32"),
)


def _mlp_tiles(problem: Any, config: Mapping[str, Any]) -> Sequence[int]:
    return int(config["block_n"]), int(config["block_f"])


_PER_TILE = "ceil_div(N, block_n)"

_declare(
    gated_mlp,
    "tiled",
    "gated_mlp",
    entry="gated_mlp_tiled",
    doc="Tiles of tokens in parallel; blocks of the hidden features never leave the caches.",
    settings=_mlp_tiles,
    passes=(
        Pass(
            "mlp",
            parallel={"N": "block_n"},
            sequential={"F": "block_f"},
            reads={"x": 1, "w_gate": _PER_TILE, "w_up": _PER_TILE, "w_down": _PER_TILE},
            writes={"out": "owned"},
            flops="6*N*D*F",
        ),
    ),
    intermediates=(
        Intermediate("tokens", ("threads", "block_n", "D")),
        Intermediate("strips", ("threads", "block_f", f"max(256, {_padded('D')})")),
        Intermediate("gates", ("threads", "block_n", "block_f")),
        Intermediate("ups", ("threads", "block_n", "block_f")),
        Intermediate("lines", ("threads", "block_f")),
        Intermediate("sums", ("threads", "block_n", _padded("D"))),
    ),
    tunables=(
        Choice("block_n", (16, 32, 64, 128), default=64, ordered=True),
        Choice("block_f", (32, 64, 128, 256), default=128, ordered=True),
    ),
    constraints=("block_n < 2*N or block_n == 16", "block_f < 2*F or block_f == 32"),
)


def _gradient_tiles(problem: Any, config: Mapping[str, Any]) -> Sequence[int]:
    return int(config["rows"]), int(config["hidden"])


# Products take rows by eight, and columns by as many as 64 bytes hold.
for _operation, _with_out in ((gated_mlp_backward, False), (gated_mlp_train, True)):
    _declare(
        _operation,
        "splits",
        "gated_mlp_gradients",
        entry=f"{_operation.name}_splits",
        doc="Tiles of tokens in parallel; weight gradients accumulated by share of tokens, summed.",
        settings=_gradient_tiles,
        passes=mlp_variants.gradient_passes(norm=False, with_out=_with_out),
        intermediates=(
            Intermediate(
                "parts", ("threads*shares", 3, "ceil_div(F, hidden)", "ceil_div(D, 8)*8", "hidden")
            ),
            Intermediate("tokens", ("threads", 2, "rows", "D")),
            Intermediate("columns", ("threads", 2, "ceil_div(D, 8)*8", "rows")),
            Intermediate("strips", ("threads", "hidden", f"max(256, {_padded('D')})")),
            Intermediate("activations", ("threads", 3, "rows", "hidden")),
            Intermediate("lines", ("threads", "hidden")),
            Intermediate("sums", ("threads", 2, "rows", _padded("D"))),
        ),
        tunables=mlp_variants.GRADIENT_TUNABLES,
        constraints=mlp_variants.GRADIENT_CONSTRAINTS,
    )


def _rows(problem: Any, config: Mapping[str, Any]) -> Sequence[int]:
    return (int(config["rows"]),)


_declare(
    rmsnorm,
    "tiled",
    "rmsnorm",
    entry="rmsnorm_tiled",
    doc="Tiles of tokens in parallel, each token read once from memory.",
    settings=_rows,
    passes=norm_passes.tiled_forward("out", "rows"),
    intermediates=(
        Intermediate("tokens", ("threads", "rows", "D")),
        Intermediate("lines", ("threads", _padded("2*D"))),
        Intermediate("inverses", ("threads", _padded("rows"))),
    ),
    tunables=(norm_variants.ROWS,),
    constraints=norm_variants.TILE_CONSTRAINTS,
)

_declare(
    rmsnorm_backward,
    "tiled",
    "rmsnorm",
    entry="rmsnorm_backward_tiled",
    doc="Tiles of tokens in parallel; the weight's gradient accumulated per thread and summed.",
    settings=_rows,
    passes=norm_passes.tiled_backward("grad_out", "rows"),
    intermediates=(
        norm_passes.WEIGHT_PARTS,
        Intermediate("tokens", ("threads", 2, "rows", "D")),
        Intermediate("lines", ("threads", _padded("2*D"))),
        Intermediate("numbers", ("threads", _padded("2*rows"))),
    ),
    tunables=(norm_variants.ROWS,),
    constraints=norm_variants.TILE_CONSTRAINTS,
)
