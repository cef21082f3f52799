"""`autotune predict`: counts and times of every variant, or of one pass by pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from autotune import units
from autotune.device import Device
from autotune.errors import DeclarationError
from autotune.estimate import Estimate
from autotune.model import Config, Prediction, Problem, Variant, predict
from autotune.model.published import PublishedCount
from autotune.model.traits import PassPrediction
from autotune.report.blocks import Block, Facts, Heading, Table, Verbatim
from autotune.report.counted import Counted, counted_document, counted_table, ratio
from autotune.roofline import Ceilings
from autotune.spelling import short_problem, tune_command

_MB = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """The best measured time of a variant, in seconds with its 95% interval, and its config."""

    config: Config
    seconds: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """A variant at a config: what its passes need, and what was measured of it, if anything."""

    variant: Variant
    config: Config
    passes: tuple[tuple[PassPrediction, Estimate], ...]
    measured: Measured | None
    counted: Counted | None = None

    @property
    def expected_seconds(self) -> float:
        """What the search expects."""
        return sum(part.seconds for _, part in self.passes)

    @property
    def roofline_seconds(self) -> float:
        """Traffic or arithmetic of every pass at the device's ceilings."""
        return sum(part.roofline for _, part in self.passes)

    def counts(self, problem: Problem) -> Prediction:
        """What the passes imply."""
        return predict(self.variant, problem, self.config)


def prediction_document(
    problem: Problem,
    device: Device,
    ceilings: Ceilings | None,
    found: Sequence[Predicted],
    skipped: Mapping[str, str],
) -> dict[str, Any]:
    """Everything as plain values: bytes, counts, seconds.

    Without ceilings the device is an assumed one: its limits, and no seconds.
    """
    read, written = problem.compulsory_bytes
    return {
        "problem": problem.key.text,
        "device": device.identity,
        "device_label": device.label,
        "compulsory": {"bytes_read": read, "bytes_written": written},
        "flops": problem.flops,
        "published": [asdict(each) for each in _published_counts(problem)],
        "assumed_limits": dict(device.limits) if ceilings is None else None,
        "ceilings": ceilings
        and {
            "measured": ceilings.measured,
            "toolchain": dict(ceilings.toolchain),
            "rates": dict(ceilings.rates),
            "disturbed": list(ceilings.disturbed),
        },
        "variants": [
            _variant_document(problem, each, timed=ceilings is not None) for each in found
        ],
        "skipped": dict(skipped),
    }


_OF_PASSES = (
    *("bytes_read", "bytes_written", "elements_read", "elements_written"),
    *("atomics", "launches"),
)


def _variant_document(problem: Problem, each: Predicted, *, timed: bool) -> dict[str, Any]:
    counts, measured = asdict(each.counts(problem)), each.measured
    counts.pop("passes")
    declared = bool(each.variant.passes)
    moved = counts["bytes_read"] + counts["bytes_written"]
    if not declared:  # nobody has counted it, which is not 0
        counts |= dict.fromkeys(_OF_PASSES)
    seconds = measured.seconds if measured else None
    return {
        "variant": each.variant.name,
        "config": dict(each.config),
        "declared": declared,
        "of_parts": bool(each.variant.parts),
        **counts,
        "over_compulsory": moved / max(sum(problem.compulsory_bytes), 1) if declared else None,
        "unit": asdict(each.variant.arithmetic),
        "roofline_seconds": each.roofline_seconds if timed else None,
        "expected_seconds": each.expected_seconds if timed else None,
        "measured_seconds": seconds,
        "measured_interval": [measured.low, measured.high] if measured else None,
        "measured_from": measured.source if measured else None,
        "ratio": seconds / each.roofline_seconds if seconds and each.roofline_seconds else None,
        "counted": counted_document(problem, each.variant, each.counted),
        "passes": [
            asdict(counted)
            | {"times": asdict(part) if timed else None, "limit": part.limit if timed else None}
            for counted, part in each.passes
        ],
    }


def prediction_blocks(
    problem: Problem, document: Mapping[str, Any], *, detailed: bool
) -> list[Block]:
    """The document for people; with `detailed` the passes of its one variant."""
    blocks: list[Block] = [
        Heading(f"{short_problem(problem)}  on {document['device_label']}"),
        Facts(tuple(_facts(document))),
        *_remark(document),
    ]
    variants = document["variants"]
    if not variants:
        return [*blocks, "", "no variant can run this here.", *_skipped(document)]
    blocks += _published(document)
    blocks += ["", _traffic(variants), "", _times(variants)]
    counted = counted_table(variants)
    if counted is not None:
        blocks += ["", counted]
    if detailed:
        blocks += _passes(variants[0])
    if document["ceilings"] is not None:
        blocks += ["", *_legend(problem, variants)]
    blocks += _skipped(document)
    return blocks


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    least, rates = document["compulsory"], (document["ceilings"] or {}).get("rates", {})
    read, written = units.size(least["bytes_read"]), units.size(least["bytes_written"])
    rows = [("at least", f"{read} read, {written} written, {units.count(document['flops'])} flops")]
    memory = [f"{name} {rates[name] / 1e9:.3g} GB/s" for name in ("read", "copy") if name in rates]
    rows += [("memory", ", ".join(memory))] if memory else []
    for unit in ("loop", "vector", "matrix"):
        names = [name for name in rates if name.startswith(f"{unit} ")]
        shown = [f"{name.split()[1]} {rates[name] / 1e9:.3g}" for name in names]
        if shown:
            rows.append((unit, f"{', '.join(shown)} GFLOP/s"))
    return rows


