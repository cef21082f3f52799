"""Writes the figures of README and docs from the result files, so that none is typed by hand.

python benchmarks/readme.py [--show]   (--show: take the output of `autotune show` anew)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import RESULTS, write
from tables import between, load, where

SHOW = Path(sys.executable).with_name("autotune")
README = RESULTS.parents[1] / "README.md"


def attention(name: str) -> list[str]:
    """Ratio to PyTorch per operation, dtype and size."""
    document = load(name)
    if document is None:
        return []
    sizes = sorted({row["N"] for row in document["rows"]})
    lines = [
        f"Time over PyTorch's on the same CPU (B=2, H=1, D=64; {where(document)};",
        f"`benchmarks/results/{name}.json`):",
        "",
        "| operation | dtype | " + " | ".join(f"N={n}" for n in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for operation in ("attention", "attention_train"):
        for dtype in ("float32", "float64"):
            cells = []
            for n in sizes:
                rows = [
                    row
                    for row in document["rows"]
                    if (row["operation"], row["dtype"], row["N"]) == (operation, dtype, n)
                ]
                cells.append(
                    f"{rows[0]['ratio']:.2f} ({rows[0]['ours_ms']:.2f} ms)" if rows else "-"
                )
            lines.append(f"| {operation} | {dtype} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def attention_gpu() -> list[str]:
    """Ratio to PyTorch on a GPU, cold and as a graph, per dtype and size."""
    document = load("attention_gpu")
    if document is None:
        return []
    shapes = sorted({(row["H"], row["D"], row["N"]) for row in document["rows"]})
    heads = [f"N={n}" if h == 1 else f"H={h}, D={d}, N={n}" for h, d, n in shapes]
    lines = [
        "Forward plus backward over PyTorch's best backend on one GPU "
        f"(B=2, H=1, D=64 unless said; {document['gpu_label']}, driver {document['driver']}, "
        f"{where(document)}; `benchmarks/results/attention_gpu.json`):",
        "",
        "| dtype | mode | " + " | ".join(heads) + " |",
        "|---|---|" + "---|" * len(shapes),
    ]
    rows = {(r["dtype"], r["mode"], r["H"], r["D"], r["N"]): r for r in document["rows"]}
    for dtype in ("float64", "float32", "bfloat16", "float16"):
        for mode in ("cold", "graph"):
            found = [rows.get((dtype, mode, *shape)) for shape in shapes]
            cells = [f"{row['ratio']:.2f}" if row else "" for row in found]
            lines.append(f"| {dtype} | {mode} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def decode(name: str) -> list[str]:
    """Ratio to PyTorch and share of the read bandwidth per cache length."""
    document = load(name)
    if document is None:
        return []
    turn = ", shares of a read in turn" if "share_low" in document["rows"][0] else ""
    lines = [
        f"`decode`, float32, one head, D=64 ({where(document)}; read bandwidth "
        f"{document['read_bandwidth'] / 1e9:.0f} GB/s at best{turn}; "
        f"`benchmarks/results/{name}.json`):",
        "",
        "| n | ms | over PyTorch | read bandwidth | threads |",
        "|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        threads = row["config"].get("threads", "-")
        lines.append(
            f"| {row['n']} | {row['ours_ms']:.3f} | {row['ratio']:.2f} "
            f"| {100 * row['bandwidth_share']:.0f}% | {threads} |"
        )
    return [*lines, ""]


def dispatch() -> list[str]:
    """Cost of dispatch and of importing."""
    document = load("dispatch_cost")
    if document is None:
        return []
    rows = {row["what"]: row for row in document["rows"]}
    lines = [f"Dispatch ({where(document)}; `benchmarks/results/dispatch_cost.json`):", ""]
    lines += ["| what | median |", "|---|---|"]
    lines += [
        f"| {what} | {row['median_us']:.2f} us |"
        for what, row in rows.items()
        if "median_us" in row
    ]
    lines.append(f"| `import autotune` over `import numpy` | {rows['import']['ratio']:.2f} |")
    return [*lines, ""]


def block_gpu() -> list[str]:
    """The block's time over PyTorch's eager one, called and replayed as a graph."""
    document = load("block_gpu")
    if document is None:
        return []
    lines = ["`transformer_block_train` (B=2, D=64, F=256) over PyTorch eager on one GPU, called"]
    lines += [f"from Python and replayed as a CUDA graph ({where(document)};"]
    lines += ["`benchmarks/results/block_gpu.json`):", ""]
    lines += ["| dtype | N | called | replayed |", "|---|---|---|---|"]
    for row in document["rows"]:
        eager = row["ms"]["torch"][0]
        called, replayed = row["over"]["torch"][0], row["graph_ms"] / eager
        lines.append(f"| {row['dtype']} | {row['N']} | {called:.2f} | {replayed:.2f} |")
    return [*lines, ""]


def norm_mlp_gpu() -> list[str]:
    """Normalisation and MLP over the faster of PyTorch eager and compiled."""
    document = load("norm_mlp_gpu")
    if document is None:
        return []
    lines = ["`norm_mlp_train` over the faster of PyTorch eager and compiled on one GPU"]
    lines += [f"({where(document)}; `benchmarks/results/norm_mlp_gpu.json`):", ""]
    lines += ["| dtype | tokens | D | F | ms | over PyTorch |", "|---|---|---|---|---|---|"]
    for row in document["rows"]:
        sizes = " | ".join(str(row[name]) for name in ("N", "D", "F"))
        ms, ratio = row["ms"]["ours"][0], row["ratio"][0]
        lines.append(f"| {row['dtype']} | {sizes} | {ms:.3f} | {ratio:.2f} |")
    return [*lines, ""]


def gpu_dispatch() -> list[str]:
    """Host time of a launch through dispatch, beside a bare one."""
    document = load("gpu_dispatch")
    if document is None:
        return []
    wanted = (
        *("bare CuPy RawKernel", "kernel(x, out=y)", "dispatch(scale, x)(x, out=y)"),
        *("dispatch(scale, x)(x)", "torch: torch.mul(x, 2, out=y)"),
    )
    rows = {row["what"].strip(): row for row in document["rows"]}
    label = document.get("gpu_label", document["gpu"])
    lines = [f"Host time of one launch on an {label} ({where(document)};"]
    lines += ["`benchmarks/results/gpu_dispatch.json`):", "", "| what | median |", "|---|---|"]
    lines += [f"| {what} | {rows[what]['median_us']:.2f} us |" for what in wanted if what in rows]
    return [*lines, ""]


def regret() -> list[str]:
    """Mean regret on sizes that were not tuned."""
    document = load("regret")
    if document is None:
        return []
    values = [max(row["regret"], 0.0) for row in document["rows"]]
    sizes = ", ".join(str(n) for n in sorted({row["N"] for row in document["rows"]}))
    return [
        f"Regret at sizes nobody tuned (N = {sizes} after tuning powers of two): mean "
        f"{100 * statistics.fmean(values):.1f}%, worst {100 * max(values):.1f}% "
        f"({where(document)}; "
        "`benchmarks/results/regret.json`).",
        "",
    ]


def study() -> list[str]:
    """The study's arrangements in device time: milliseconds by N and level, and ratios."""
    document = load("study_gpu")
    if document is None:
        return []
    rows = document["rows"]
    lines = [f"Milliseconds ({document['gpu_label']}, {document['circumstances']['date'][:10]};"]
    lines += ["`benchmarks/results/study_gpu.json`, with intervals and configs):", ""]
    lines.append("| arrangement | level | " + " | ".join(f"N={row['N']}" for row in rows) + " |")
    lines.append("|---|---|" + "---|" * len(rows))
    labels = dict.fromkeys(label for row in rows for label in row["forms"])
    for label in labels:
        name, level = label.split(", ")
        cells = [
            f"{row['forms'][label]['ms']:.3g}" if label in row["forms"] else "-" for row in rows
        ]
        lines.append(f"| {name} | {level} | " + " | ".join(cells) + " |")
    lines += ["", "| ratio | level | " + " | ".join(f"N={row['N']}" for row in rows) + " |"]
    lines.append("|---|---|" + "---|" * len(rows))
    for level in ("study", "on chip", "tiled"):
        for one, other in (("separate", "v3"), ("separate", "v2"), ("v4", "v3")):
            cells = [_ratio(row["forms"], f"{one}, {level}", f"{other}, {level}") for row in rows]
            lines.append(f"| {one} / {other} | {level} | " + " | ".join(cells) + " |")
    few = ", ".join(f"{row['rounds']} at N={row['N']}" for row in rows if row["rounds"] < 6)
    lines += ["", f"Seven rounds or more, but {few}: too few for an interval."] if few else []
    return lines


def _ratio(forms: dict[str, Any], one: str, other: str) -> str:
    if one not in forms or other not in forms:
        return "-"
    return f"{forms[one]['ms'] / forms[other]['ms']:.2f}"


def main() -> None:
    figures = [
        *attention("attention_cpu_16"),
        *attention("attention_cpu"),
        *decode("decode_cpu_16"),
        *decode("decode_cpu"),
        *dispatch(),
        *attention_gpu(),
        *norm_mlp_gpu(),
        *block_gpu(),
        *gpu_dispatch(),
        *regret(),
    ]
    text = README.read_text()
    text = between(text, "figures", "\n".join(figures).strip())
    if "--show" in sys.argv[1:]:
        shown = subprocess.run([SHOW, "show"], capture_output=True, text=True, check=True)
        write("show", [], text=shown.stdout)
    document = load("show")
    if document is not None:
        block = f"```\n{document['text'].rstrip()}\n```\n\n({where(document)})"
        text = between(text, "show", block)
    README.write_text(text)
    page = RESULTS.parents[1] / "docs" / "study_on_an_h200.md"
    page.write_text(between(page.read_text(), "study", "\n".join(study())))
    print(f"wrote {README} and {page}")


if __name__ == "__main__":
    main()
