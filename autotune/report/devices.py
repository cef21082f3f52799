"""`autotune devices`: every local device with its identity and its make-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune import units
from autotune.device import Device
from autotune.report.blocks import Block, Facts, Heading


def device_document(device: Device) -> dict[str, Any]:
    """A device as plain values."""
    return {
        "kind": device.kind,
        "identity": device.identity,
        "family": device.family,
        "label": device.label,
        "facts": dict(device.facts),
    }


def device_blocks(devices: Iterable[Device]) -> list[Block]:
    """One part for each device."""
    blocks: list[Block] = []
    for device in devices:
        blocks += [""] if blocks else []
        blocks += [Heading(f"{device.kind}  {device.label}"), Facts(tuple(_rows(device)))]
    return blocks


def _rows(device: Device) -> list[tuple[str, str]]:
    rows = [("identity", device.identity), ("family", device.family)]
    facts = dict(device.facts)
    if device.kind == "cpu":
        return rows + _cpu_rows(facts)
    return rows + [(name.replace("_", " "), str(value)) for name, value in facts.items()]


def _cpu_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("sockets", str(facts["sockets"]))]
    rows += _named("NUMA nodes", [_node(node) for node in facts["nodes"]])
    widths = "-".join(str(width) for width in facts["threads_per_core"]) or "1"
    slow = f", {facts['efficiency_cores']} of them slow" if facts["efficiency_cores"] else ""
    smt = "no SMT" if widths == "1" else f"{widths} threads each"
    rows.append(("cores", f"{facts['cores']} ({smt}{slow})"))
    rows += _named("caches", [_cache(cache) for cache in facts["caches"]] or ["unknown"])
    quota = facts["quota"]
    rows += [
        ("affinity", f"CPUs {facts['affinity']}"),
        ("CPU quota", "none" if quota is None else f"{quota:.3g} CPUs"),
        ("threads", f"at most {facts['max_threads']}"),
        ("vector units", ", ".join(facts["vector"]) or "unknown"),
    ]
    return rows


def _named(name: str, values: list[str]) -> list[tuple[str, str]]:
    return [(name if index == 0 else "", value) for index, value in enumerate(values)]


def _node(node: Mapping[str, Any]) -> str:
    memory = units.size(node["memory_bytes"]) if node["memory_bytes"] else "memory not told"
    cpus = "memory only, no CPUs to use" if node["cpus"] == "none" else f"CPUs {node['cpus']}"
    barred = "" if node["usable"] else " (a cpuset bars it)"
    return f"node {node['id']}: {cpus}, {memory}{barred}"


def _cache(cache: Mapping[str, Any]) -> str:
    shared = cache["shared_by"]
    by = f", shared by {shared} CPUs" if shared > 1 else ""
    times = f" x {cache['count']}" if cache["count"] > 1 else ""
    return f"L{cache['level']} {cache['kind']} {units.size(cache['size_bytes'])}{times}{by}"