def _remark(document: Mapping[str, Any]) -> list[Block]:
    """That there is no GPU, or that ceilings are too low, and how to get others."""
    limits = document["assumed_limits"]
    if limits is not None:
        return [
            "No GPU is here that can be used: counts alone, by the limits of compute 9.0 "
            f"({limits['sms']} multiprocessors, {units.size(limits['shared_per_block'])} of shared "
            f"memory per block, {limits['registers_per_sm']:,} registers, "
            f"{limits['device_memory'] / 1e9:.0f} GB)."
        ]
    reasons = document["ceilings"]["disturbed"]
    if not reasons:
        return []
    return [
        f"These ceilings were taken on a busy machine ({'; '.join(reasons)}) and are not kept: "
        "the next `autotune predict` takes them again, as --measure does."
    ]


def _published_counts(problem: Problem) -> Iterator[PublishedCount]:
    """What publications count for the problem, where that can be evaluated."""
    for each in problem.operation.published:
        with suppress(DeclarationError):
            yield each.count(problem.names)


def _published(document: Mapping[str, Any]) -> list[Block]:
    """Every published count, in its own unit (MB of 10^6 bytes), and the full count beside it."""
    if not document["published"]:
        return []
    full = {
        each["variant"]: (each["bytes_read"] + each["bytes_written"]) / _MB
        for each in document["variants"]
        if each["declared"]
    }
    parts = any(each["of_parts"] for each in document["variants"] if each["declared"])
    blocks: list[Block] = ["", Heading("published")]
    for count in document["published"]:
        words = [f"{count['bytes_moved'] / _MB:.3f} MB"]
        if count["bytes_read"] is not None and count["bytes_written"] is not None:
            words.append(f"{count['bytes_read'] / _MB:.3f} read")
            words.append(f"{count['bytes_written'] / _MB:.3f} written")
        if count["atomics"] is not None:
            words.append(f"{count['atomics']:,} atomics")
        here = [f"{name} {full[name]:.3f} MB" for name in count["variants"] if name in full]
        if not count["variants"] and full:
            ends = dict.fromkeys(f"{end(full.values()):.3f}" for end in (min, max))
            here = [f"{' to '.join(ends)} MB"]
        blocks.append(f"  {count['name']}: {', '.join(words)} ({count['source']})")
        whole = "without what its parts move" if parts else "in full"
        beside = f"{whole}: {', '.join(here)}; " if here else ""
        blocks.append(f"    {beside}left out there: {count['without'] or 'nothing'}")
    return blocks


def _traffic(variants: Sequence[Mapping[str, Any]]) -> Table:
    titles = ("variant", ">read", ">written", ">over", ">atomics", ">workspace")
    rows = []
    for each in variants:
        known = each["declared"]
        rows.append(
            (
                each["variant"],
                units.size(each["bytes_read"]) if known else "-",
                units.size(each["bytes_written"]) if known else "-",
                ratio(each["over_compulsory"]),
                units.count(each["atomics"]) if each["atomics"] else "-",
                units.size(each["workspace_bytes"]),
            )
        )
    return Table(titles, tuple(rows))


def _times(variants: Sequence[Mapping[str, Any]]) -> Table:
    titles = ("variant", ">flops", ">launches", ">roofline", ">measured", ">ratio")
    rows = tuple(
        (
            each["variant"],
            units.count(each["flops"]),
            str(each["launches"]) if each["declared"] else "-",
            units.seconds(each["roofline_seconds"]),
            units.seconds(each["measured_seconds"]),
            ratio(each["ratio"]),
        )
        for each in variants
    )
    return Table(titles, rows)


def _passes(variant: Mapping[str, Any]) -> list[Block]:
    """What each pass moves and computes, and what the estimate makes of it."""
    counts = tuple(
        (
            each["name"],
            units.size(each["bytes_read"]),
            units.size(each["bytes_written"]),
            units.count(each["atomics"]) if each["atomics"] else "-",
            units.count(each["flops"]),
        )
        for each in variant["passes"]
    )
    times = tuple(
        (
            each["name"],
            "-" if each["workers"] is None else units.count(each["workers"]),
            units.count(each["steps"]),
            units.seconds((each["times"] or {}).get("seconds")),
            each["limit"] or "-",
        )
        for each in variant["passes"]
    )
    unit = variant["unit"]
    what = f"{unit['kind']} {unit['dtype']}" if unit["dtype"] else unit["kind"]
    number = f", {unit['times']} products for one" if unit["times"] > 1 else ""
    return [
        "",
        Table(("pass", ">read", ">written", ">atomics", ">flops"), counts),
        "",
        Table(("pass", ">workers", ">steps", ">expected", "limit"), times),
        "",
        Facts(
            (
                ("config", str(Config(variant["config"]))),
                ("unit", f"{what}{number}"),
                ("expected", units.seconds(variant["expected_seconds"])),
            )
        ),
    ]


def _legend(problem: Problem, variants: Sequence[Mapping[str, Any]]) -> list[Block]:
    lines: list[Block] = [
        "In the order of the expected time, which knows of atomics, launches and how many workers "
        "there are as well.",
        "over: bytes moved over the least. ratio: measured over roofline; below 1, caches "
        "delivered what is read again.",
    ]
    if not any(each["measured_seconds"] for each in variants):
        lines += ["", "Nothing is measured here:", Verbatim(f"  {tune_command(problem)}")]
    return lines


def _skipped(document: Mapping[str, Any]) -> list[Block]:
    reasons: dict[str, list[str]] = {}
    for name, reason in document["skipped"].items():
        reasons.setdefault(reason, []).append(name)
    return [f"left out: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
