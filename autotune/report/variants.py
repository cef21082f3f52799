"""`autotune variants`: what is registered, what its declarations imply, and where it can run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autotune import units
from autotune.candidates import runnable_config
from autotune.device import Device, why_no_gpu
from autotune.model.operation import Operation
from autotune.model.problem import Config, Problem
from autotune.model.space import size, unmet
from autotune.model.traits import is_deterministic, predict
from autotune.model.variant import Pass, Variant, spread
from autotune.report.blocks import Block, Facts, Heading, Table
from autotune.spelling import short_problem

_MANY = 100_000


def operation_document(operation: Operation) -> dict[str, Any]:
    """An operation's declaration as plain values."""
    return {
        "operation": operation.name,
        "doc": operation.doc,
        "dims": list(operation.dims),
        "shape": list(operation.shape or operation.dims),
        "aliases": {name: list(targets) for name, targets in operation.aliases.items()},
        "defaults": dict(operation.defaults),
        "inputs": [str(tensor) for tensor in operation.inputs],
        "outputs": [str(tensor) for tensor in operation.outputs],
        "flags": dict(operation.flags),
        "scalars": dict(operation.scalars),
        "rules": list(operation.rules),
        "dtypes": list(operation.dtypes),
        "flops": operation.flops,
    }


def variant_document(variant: Variant, device: Device, problem: Problem | None) -> dict[str, Any]:
    """A variant's declaration and what follows from it; sizes only for a problem."""
    document = {
        "operation": variant.operation.name,
        "variant": variant.name,
        "doc": variant.doc,
        "device_kind": variant.device,
        "dtypes": list(variant.dtypes or variant.operation.dtypes),
        "passes": [_pass_document(each) for each in variant.passes],
        "intermediates": [
            {"name": array.name, "dims": [str(dim) for dim in array.dims], "dtype": array.dtype}
            for array in variant.intermediates
        ],
        "tunables": [
            {
                "name": tunable.name,
                "kind": type(tunable).__name__,
                "values": list(tunable.values(device)),
                "default": tunable.start(device),
            }
            for tunable in variant.tunables
        ],
        "constraints": list(variant.constraints),
        "requires": [requirement.name for requirement in variant.requires],
        "deterministic": is_deterministic(variant),
        "atomic": sorted(_accumulated(variant, "atomic")),
        "reduction": sorted(_accumulated(variant, "reduction")),
        "launches": len(variant.passes) or None,
        "unavailable": why_not_here(variant, device, problem),
    }
    return document | ({"at": _at(variant, device, problem)} if problem else {})


def why_not_here(variant: Variant, device: Device, problem: Problem | None) -> str | None:
    """Why the variant cannot run on the device (for the problem, when there is one), or None."""
    if variant.device != device.kind or device.unusable is not None:
        lacking = why_no_gpu() if variant.device == "cuda" else None
        where = f"runs on {variant.device}"
        return f"{where}; {lacking}" if lacking else f"{where}, not on {device.kind}"
    if problem is not None:
        return runnable_config(variant, problem, device)[1] or None
    return unmet(variant, device.limits) or variant.unavailable()


def _at(variant: Variant, device: Device, problem: Problem) -> dict[str, Any] | None:
    """The default config at a problem, its prediction, and the number of admissible configs."""
    config, _ = runnable_config(variant, problem, device)
    if config is None:
        return None
    return {
        "problem": problem.key.text,
        "configs": size(variant, problem, device, _MANY),
        "default": dict(config),
        "prediction": asdict(predict(variant, problem, config)) if variant.passes else None,
    }


def _pass_document(each: Pass) -> dict[str, Any]:
    return {
        "name": each.name,
        "parallel": dict(spread(each.parallel)),
        "sequential": dict(spread(each.sequential)),
        "reads": dict(spread(each.reads)),
        "writes": dict(each.writes),
        "flops": each.flops,
    }


def _accumulated(variant: Variant, how: str) -> set[str]:
    return {a for each in variant.passes for a, kind in each.writes.items() if kind == how}


