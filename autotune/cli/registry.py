"""`autotune variants` and `autotune devices`: what there is to choose from."""

from __future__ import annotations

from typing import Any

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, DeviceName, Dtypes, Flags, Operation, Plugins, Shapes


@answers
def variants(
    operation: Operation = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    device: DeviceName = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """List operations and their variants.

    With OP: passes, tunables, constraints, derived traits, and where each can run and why not
    here; with --shape also the predicted traffic of each default config. Without --device, each
    on the best device of its kind.
    """
    from autotune.cli.selection import Words, find_operation, load_registry, one_problem
    from autotune.device import find_device, local_devices
    from autotune.errors import UserError
    from autotune.registry import registry
    from autotune.report import variants as report

    load_registry(plugin)
    machine = find_device(device)
    best = {} if device else {each.kind: each for each in reversed(local_devices())}
    words = Words.of(shape, dtype, flags)
    if operation is None and words:
        raise UserError("--shape needs an operation: autotune variants OP --shape ...")
    chosen = [find_operation(operation)] if operation else registry.operations()
    problem = one_problem(chosen[0], words) if words else None
    documents: list[dict[str, Any]] = []
    for each in chosen:
        found = [
            report.variant_document(variant, best.get(variant.device, machine), problem)
            for variant in registry.variants(each)
        ]
        documents.append(report.operation_document(each) | {"variants": found})
    if operation is None:
        return Answer(report.overview_blocks(documents), documents)
    blocks = report.detail_blocks(documents[0])
    return Answer([*blocks, "", report.at_problem(problem)] if problem else blocks, documents)


@answers
def devices(as_json: AsJson = False) -> Answer:
    """List this machine's devices.

    Each with its identity; for a CPU sockets, NUMA nodes, cores, caches, affinity and quota; for a
    GPU its SMs, memory, caches and partition, and what keeps it from being used.
    """
    from autotune.device import local_devices, why_no_gpu
    from autotune.report.devices import device_blocks, device_document

    found = local_devices()
    none = why_no_gpu() if len(found) == 1 else None
    return Answer(device_blocks(found, none), [device_document(device) for device in found])
