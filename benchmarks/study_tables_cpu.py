"""The CPU tables of docs/study.md; each is empty where its benchmark has not been run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import published
from tables import load, number, over, ratio, source, table


def _median(row: Mapping[str, Any] | None) -> float | None:
    return row["ms"][0] if row is not None and "ms" in row else None


def _by_threads(document: Mapping[str, Any], variant: str) -> dict[int, dict[int, dict[str, Any]]]:
    """Per size and thread count the fastest placement."""
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for row in document["rows"]:
        if row["variant"] == variant and "ms" in row:
            at = found.setdefault(row["N"], {})
            if row["threads"] not in at or _median(row) < _median(at[row["threads"]]):
                at[row["threads"]] = row
    return found


def forward_cpu() -> list[str]:
    """Forward that stores A on a CPU: one thread, the best, and the penalty of all."""
    document = load("study_cpu_forward")
    if document is None:
        return []
    rows = []
    for n, at in sorted(_by_threads(document, "stored").items()):
        seconds, threads, gain, penalty = published.FORWARD_CPU[n]
        one, best = at[1], min(at.values(), key=lambda row: row["ms"][0])
        every = at[max(at)]
        rows.append(
            (
                *(n, number(seconds * 1e3), f"{threads} ({gain} x)"),
                f"{penalty} x" if penalty else "1 x",
                *(
                    number(one["ms"][0]),
                    f"{best['threads']} ({one['ms'][0] / best['ms'][0]:.2f} x)",
                ),
                f"{every['ms'][0] / best['ms'][0]:.2f} x",
            )
        )
    head = (
        *("N", "study: one thread, ms", "best threads (gain)", "all 128 over the best"),
        *("ours: one thread, ms", "best threads (gain)", "all over the best"),
    )
    return [*table(head, rows), "", *source(document, "study_cpu_forward")]


def arrangements_cpu() -> list[str]:
    """Forward plus backward on a CPU: the arrangements over the separate passes."""
    document = load("study_cpu_arrangements")
    if document is None:
        return []
    times = {(row["variant"], row["N"]): _median(row) for row in document["rows"]}
    sizes = sorted({n for _, n in times})
    names = list(dict.fromkeys(name for name, _ in times))
    theirs = published.FUSED_OVER_SEPARATE_CPU
    rows: list[tuple[object, ...]] = [
        ("study: five passes / separate", *(f"{theirs[n]:.2f}" for n in sizes)),
        ("separate, ms", *(number(times["separate", n]) for n in sizes)),
    ]
    for name in names:
        if name != "separate":
            cells = [over(times.get((name, n)), times["separate", n]) for n in sizes]
            rows.append((f"{name} / separate", *(f"{c:.2f}" if c else None for c in cells)))
    head = ("", *(f"N={n}" for n in sizes))
    text = [
        "Forward plus backward. A CPU's counterpart of atomic additions is a copy per thread,",
        "summed in order. The study's fused form on CPUs is the five passes; its row: single runs",
        "on 128 threads. Below 1 the first is faster:",
    ]
    return [*text, "", *table(head, rows), "", *source(document, "study_cpu_arrangements")]


def fused_threads_cpu() -> list[str]:
    """The study's fused form over the separate passes on a CPU, by threads."""
    document = load("study_cpu_fused_threads")
    if document is None:
        return []
    separate, fused = (_by_threads(document, name)[4096] for name in ("separate", "five_pass"))
    counts = sorted(published.FUSED_OVER_SEPARATE_THREADS.keys() | separate.keys())
    rows = []
    for count in counts:
        both = _median(fused.get(count)), _median(separate.get(count))
        theirs = published.FUSED_OVER_SEPARATE_THREADS.get(count)
        ours = over(*both)
        study, measured = (f"{each:.2f}" if each else None for each in (theirs, ours))
        rows.append((count, study, *map(number, both), measured))
    head = ("threads", "study", "ours: five passes, ms", "separate, ms", "five over separate")
    text = "By threads at N = 4096, fused (five passes) over separate:"
    return [text, "", *table(head, rows), "", *source(document, "study_cpu_fused_threads")]