def overview_blocks(operations: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Every operation with a line for each of its variants."""
    blocks: list[Block] = []
    for operation in operations:
        blocks += [""] if blocks else []
        blocks.append(Heading(operation["operation"]))
        blocks.append(f"  {_first_line(operation['doc'])}")
        rows = [
            (
                document["variant"],
                "yes" if document["deterministic"] else "no",
                str(document["launches"] or "-"),
                ", ".join(document["atomic"]) or "-",
                str(len(document["tunables"])),
                _briefly(document["unavailable"]) or "yes",
            )
            for document in operation["variants"]
        ]
        titles = ("variant", "deterministic", ">passes", "atomics", ">tunables", "runs here")
        blocks.append(Table(titles, tuple(rows)) if rows else "  no variants")
    if not blocks:
        return ["no operations are registered; a plugin brings them: --plugin FILE."]
    reasons = {variant["unavailable"] for each in operations for variant in each["variants"]}
    reasons = {reason for reason in reasons if _briefly(reason) == "no"}
    return [
        *blocks,
        "",
        *(f"no: {reason}." for reason in sorted(reasons)),
        "autotune variants OP tells everything about one operation.",
    ]


def _briefly(reason: str | None) -> str | None:
    """A reason that holds for every variant of its kind is given once, below the tables."""
    return "no" if reason and "; " in reason else reason


def detail_blocks(operation: Mapping[str, Any]) -> list[Block]:
    """Everything about one operation."""
    blocks: list[Block] = [Heading(operation["operation"])]
    blocks += [f"  {line}" for line in _paragraphs(operation["doc"])]
    blocks.append(Facts(tuple(_operation_rows(operation))))
    for document in operation["variants"]:
        blocks += ["", Heading(document["variant"])]
        blocks += [f"  {line}" for line in _paragraphs(document["doc"])]
        blocks.append(Facts(tuple(_variant_rows(document))))
    if not operation["variants"]:
        blocks += ["", "no variants are registered; dispatch serves the reference."]
    return blocks


def _operation_rows(operation: Mapping[str, Any]) -> list[tuple[str, str]]:
    defaults = operation["defaults"]
    dims = [f"{d} (default {defaults[d]})" if d in defaults else d for d in operation["dims"]]
    rows = [("dims", ", ".join(dims)), ("shape", " x ".join(operation["shape"]))]
    rows += [(name, "stands for " + " and ".join(t)) for name, t in operation["aliases"].items()]
    rows += _list("in", operation["inputs"]) + _list("out", operation["outputs"])
    rows += _list("flags", [f"{n}={v}" for n, v in operation["flags"].items()])
    rows += _list("scalars", [f"{n} = {v}" for n, v in operation["scalars"].items()])
    return rows + _list("rules", operation["rules"]) + _list("dtypes", operation["dtypes"])


def _list(name: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, ", ".join(values))] if values else []


def _variant_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for each in document["passes"]:
        rows += _pass_rows(each)
    rows += [("tunable", _tunable(tunable)) for tunable in document["tunables"]]
    rows += [("needs", text) for text in (*document["constraints"], *document["requires"])]
    sums = document["reduction"]
    copies = f", {' and '.join(sums)} summed from a copy per worker" if sums else ""
    what = "deterministic" if document["deterministic"] else "not deterministic"
    atomics = (
        f", adds atomically into {', '.join(document['atomic'])}" if document["atomic"] else ""
    )
    launches = document["launches"]
    passes = units.number(launches, "pass", "passes") if launches else "passes not declared"
    rows.append(("derived", f"{what}, {passes}{atomics}{copies}"))
    rows += [
        ("temporary", f"{array['name']}[{', '.join(array['dims'])}]")
        for array in document["intermediates"]
    ]
    rows += _at_rows(document.get("at"))
    return [*rows, ("runs here", _here(document))]


def _here(document: Mapping[str, Any]) -> str:
    return f"no: {document['unavailable']}" if document["unavailable"] else "yes"


def _pass_rows(each: Mapping[str, Any]) -> list[tuple[str, str]]:
    over = _axes(each["parallel"])
    workers = f"parallel over {over}" if over else "one worker"
    sequential = f"; steps over {_axes(each['sequential'])}" if each["sequential"] else ""
    reads = ", ".join(_read(name, times) for name, times in each["reads"].items()) or "nothing"
    writes = ", ".join(f"{name} {how}" for name, how in each["writes"].items()) or "nothing"
    return [
        ("pass", f"{each['name']}: {workers}{sequential}"),
        ("", f"reads {reads}"),
        ("", f"writes {writes}"),
    ]


def _axes(axes: Mapping[str, Any]) -> str:
    return ", ".join(n if tile == 1 else f"{n} by {tile}" for n, tile in axes.items())


def _read(name: str, times: Any) -> str:
    return name if times == 1 else f"{name} (times {times})"


def _tunable(tunable: Mapping[str, Any]) -> str:
    values = tunable["values"]
    listed = [str(value) for value in values]
    text = ", ".join(listed)
    if len(text) > 48:
        text = f"{listed[0]} to {listed[-1]} ({len(listed)} values)"
    return f"{tunable['name']}: {text}; default {tunable['default']}"


def _at_rows(at: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if at is None:
        return []
    many = f"{at['configs']:,}" + (" or more" if at["configs"] >= _MANY else "")
    rows = [("configs", f"{many} here; default {Config(at['default'])}")]
    counts = at["prediction"]
    if counts is None:
        return rows
    moved = (
        f"reads {units.size(counts['bytes_read'])}, writes {units.size(counts['bytes_written'])}"
    )
    atomics = f", {units.count(counts['atomics'])} atomic additions" if counts["atomics"] else ""
    workspace = f", workspace {units.size(counts['workspace_bytes'])}"
    flops = f", {units.count(counts['flops'])} flops"
    return [*rows, ("predicted", f"{moved}{atomics}{workspace}{flops}")]


def at_problem(problem: Problem) -> str:
    """The line that says for which problem sizes are given."""
    return f"Sizes are for {short_problem(problem)} with each variant's default config."


def _first_line(doc: str) -> str:
    return doc.strip().splitlines()[0] if doc.strip() else "(no description)"


def _paragraphs(doc: str) -> list[str]:
    text = inspect.cleandoc(doc).strip()
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
