"""The GPU tables of docs/study.md; each is empty where its benchmark has not been run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import published
from common import RESULTS
from tables import load, number, over, ratio, source, table

_ROUNDS = 6  # fewer have no interval of 95%
_BACKWARD = ("separate", "separate_stored")  # with atomics for GK, and without

POLICY = RESULTS.parents[1] / "policies" / "autotune_policies" / "data" / "nvidia-h200.json"

# What `autotune profile` prints: a heading, an empty line, and counted, predicted and ratio.
_KERNEL = re.compile(
    r"^attention_train B=2,H=1,N=(\d+),D=64 float64  (\w+) .*?\n\n(.*?)\n\n", re.M | re.S
)
_NUMBER = r" +([\d.,]+(?: \w+)?)"
_COUNT = re.compile(
    rf"^  (bytes read|bytes written|atomic additions){_NUMBER}{_NUMBER} +(\S+)$", re.M
)


def forward_gpu() -> list[str]:
    """Forward on an H200: the study's, as the study's in device time, and what is served."""
    document = load("study_gpu_forward")
    if document is None:
        return []
    rows, before = [], None
    for row in _measured(document):
        n, forms = row["N"], row["forms"]
        ours, tiled, served = (
            forms[name]["ms"] for name in ("stored, study", "stored, tiled", "served")
        )
        theirs = published.FORWARD_H200[n]
        growth = None
        if before is not None:
            steps = math.log2(n / before[0])
            growth = f"{math.log2(theirs / before[1]) / steps:.2f}, "
            growth += f"{math.log2(ours / before[2]) / steps:.2f}"
        before = n, theirs, ours
        gain = f"{theirs / served:.0f} x"
        rows.append((n, number(theirs), number(ours), growth, number(tiled), number(served), gain))
    head = (
        *("N", "study, ms", "A stored as there, ms", "exponents, theirs and ours"),
        *("A stored, tiled, ms", "served, ms", "study over served"),
    )
    return [*table(head, rows), "", *source(document, "study_gpu_forward")]


def backward_gpu() -> list[str]:
    """The backward alone, GK with atomics or by a pass of its own."""
    document = load("study_gpu_backward")
    if document is None:
        return []
    rows = []
    for row in _measured(document):
        n, forms = row["N"], row["forms"]
        levels = ("study", "on chip", "tiled")
        times = {level: [forms[f"{f}, {level}"]["ms"] for f in _BACKWARD] for level in levels}
        ratios = [f"{without / atomic:.2f}" for atomic, without in times.values()]
        study = f"{published.NO_ATOMICS_BACKWARD_A100[n]:.2f}"
        served = number(forms["served"]["ms"])
        rows.append(
            (
                n,
                number(published.BACKWARD_H200[n]),
                number(times["study"][0]),
                study,
                *ratios,
                served,
            )
        )
    head = (
        *("N", "study, GK atomic, ms", "as there, ms", "without over with atomics: study, A100"),
        *("H200, as the study's", "on chip", "tiled", "served, ms"),
    )
    return [*table(head, rows), "", *source(document, "study_gpu_backward")]


def _measured(document: Mapping[str, Any]) -> list[Any]:
    """Rows with enough rounds for an interval."""
    return [row for row in document["rows"] if row.get("rounds", 0) >= _ROUNDS]


def weight_gradients_gpu() -> list[str]:
    """Gradients of the MLP's weights: shares summed in order, atomics, or products of matrices."""
    rows: list[tuple[object, ...]] = []
    for entry in json.loads(POLICY.read_text())["policies"]:
        operation, shape, dtype, *flags = entry["problem"].split()
        if operation != "norm_mlp_train":
            continue
        known = (each for each in entry["variants"] if each["samples"] >= _ROUNDS)
        ms = {each["variant"]: number(each["seconds"] * 1e3) for each in known}
        for own in (name for name in ms if f"{name}_atomic" in ms):
            residual = ", residual" if "residual=True" in flags else ""
            shape_text = f"{shape.replace(',', ', ')}{residual}"
            times = (ms[own], ms[f"{own}_atomic"], ms.get("cuda_blas"))
            rows.append((shape_text, dtype, own, *times))
    head = ("", "dtype", "tokens on chip by", "shares, ms", "atomics, ms", "matrix products, ms")
    return [*table(head, rows), ""]


