"""`autotune devices`: every local device with its identity and its make-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune import units
from autotune.device import Device
from autotune.device.cuda import CudaDevice
from autotune.report.blocks import Block, Facts, Heading


def device_document(device: Device) -> dict[str, Any]:
    """A device as plain values."""
    document = {
        "kind": device.kind,
        "address": device.address,
        "identity": device.identity,
        "family": device.family,
        "label": device.label,
        "unusable": device.unusable,
        "facts": dict(device.facts),
    }
    if isinstance(device, CudaDevice):
        document |= {"uuid": device.uuid, "card": device.card, "bus_id": device.bus_id}
        document["limits"] = dict(device.limits)
    return document


def device_blocks(devices: Iterable[Device], no_gpu: str | None = None) -> list[Block]:
    """One part for each device, and why there is no GPU."""
    blocks: list[Block] = []
    for device in devices:
        blocks += [""] if blocks else []
        blocks += [Heading(f"{device.address}  {device.label}"), Facts(tuple(_rows(device)))]
    return [*blocks, "", f"no GPU: {no_gpu}."] if no_gpu else blocks


def _rows(device: Device) -> list[tuple[str, str]]:
    rows = [("identity", device.identity), ("family", device.family)]
    facts = dict(device.facts)
    if isinstance(device, CudaDevice):
        return rows + _cuda_rows(device, facts)
    return rows + _cpu_rows(facts)


def _cuda_rows(device: CudaDevice, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    slice_of = f", a slice of {device.card}" if device.card != device.uuid else ""
    memory = f"{units.size(facts['memory_bytes'])}, {facts['bus_width_bits']} bits wide"
    block, processor = units.size(facts["shared_per_block"]), units.size(facts["shared_per_sm"])
    threads = facts["max_threads_per_block"], facts["max_threads_per_sm"]
    watts = facts["power_limit_watts"]
    driver = facts["driver"] or "release not told"
    return [
        ("UUID", f"{device.uuid}{slice_of}"),
        ("bus", device.bus_id),
        ("partition", facts["partition"] or "none"),
        ("compute", f"capability {facts['compute_capability']}, {facts['sms']} SMs"),
        ("memory", f"{memory}, ECC {'on' if facts['ecc'] else 'off'}"),
        ("L2 cache", units.size(facts["l2_bytes"])),
        ("shared", f"at most {block} a block, {processor} an SM"),
        ("registers", f"{facts['registers_per_sm']} an SM"),
        ("threads", f"at most {threads[0]} a block, {threads[1]} an SM"),
        ("power limit", "not told" if watts is None else f"{watts:.0f} W"),
        ("driver", f"{driver}, for CUDA {facts['cuda']}"),
        ("usable", "yes" if device.unusable is None else f"no: {device.unusable}"),
    ]


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
        ("threads", f"at most {facts['max_threads']}{_told_by(facts['numba_threads'])}"),
        ("vector units", ", ".join(facts["vector"]) or "unknown"),
    ]
    return rows


def _told_by(numba_threads: int | None) -> str:
    return "" if numba_threads is None else ", by NUMBA_NUM_THREADS"


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
