"""Which stages each arrangement on CUDA consists of, and the temporaries it keeps."""

from __future__ import annotations

from autotune import Choice, Intermediate, PowerOfTwo
from autotune.model.tunable import Tunable
from autotune_variants.attention.cuda import arrangements_stages as stages
from autotune_variants.attention.cuda.arrangements import COLUMNS, ROWS, Stage, Step

Size = str | int

_SIZE = "max(itemsize, 4)"  # bytes of a number in the kernels' arithmetic
_SHARED = 49152  # bytes of shared memory that every block may have

TEMPORARIES: dict[str, tuple[Size, ...]] = {
    "a": ("B", "H", "Nq", "Nk"),
    "gs": ("B", "H", "Nq", "Nk"),
    "lse": ("B", "H", "Nq"),
    "corrections": ("B", "H", "Nq"),
    "scratch": (stages.SCRATCH_BLOCKS, 2, "rows", "Nk"),
    "parts_k": ("splits", "B", "H", "Nk", "D"),
    "parts_v": ("splits", "B", "H", "Nk", "Dv"),
    "sum_q": ("B", "H", "Nq", "D"),
    "sum_k": ("B", "Hkv", "Nk", "D"),
    "sum_v": ("B", "Hkv", "Nk", "Dv"),
}


def backward(arrangement: str, rounded: bool) -> tuple[Stage, ...]:
    """The stages of attention_backward; `rounded`: atomic additions go into wider sums first."""
    return {
        "v2": (*_clear("vk", rounded), stages.swept(rounded, False), *_round("vk", rounded)),
        "copies": (stages.COPIED, stages.ADD_V, stages.ADD_K),
        "gq_atomic": (stages.CORRECTIONS, *_gradients("gq_atomic", rounded)),
        "recomputed": (stages.GRAD_Q_RECOMPUTED, stages.GRAD_K_AND_V),
    }.get(arrangement) or (stages.PROBABILITIES, *_gradients(arrangement, rounded))


def train(arrangement: str, rounded: bool) -> tuple[Stage, ...]:
    """The stages of attention_train."""
    return {
        "v2": (*_clear("vk", rounded), stages.swept(rounded, True), *_round("vk", rounded)),
        "copies": (stages.EVERYTHING_COPIED, stages.ADD_V, stages.ADD_K),
        "gq_atomic": (
            *(stages.FORWARD, stages.CORRECTIONS),
            *_gradients("gq_atomic", rounded),
        ),
        "recomputed": (stages.FORWARD_AND_GRAD_Q, stages.GRAD_K_AND_V),
    }.get(arrangement) or (stages.FORWARD_STORED, *_gradients(arrangement, rounded))


def _gradients(arrangement: str, rounded: bool) -> tuple[Stage, ...]:
    """The stages from A (or lse and the corrections) to the gradients."""
    clear_k, round_k = _clear("k", rounded), _round("k", rounded)
    return {
        "separate": (stages.GRAD_V, *clear_k, stages.grad_q_and_k_from_a(rounded), *round_k),
        "separate_stored": (stages.GRAD_V, stages.GRAD_Q_STORING, stages.GRAD_K),
        "v3": (
            *(stages.GRAD_V, stages.SCORE_GRADIENTS, *clear_k),
            *(stages.grad_q_and_k(rounded), *round_k),
        ),
        "v4": (stages.GRAD_V, stages.SCORE_GRADIENTS, stages.GRAD_Q, stages.GRAD_K),
        "gs_recomputed": (stages.GRAD_V, stages.GRAD_Q_FROM_A, stages.GRAD_K_FROM_A),
        "gq_atomic": (
            *(*_clear("q", rounded), stages.columns_with_grad_q(rounded), *_round("q", rounded)),
        ),
    }[arrangement]


def _clear(arrays: str, rounded: bool) -> tuple[Stage, ...]:
    return tuple(stages.cleared(array, rounded) for array in arrays)


def _round(arrays: str, rounded: bool) -> tuple[Stage, ...]:
    return tuple(stages.rounding(array) for array in arrays) if rounded else ()


def temporaries(sequence: tuple[Stage, ...], given: tuple[str, ...]) -> tuple[Intermediate, ...]:
    """The temporaries that stages name, beyond the arrays of the operation."""
    used = {
        array
        for stage in sequence
        for array in (*stage.declared.reads, *stage.declared.writes)
        if array not in given
    }
    copies = any(stage.steps & Step.OWN_COPIES for stage in sequence)
    shapes = dict(TEMPORARIES)
    if copies:
        shapes["scratch"] = (stages.SPLIT_BLOCKS, 2, "rows", "Nk")
    return tuple(
        Intermediate(name, shape, "accumulator") for name, shape in shapes.items() if name in used
    )


def tunables(sequence: tuple[Stage, ...], study: bool) -> tuple[Tunable, ...]:
    """What may be varied; the study's forms take one row and one column, features outermost."""
    rows = [stage for stage in sequence if stage.source is ROWS]
    columns = [stage for stage in sequence if stage.source is COLUMNS]
    copies = any(stage.steps & Step.OWN_COPIES for stage in rows)
    found: list[Tunable] = [PowerOfTwo("block", 64, 1024, default=128)]
    if rows:
        found.append(Choice("rows", (1,)) if study else PowerOfTwo("rows", 1, 8, default=4))
    if columns:
        one = Choice("columns", (1,))
        found.append(one if study else PowerOfTwo("columns", 1, 16, default=4))
        found.append(Choice("sweep", ("features",) if study else ("on_chip",)))
    if copies:
        found.append(PowerOfTwo("splits", 1, 128, default=128))
    elif any("scratch" in stage.declared.writes for stage in rows):
        found.append(PowerOfTwo("blocks", 128, 4096, default=1024))
    return tuple(found)


def constraints(sequence: tuple[Stage, ...], study: bool) -> tuple[str, ...]:
    """What device and block may hold, and no tile or number beyond what the sizes can use.

    The study's forms take seconds where the study did not go (its largest is half of the limit).
    """
    names = {tunable.name for tunable in tunables(sequence, study)}
    recomputing = any(
        stage.source is COLUMNS and stage.steps & Step.SCORE_GRADIENTS for stage in sequence
    )
    matrices = len({"a", "gs"} & {array for stage in sequence for array in stage.declared.writes})
    found = ["compute >= 80", _registers("rows", "2")] if "rows" in names else ["compute >= 80"]
    if study:
        found.append("B*H*Nq*Nk <= 2**28")
    if matrices:
        found.append(f"{matrices}*B*H*Nq*Nk*{_SIZE} <= 0.8*device_memory")
    if "rows" in names:
        found.append("rows == 1 or rows < 2*Nq")
        found.append(f"(rows*(max(D, Dv) + 3) + block + 32)*{_SIZE} <= {_SHARED}")
    if "columns" in names:
        sums = "2*ceil_div(max(D, Dv, 1), block) + 1" if recomputing else "2"
        found += ["columns == 1 or columns < 2*Nk", _registers("columns", sums)]
    if recomputing:
        found.append(f"(columns*(D + Dv + 2) + 3*block)*{_SIZE} <= {_SHARED}")
    if "splits" in names:
        found.append("splits == 1 or splits < 2*ceil_div(Nq, rows)")
    if "blocks" in names:
        found.append("blocks == 128 or blocks < 2*B*H*ceil_div(Nq, rows)")
    return tuple(found)


def _registers(tile: str, sums: str) -> str:
    """A thread keeps so many sums for each row or column, and some 52 registers beside them."""
    return f"{tile}*({sums})*{_SIZE}//4 + 52 <= min(255, registers_per_sm//block)"