def ratios_gpu() -> list[str]:
    """What fusing and removing atomics does: the study's ratios, and those in device time."""
    document = load("study_gpu")
    if document is None:
        return []
    forms = {row["N"]: row["forms"] for row in document["rows"]}
    rows: list[tuple[object, ...]] = []
    for text, one, other, theirs in (
        ("v2 / separate", "v2", "separate", published.V2_OVER_SEPARATE_H200),
        ("v3 / separate", "v3", "separate", published.V3_OVER_SEPARATE_H200),
        ("v4 / v3", "v4", "v3", published.V4_OVER_V3_A100),
    ):
        who = "study, A100" if one == "v4" else "study, H200"
        rows.append((text, who, *(f"{theirs[n]:.2f}" for n in forms)))
        for level in ("study", "on chip", "tiled"):
            cells = [
                over(
                    *(each.get(f"{name}, {level}", {}).get("ms") for name in (one, other)),
                )
                for each in forms.values()
            ]
            name = {"study": "H200, as the study's"}.get(level, f"H200, {level}")
            rows.append((text, name, *(f"{c:.2f}" if c else None for c in cells)))
    return [*table(("ratio", "where", *(f"N={n}" for n in forms)), rows), ""]


def fastest_gpu() -> list[str]:
    """Forward plus backward: the study's fastest on an H200 beside what is served there."""
    document = load("attention_gpu")
    if document is None:
        return []
    found: dict[str, dict[int, tuple[float, float]]] = {"cold": {}, "graph": {}}
    for row in document["rows"]:
        if (row["dtype"], row["D"], row["H"]) == ("float64", 64, 1):
            found[row["mode"]][row["N"]] = row["ours_ms"], row["torch_ms"]
    rows = []
    for n, (ours, torch) in found["cold"].items():
        if n in published.V3_H200:
            theirs = published.V3_H200[n]
            graphs = (number(each) for each in found["graph"].get(n, (None, None)))
            cells = (number(theirs), number(ours), number(torch), *graphs)
            rows.append((n, *cells, f"{theirs / ours:.0f} x"))
    graphs_head = ("as a graph, ms", "PyTorch as a graph, ms")
    head = ("N", "study's v3, ms", "ours, ms", "PyTorch, ms", *graphs_head, "study over ours")
    return [*table(head, rows), ""]


def traffic() -> list[str]:
    """Predicted and counted traffic and atomics at N = 2048."""
    rows: list[tuple[object, ...]] = []
    for what, (predicted, counted) in published.TRAFFIC.items():
        cells = (f"{predicted:.1f} MB", f"{counted:.1f} MB", f"{counted / predicted:.2f}")
        rows.append(("study, A100: forward", f"bytes {what}", *cells))
    for size, name, counts in _KERNEL.findall(_profiles()):
        for what, counted, predicted, quotient in _COUNT.findall(counts) if size == "2048" else ():
            rows.append((f"H200: {name}", what, predicted, counted, quotient))
    return [*table(("kernel", "count", "predicted", "counted", "ratio"), rows), ""]


def counted() -> list[str]:
    """Bytes that every CUDA variant of attention moves, over the prediction."""
    document = load("traffic_gpu")
    if document is None:
        return ["Not counted on these sources yet: `benchmarks/traffic_gpu.py`.", ""]
    rows: list[tuple[object, ...]] = []
    for row in document["rows"]:
        cells = ["-"] * 3
        if "counted" in row:
            pairs = [
                (row["counted"][k], row["predicted"][k]) for k in ("bytes_read", "bytes_written")
            ]
            cells = [f"{ours / theirs:.2f}" if theirs else "-" for ours, theirs in pairs]
            cells.append(f"{row['ratio']:.2f}")
        rows.append((row["operation"], row["variant"], row["dtype"], *cells))
    head = ("operation", "variant", "dtype", "read", "written", "both")
    return [*table(head, rows), "", *source(document, "traffic_gpu")]


