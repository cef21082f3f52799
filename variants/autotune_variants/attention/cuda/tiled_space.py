"""Tunables of the tiled kernels, and what a block of threads needs for each choice of them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune import Choice
from autotune.model.tunable import Tunable

# Columns of the result that one block accumulates (a chunk of the head): chunks begin where the
# swizzle of shared memory repeats, at 128 bytes.
_UNIT = "(16 if chunks == 1 else 128 // itemsize)"
CHUNK = f"ceil_div(ceil_div(D, chunks), {_UNIT}) * {_UNIT}"
_PITCH = f"(ceil_div(chunks * {CHUNK} * itemsize, 128) * 128)"  # bytes of a row in shared memory
_SIZE = "max(itemsize, 4)"  # bytes of a number in registers
_TABLE = "(1024 if itemsize == 8 else 0)"  # powers of two for the float64 exponential
_THREADS_AT_MOST = 512


@dataclass(frozen=True, slots=True)
class Pass:
    """Names of the tunables of one pass; see tiled_config.cuh for what they mean."""

    split: str
    step: str

    @property
    def share(self) -> str:
        """Streamed rows per step of one group of warps."""
        return f"({self.step} // {self.split})"

    @property
    def threads(self) -> str:
        """Threads of a block."""
        return f"(32 * rows * {self.split})"

    def _ring(self, stage: str, stages: str) -> str:
        return f"{self.split} * {stages} * ({stage})"

    def _merge(self) -> str:
        return f"({self.split} - 1) * rows * 16 * {CHUNK} * {_SIZE}"

    def forward_bytes(self, stages: str = "stages") -> str:
        """Shared memory of a forward block: kForwardShared in tiled_forward.cuh."""
        ring = self._ring(f"2 * {self.share} * {_PITCH}", stages)
        tiles = f"16 * rows * {_PITCH} + {ring} + {_TABLE}"
        return f"max({tiles}, {self._merge()} + {self.split} * rows * 32 * {_SIZE})"

    def column_bytes(self, atomic: bool, stages: str = "stages") -> str:
        """Shared memory of a column block: kColumnShared in tiled_columns.cuh."""
        vectors = f"ceil_div(3 * {self.share} * {_SIZE}, 128) * 128"
        ring = self._ring(f"2 * {self.share} * {_PITCH} + {vectors}", stages)
        scores = f"{self.split} * 16 * rows * ceil_div({self.share} * {_SIZE}, 128) * 128"
        tiles = f"32 * rows * {_PITCH} + {ring} + {scores if atomic else 0} + {_TABLE}"
        return f"max({tiles}, {self._merge()})"

    def row_bytes(self, stages: str = "stages") -> str:
        """Shared memory of a row block: kRowShared in tiled_rows.cuh."""
        ring = self._ring(f"2 * {self.share} * {_PITCH}", stages)
        return f"max(32 * rows * {_PITCH} + {ring} + {_TABLE}, {self._merge()})"

    def shapes(self, streamed: str, registers: str, *, whole: int = 8) -> tuple[str, ...]:
        """Constraints on one pass: whole tiles, threads, registers (32-bit, beside 56 others)."""
        need = f"({registers}) * ({_SIZE} // 4) + 56"
        return (
            f"{self.step} % ({whole} * {self.split}) == 0",
            f"{self.step} <= 64 * {self.split} and ({self.step} > 8 or D > 192)",
            f"{self.step} <= max(64, 2 * {streamed})",
            f"{self.threads} <= {_THREADS_AT_MOST} and ({self.threads} >= 128 or D > 128)",
            f"{need} <= min(255, registers_per_sm // {self.threads})",
        )


def _blocks(rows: str) -> str:
    return f"B * H * ceil_div(max(Nq, Nk), {rows})"


ALONE = Pass("split", "step")
FORWARD = Pass("forward_split", "forward_step")
BACKWARD = Pass("backward_split", "backward_step")

ADMITTED = (
    "max(Nq, Nk) < 2**31 - 256",  # rows are counted in 32 bits
    "D >= 1",
    "D <= 256",
    "Dv == D",
    "compute >= 80",
    f"chunks == 1 or ((chunks - 1) * {CHUNK} < D and D > 32 * chunks)",
    # Blocks that leave most multiprocessors idle, and blocks that are needlessly small, lose.
    f"rows == 1 or {_blocks('16 * rows')} * 4 >= sms",
    f"rows == 4 or {_blocks('32 * rows')} < 4 * sms",
)


def tiles(own: Pass, split: int, step: int) -> tuple[Tunable, ...]:
    """How a pass splits its streamed rows over groups of warps, and how many it takes a step."""
    return (
        Choice(own.split, (1, 2, 3, 4, 8), default=split, ordered=True),
        Choice(own.step, (8, 16, 32, 64, 96, 128), default=step, ordered=True),
    )


COMMON: tuple[Tunable, ...] = (
    Choice("rows", (1, 2, 4), default=4, ordered=True),  # warps along the rows of a block
    Choice("chunks", (1, 2, 3, 4), default=1, ordered=True),  # blocks along the head dimension
    Choice("stages", (2, 1), default=2),  # streamed tiles in flight; 1 where 2 do not fit
)


def forward_constraints(own: Pass) -> tuple[str, ...]:
    """What a forward must fit into."""
    registers = f"({CHUNK} + {own.share}) // 2"
    return (*own.shapes("Nk", registers), f"{own.forward_bytes()} <= shared_per_block")


def backward_constraints(own: Pass, *, atomic: bool, extra: str = "0") -> tuple[str, ...]:
    """What a backward must fit into; `extra` registers beside accumulators and scores."""
    registers = f"{CHUNK} + {own.share} + {extra}"
    return (
        *own.shapes("Nq", registers, whole=16 if atomic else 8),
        f"{own.column_bytes(atomic)} <= shared_per_block",
        f"{own.row_bytes()} <= shared_per_block",
    )


def single_stage(*needed: str) -> str:
    """One stage only where two do not fit."""
    return " or ".join(("stages == 2", *(f"{need} > shared_per_block" for need in needed)))