def decode_cpu() -> list[str]:
    """Decode on a CPU by threads."""
    document = load("study_cpu_decode")
    if document is None:
        return []
    three, split = (_by_threads(document, name) for name in ("three_pass", "split"))
    rows = []
    for n, (ms, threads, penalty) in published.DECODE_CPU.items():
        cells: list[object] = [n, f"{number(ms)} ({threads})", f"{penalty:.3g} x"]
        for found in (three, split):
            at = found.get(n, {})
            best = min(at.values(), key=lambda row: row["ms"][0], default=None)
            every = over(_median(at.get(max(at, default=0))), _median(best))
            cells.append(f"{number(_median(best))} ({best['threads']})" if best else None)
            cells.append(f"{every:.2f} x" if every else None)
        rows.append(cells)
    head = (
        *("n", "study: best, ms (threads)", "128 threads over 64"),
        *("three passes: best, ms (threads)", "all over the best"),
        *("split: best, ms (threads)", "all over the best"),
    )
    text = ["By threads, float32, one head; the study's 535x is 128 threads over 64 at n = 1024:"]
    return [*text, "", *table(head, rows), "", *source(document, "study_cpu_decode")]


def bandwidth_cpu() -> list[str]:
    """Decode on a CPU as a share of the read bandwidth, on the machines there are results of."""
    lines: list[str] = []
    for name in ("decode_cpu", "decode_cpu_16"):
        document = load(name)
        if document is not None:
            rows = [
                (
                    *(row["n"], number(row["ours_ms"]), _share(row), _over_torch(row)),
                    row["config"].get("threads"),
                )
                for row in sorted(document["rows"], key=lambda row: row["n"])
            ]
            head = ("n", "ms", "of the read bandwidth", "over PyTorch", "threads")
            gigabytes = f"{document['read_bandwidth'] / 1e9:.1f} GB/s"
            cpus = document["circumstances"]["cpus"]
            turn = "share_low" in document["rows"][0]
            how = "at best; shares are of a read in turn with the kernel" if turn else "at best"
            lines += [f"{cpus} CPUs, which read {gigabytes} {how}:", "", *table(head, rows), ""]
            lines += source(document, name)
    return lines


def _share(row: Mapping[str, Any]) -> str:
    share = f"{100 * row['bandwidth_share']:.0f}%"
    if "share_low" not in row:
        return share
    return f"{share} ({100 * row['share_low']:.0f}-{100 * row['share_high']:.0f}%)"


def _over_torch(row: Mapping[str, Any]) -> str | None:
    if "ratio_low" not in row:
        return f"{row['ratio']:.2f}"
    return ratio((row["ratio"], row["ratio_low"], row["ratio_high"]))


def block_cpu() -> list[str]:
    """The block on a CPU: time and growth with N."""
    document = load("study_cpu_block")
    if document is None:
        return []
    ours = {row["N"]: _median(row) for row in document["rows"]}
    theirs, rows = published.BLOCK_CPU, []
    for n in sorted(ours):
        grown = [over(times.get(n), times.get(n // 2)) for times in (theirs, ours)]
        rows.append(
            (
                n,
                *(
                    cell
                    for times, growth in zip((theirs, ours), grown, strict=True)
                    for cell in (number(times.get(n)), f"{growth:.2f} x" if growth else None)
                ),
            )
        )
    threads = " or ".join(sorted({str(row["config"]["threads"]) for row in document["rows"]}))
    head = ("N", "study: one thread, ms", "growth", f"ours: {threads} threads, ms", "growth")
    text = ["Growth with N, float64; the study saw 12.45 times from N = 2048 to 4096:"]
    return [*text, "", *table(head, rows), "", *source(document, "study_cpu_block")]


def beside_torch(name: str, size: str) -> list[str]:
    """A benchmark beside PyTorch on a CPU."""
    document = load(name)
    if document is None:
        return []
    rows = [
        (
            *(row[size], row["dtype"], number(row["ms"]["ours"][0])),
            *(number(row["ms"].get(which, [None])[0]) for which in ("torch", "torch.compile")),
            *(ratio(row["ratio"]), row["variant"]),
        )
        for row in document["rows"]
    ]
    head = (size, "dtype", "ours, ms", "PyTorch, ms", "compiled, ms", "over the faster", "variant")
    return [*table(head, rows), "", *source(document, name)]


def start_cpu() -> list[str]:
    """A new process until its first result."""
    document = load("study_cpu_start")
    if document is None:
        return []
    times = {(row["kept"], row["what"]): number(row["ms"][0]) for row in document["rows"]}
    whats = list(dict.fromkeys(row["what"] for row in document["rows"]))
    rows = [(what, times[False, what], times[True, what]) for what in whats]
    head = ("ms", "nothing kept", "compiled kernels kept")
    return [*table(head, rows), "", *source(document, "study_cpu_start")]
