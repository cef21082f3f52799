"""The GPU tables of docs/study.md; each is empty where its benchmark has not been run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import published
from common import RESULTS
from tables import load, number, over, ratio, source, table

POLICY = RESULTS.parents[1] / "policies" / "autotune_policies" / "data" / "nvidia-h200.json"

# What `autotune profile` prints: a heading, an empty line, and counted, predicted and ratio.
_KERNEL = re.compile(r"^attention_train .*? float64  (\w+) .*?\n\n(.*?)\n\n", re.M | re.S)
_NUMBER = r" +([\d.,]+(?: \w+)?)"
_COUNT = re.compile(
    rf"^  (bytes read|bytes written|atomic additions){_NUMBER}{_NUMBER} +(\S+)$", re.M
)


def forward_gpu() -> list[str]:
    """Forward on an H200: the study's, and the shipped policy's by whether A is stored."""
    found: dict[int, dict[str, float]] = {}
    for entry in json.loads(POLICY.read_text())["policies"]:
        matched = re.fullmatch(
            r"attention B=2,H=1,Hkv=1,Nq=(\d+),Nk=\1,D=64,Dv=64 float64 causal=False packed",
            entry["problem"],
        )
        if matched and entry["mode"] == "cold":
            found[int(matched[1])] = {v["variant"]: v["seconds"] * 1e3 for v in entry["variants"]}
    rows = []
    for n, times in sorted(found.items()):
        stored, best = times.get("cuda_arranged_stored"), min(times.values())
        theirs = published.FORWARD_H200[n]
        gain = f"{theirs / best:.0f} x"
        rows.append((n, number(theirs), number(stored), number(best), gain))
    head = ("N", "study, ms", "A stored, ms", "A on chip, ms", "study over the last")
    return [*table(head, rows), ""]


def weight_gradients_gpu() -> list[str]:
    """Gradients of the MLP's weights: shares summed in order, atomics, or products of matrices."""
    rows: list[tuple[object, ...]] = []
    for entry in json.loads(POLICY.read_text())["policies"]:
        operation, shape, dtype, *_ = entry["problem"].split()
        if operation != "norm_mlp_train":
            continue
        ms = {each["variant"]: number(each["seconds"] * 1e3) for each in entry["variants"]}
        for own in (name for name in ms if f"{name}_atomic" in ms):
            rows.append((shape, dtype, own, ms[own], ms[f"{own}_atomic"], ms.get("cuda_blas")))
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
    rows = []
    for row in document["rows"]:
        theirs = published.V3_H200.get(row["N"])
        if (row["dtype"], row["mode"], row["D"], row["H"]) == ("float64", "cold", 64, 1) and theirs:
            cells = (number(theirs), number(row["ours_ms"]), number(row["torch_ms"]))
            rows.append((row["N"], *cells, f"{theirs / row['ours_ms']:.0f} x"))
    head = ("N", "study's v3, ms", "ours, ms", "PyTorch, ms", "study over ours")
    return [*table(head, rows), ""]


def traffic() -> list[str]:
    """Predicted and counted traffic and atomics at N = 2048."""
    rows: list[tuple[object, ...]] = []
    for what, (predicted, counted) in published.TRAFFIC.items():
        cells = (f"{predicted:.1f} MB", f"{counted:.1f} MB", f"{counted / predicted:.2f}")
        rows.append(("study, A100: forward", f"bytes {what}", *cells))
    log = (RESULTS / "profile_gpu_h200.log").read_text()
    for name, counts in _KERNEL.findall(log):
        for what, counted, predicted, quotient in _COUNT.findall(counts):
            rows.append((f"H200: {name}", what, predicted, counted, quotient))
    return [*table(("kernel", "count", "predicted", "counted", "ratio"), rows), ""]


def decode_gpu() -> list[str]:
    """Decode on a GPU, float64 and one head: the study's A100, and device time."""
    document = load("decode_gpu")
    if document is None:
        return []
    ours = {
        row["N"]: row
        for row in document["rows"]
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
    return [text, "", *table(head, rows), "", *source(document, "decode_gpu")] if rows else []


def norm_mlp_gpu() -> list[str]:
    """Normalisation and MLP with gradients on a GPU, beside PyTorch."""
    text = (
        "On a GPU, device time of eager calls with a cold L2. The study's fused form took 23.1 ms "
        "in Fortran and 47.2 in C at 2,048 tokens on an A100, copies included:"
    )
    return _trained("norm_mlp_gpu", text, {})


def block_gpu() -> list[str]:
    """The block with gradients on a GPU, beside PyTorch and the study's."""
    text = "On a GPU, device time of eager calls with a cold L2; the study's are wall times:"
    return _trained("block_gpu", text, published.BLOCK_A100)


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
        cells = (ms["ours"], number(row.get("graph_ms")), ms["torch"])
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
