"""What was set out to reach beside the worst that was measured, for docs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tables import load, table

HEAD = ("rows", "goal", "the worst of them", "of so many", "misses it")
Row = Mapping[str, Any]


def _rows(name: str) -> Sequence[Row]:
    document = load(name)
    return document["rows"] if document else ()


def _goal(
    what: str,
    rows: Sequence[Row],
    most: float,
    measured: Callable[[Row], tuple[float, float, float]],
    named: Callable[[Row], str],
    *,
    least: bool = False,
) -> tuple[object, ...]:
    """A line: the value and its interval that is furthest from a goal, and who misses it."""
    sign = -1 if least else 1
    worst = max((measured(row) for row in rows), key=lambda value: sign * value[0])
    missed = [named(row) for row in rows if sign * measured(row)[0] > sign * most]
    value, low, high = worst
    interval = f" ({low:.3f}-{high:.3f})" if low < high else ""
    word = "at least" if least else "at most"
    return (
        what,
        f"{word} {most:.4g}",
        f"{value:.3f}{interval}",
        len(rows),
        ", ".join(missed) or "-",
    )


def attention() -> list[str]:
    """Forward plus backward on a GPU over PyTorch's best backend, and the host's time."""
    rows, launches = _rows("attention_gpu"), _rows("gpu_dispatch")
    if not rows or not launches:
        return []

    def ratio(row: Row) -> tuple[float, float, float]:
        return row["ratio"], row["low"], row["high"]

    def host(row: Row) -> tuple[float, float, float]:
        return row["median_us"], row["low_us"], row["high_us"]

    def named(row: Row) -> str:
        return f"{row['dtype']} N={row['N']}"

    def those(*dtypes: str) -> list[Row]:
        return [row for row in rows if row["dtype"] in dtypes and row["N"] >= 4096]

    def small(mode: str) -> list[Row]:
        return [row for row in rows if row["N"] <= 1024 and row["mode"] == mode]

    one = [row for row in launches if row["what"] == "dispatch(scale, x)(x, out=y)"]
    lines = [
        _goal("float64, N >= 4096", those("float64"), 0.45, ratio, named),
        _goal("float32, N >= 4096", those("float32"), 0.45, ratio, named),
        _goal("all dtypes, N <= 1024, called", small("cold"), 0.25, ratio, named),
        _goal("all dtypes, N <= 1024, as a graph", small("graph"), 0.7, ratio, named),
        _goal("16 bits, N >= 4096", those("bfloat16", "float16"), 1 / 0.6, ratio, named),
        _goal("dispatch and a launch, us", one, 7, host, lambda row: "this"),
    ]
    return [*table(HEAD, lines), ""]


def study() -> list[str]:
    """Decode, MLP and block: terabytes a second, shares, and ratios to PyTorch."""
    decode = [row for row in _rows("decode_gpu") if row["mode"] == "cold"]
    mlp, block, cpu = _rows("norm_mlp_gpu"), _rows("block_gpu"), _rows("decode_cpu")
    if not (decode and mlp and block and cpu):
        return []

    def rate(row: Row) -> tuple[float, float, float]:
        return row["ours_terabytes"], 0.0, 0.0

    def share(row: Row) -> tuple[float, float, float]:
        return row["bandwidth_share"], row["share_low"], row["share_high"]

    def ratio(row: Row) -> tuple[float, float, float]:
        value, low, high = row["ratio"]
        return value, low, high

    def beside(row: Row) -> tuple[float, float, float]:
        return row["ratio"], row["low"], row["high"]

    def named(row: Row) -> str:
        size = row.get("N") or row.get("n") or row.get("tokens")
        return f"{row.get('dtype', 'float32')} {size}"

    def cached(dtype: str, batch: int, heads: int, least: int) -> list[Row]:
        wanted = dtype, batch, heads
        return [r for r in decode if (r["dtype"], r["B"], r["H"]) == wanted and r["N"] >= least]

    small = [row for row in decode if row["N"] <= 4096]
    narrow = [row for row in mlp if row["D"] == 64 and row["dtype"] != "bfloat16"]
    wide = [row for row in mlp if row["D"] == 4096]
    lines = [
        _goal(
            "decode bfloat16 B=16 H=32 Hkv=8, n >= 65536, TB/s",
            cached("bfloat16", 16, 32, 65536),
            4.2,
            rate,
            named,
            least=True,
        ),
        _goal(
            "decode float64 H=32 Hkv=8, n = 65536, TB/s",
            cached("float64", 1, 32, 65536)[:1],
            3.5,
            rate,
            named,
            least=True,
        ),
        _goal(
            "decode float64 one head, n = 1048576, TB/s",
            cached("float64", 1, 1, 1 << 20),
            3,
            rate,
            named,
            least=True,
        ),
        _goal("decode, n <= 4096, over PyTorch", small, 1, beside, named),
        _goal("norm_mlp, D = 64, over PyTorch", narrow, 0.6, ratio, named),
        _goal("norm_mlp bfloat16, D = 4096, over PyTorch", wide, 1.02, ratio, named),
        _goal(
            "block, N <= 2048, over PyTorch",
            [r for r in block if r["N"] <= 2048],
            0.25,
            ratio,
            named,
        ),
        _goal(
            "block, N = 8192, over PyTorch", [r for r in block if r["N"] == 8192], 0.6, ratio, named
        ),
        _goal("two CPU cores: norm_mlp over PyTorch", _rows("norm_mlp_cpu"), 1, ratio, named),
        _goal("two CPU cores: block over PyTorch", _rows("block_cpu"), 1, ratio, named),
        _goal("two CPU cores: decode, share of read bandwidth", cpu, 0.8, share, named, least=True),
    ]
    return [*table(HEAD, lines), ""]