def sweeps() -> list[str]:
    """Gigabytes that v3 and v4 move at N = 4096, theirs and ours."""
    rows: list[tuple[object, ...]] = []
    for which, (read, written) in published.FUSED_TRAFFIC.items():
        rows.append(("study, A100", which, f"{read:.1f}", f"{written:.2f}"))
    for size, name, counts in _KERNEL.findall(_profiles()):
        if size == "4096":
            counted = {what: text for what, text, *_ in _COUNT.findall(counts)}
            read, written = (_gigabytes(counted[f"bytes {what}"]) for what in ("read", "written"))
            cells = (f"{read:.1f}", f"{written:.2f}")
            rows.append(("H200", name.removeprefix("cuda_"), *cells))
    return [*table(("where", "form", "read, GB", "written, GB"), rows), ""]


def _profiles() -> str:
    return (RESULTS / "profile_gpu_h200.log").read_text()


def _gigabytes(text: str) -> float:
    value, unit = text.split()
    return float(value) * 1024.0 ** "_KMGT".index(unit[0]) / 1e9


def decode_gpu() -> list[str]:
    """Decode on a GPU, float64 and one head: the study's A100, and device time."""
    documents = {name: load(name) for name in ("decode_gpu", "study_gpu_decode")}
    ours = {
        row["N"]: row
        for document in documents.values()
        for row in (document or {"rows": ()})["rows"]
        if (row["B"], row["H"], row["dtype"], row["mode"]) == (1, 1, "float64", "cold")
    }
    rows = [
        (
            *(n, number(published.DECODE_A100.get(n)), number(row["ours_ms"])),
            *(f"{row['ours_terabytes']:.2f}", number(row["torch_ms"])),
        )
        for n, row in sorted(ours.items())
    ]
    head = ("n", "study, A100, ms", "ours, ms", "TB/s of keys and values", "PyTorch, ms")
    text = "On a GPU, float64, one head. The study's times are those of copying the cache there."
    sources = [line for name, each in documents.items() if each for line in source(each, name)]
    return [text, "", *table(head, rows), "", *sources] if rows else []


def norm_mlp_gpu() -> list[str]:
    """Normalisation and MLP with gradients on a GPU, beside PyTorch."""
    text = (
        "On a GPU, eager calls with a cold L2. The study's fused form took 23.1 ms "
        "in Fortran and 47.2 in C at 2,048 tokens on an A100, copies included:"
    )
    few = "At the study's numbers of tokens; theirs is Fortran, the faster of the two:"
    tables = _trained("norm_mlp_gpu", text, {})
    return [*tables, *_trained("study_gpu_norm_mlp", few, published.NORM_MLP_A100)]


def block_gpu() -> list[str]:
    """The block with gradients on a GPU, beside PyTorch and the study's."""
    text = "On a GPU, eager calls with a cold L2; the study's are wall times:"
    tables = _trained("block_gpu", text, published.BLOCK_A100)
    return [*tables, *_trained("study_gpu_block", "Shorter:", published.BLOCK_A100)]


def _trained(name: str, text: str, theirs: Mapping[int, float]) -> list[str]:
    document = load(name)
    if document is None:
        return []
    rows = []
    compiled = any("torch.compile" in row["ms"] for row in document["rows"])
    for row in document["rows"]:
        ms = {which: number(each[0]) for which, each in row["ms"].items()}
        study = number(theirs.get(row["N"])) if row["dtype"] == "float64" else None
        shape = ", ".join(f"{dim}={row[dim]}" for dim in ("B", "N", "D", "F") if dim in row)
        cells: tuple[object, ...] = (ms["ours"], number(row.get("graph_ms")), ms["torch"])
        cells = (*cells, ms.get("torch.compile")) if compiled else cells
        study_cell = (study,) if theirs else ()
        served = row["variant"] + ("" if row["origin"] == "tuned" else f" ({row['origin']})")
        rows.append((shape, row["dtype"], *study_cell, *cells, ratio(row["ratio"]), served))
    study_head = ("study, A100, ms",) if theirs else ()
    head = (
        *("", "dtype", *study_head, "ours, ms", "as a graph, ms", "PyTorch, ms"),
        *(("compiled, ms", "over the faster") if compiled else ("over PyTorch",)),
        "variant",
    )
    return [text, "", *table(head, rows), "", *source(document, name)]
