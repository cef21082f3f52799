"""Finds what `autotune show` asks about, and hands it to the report that fits."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from autotune.cli.answer import Answer
from autotune.cli.selection import Words, chosen_problems, flag_values
from autotune.device import Device, find_device, local_devices
from autotune.device.find import called_so
from autotune.errors import DeviceNotFoundError, StoreUnavailableError, UnknownNameError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.report.entries import Entry, collect, known_operation
from autotune.store import load_snapshot, open_tuning_db
from autotune_policies import Snapshot
from autotune_tuning_db import MODES, DeviceRow, PinRow, ProblemKey, TrialRow


@dataclass(frozen=True, slots=True)
class Query:
    """What to show; None stands for any."""

    operation: str | None
    problems: tuple[Problem, ...] | None
    dtypes: tuple[str, ...]
    flags: Mapping[str, Any]
    mode: str | None
    device: str | None

    @classmethod
    def of(
        cls,
        operation: str | None,
        words: Words,
        *,
        mode: str | None,
        device: str | None,
    ) -> Query:
        """From the options; every spelling that can be checked is checked."""
        if mode not in (None, *MODES):
            raise UnknownNameError("mode", str(mode), MODES)
        target = known_operation(operation) if operation else None
        if target is None:
            if words.shapes or words.settings:
                what = f"unknown operation {operation!r}" if operation else "no operation is named"
                raise UserError(f"--shape and --set need an operation, and {what}.")
            return cls(operation, None, words.dtypes, {}, mode, device)
        names = tuple(target.check_dtype(name) for name in words.dtypes)
        flags = flag_values(target, words.settings)
        chosen = None
        if words.shapes:
            every = replace(words, dtypes=names or target.dtypes)
            chosen = tuple(chosen_problems(target, every))
        return cls(operation, chosen, names, flags, mode, device)

    def wants(self, key: ProblemKey) -> bool:
        """Whether an entry with this key is asked about."""
        if self.operation not in (None, key.operation) or (
            self.dtypes and key.dtype not in self.dtypes
        ):
            return False
        flags = dict(key.flags)
        if any(flags.get(name) != value for name, value in self.flags.items()):
            return False
        return self.problems is None or key.dims in {p.key.dims for p in self.problems}


@dataclass(frozen=True, slots=True)
class Found:
    """The entries that a query asks about, and what surrounds them."""

    entries: tuple[Entry, ...]
    elsewhere: int
    trials: tuple[TrialRow, ...]
    devices: tuple[DeviceRow, ...]
    pins: tuple[PinRow, ...] = ()


def find(query: Query) -> Found:
    """Look everything up; a store that cannot be read counts as empty, with a warning."""
    snapshot, _ = load_snapshot()
    trials, devices = _from_store(query)
    _check_operation(query, snapshot, trials)
    every = collect(snapshot, trials, local_devices(), query.wants)
    every = [entry for entry in every if query.mode in (None, entry.mode)]
    identities = _identities(query, devices, snapshot)
    chosen = [e for e in every if identities is None or e.device in identities]
    shown = {id(entry.pin) for entry in chosen}
    pins = [
        pin
        for pin in snapshot.pins
        if id(pin) not in shown
        and query.operation in (None, pin.operation)
        and (pin.problem is None or query.wants(pin.problem))
        and (identities is None or pin.device in identities)
    ]
    elsewhere = len(every) - len(chosen)
    return Found(tuple(chosen), elsewhere, tuple(trials), tuple(devices), tuple(pins))


def _from_store(query: Query) -> tuple[list[TrialRow], list[DeviceRow]]:
    try:
        with open_tuning_db(readonly=True) as store:
            return store.trials(operation=query.operation), store.devices()
    except StoreUnavailableError:
        return [], []  # load_snapshot has said so


def _check_operation(query: Query, snapshot: Snapshot, trials: Sequence[TrialRow]) -> None:
    """An operation has to be registered or stored; one of an absent plugin is only stored."""
    if query.operation is None or known_operation(query.operation) is not None:
        return
    from autotune.registry import registry

    stored = {p.problem.operation for p in snapshot.policies}
    stored |= {row.problem.operation for row in trials}
    if query.operation not in stored:
        known = {operation.name for operation in registry.operations()} | stored
        raise UnknownNameError("operation", query.operation, known)


def _identities(
    query: Query, devices: Sequence[DeviceRow], snapshot: Snapshot
) -> frozenset[str] | None:
    if query.device == "all":
        return None
    if query.device is None:
        return frozenset(device.identity for device in local_devices())
    labels = {policy.device: "" for policy in snapshot.policies}
    labels |= {row.identity: row.label for row in devices}
    if query.device in labels:
        return frozenset({query.device})
    try:
        return frozenset({find_device(query.device, usable=False).identity})
    except DeviceNotFoundError:
        called = {each for each, label in labels.items() if called_so(query.device, label, each)}
        if not called:
            raise
        return frozenset(called)


def listed(query: Query, found: Found) -> Answer:
    """One line for each problem."""
    from autotune.report.policies import (
        device_labels,
        entry_document,
        list_blocks,
        pin_blocks,
        pin_document,
    )

    documents = [entry_document(entry) for entry in found.entries]
    documents += [pin_document(pin) for pin in found.pins]
    labels = device_labels(found.devices, local_devices())
    blocks = list_blocks(found.entries, labels)
    if not found.entries:
        blocks = ["nothing is cached for this.", *_what_to_run(query)]
    elif query.operation is None or query.problems is None:
        blocks += ["", "autotune show OP --shape SHAPE --explain tells everything about a problem."]
    blocks += pin_blocks(found.pins)
    if found.elsewhere:
        blocks.append(f"{found.elsewhere} more of other devices: --device all shows them.")
    return Answer(blocks, documents)


def _what_to_run(query: Query) -> list[Any]:
    from autotune.explain import nothing_to_measure
    from autotune.report.blocks import Verbatim
    from autotune.spelling import tune_command

    if not query.problems:
        name = f" {query.operation}" if query.operation else ""
        return [Verbatim(f"to measure: autotune tune{name}")]
    device = _measured_on(query.device)
    why = {problem: nothing_to_measure(problem, device) for problem in query.problems}
    commands = [tune_command(each, mode=query.mode or "cold") for each in why if not why[each]]
    if not commands:
        return list(dict.fromkeys(why.values()))
    return ["to measure:", *(Verbatim(f"  {command}") for command in commands[:8])]


def _measured_on(name: str | None) -> Device:
    """The device of that name if it is here, else the best that is."""
    try:
        return find_device(None if name == "all" else name, usable=False)
    except DeviceNotFoundError:
        return find_device(None, usable=False)


def whys(found: Found) -> Answer:
    """What each entry depends on and what has changed."""
    from autotune.report.policies import entry_document
    from autotune.report.trust import field_rows, why_blocks

    if not found.entries:
        return Answer(["nothing is cached for this."], [])
    documents = [
        entry_document(entry) | {"depends_on": field_rows(entry)} for entry in found.entries
    ]
    return Answer(why_blocks(found.entries), documents)


def failures(found: Found) -> Answer:
    """Every candidate that failed or was skipped."""
    from autotune.report.losses import failure_blocks, failure_documents

    documents = failure_documents(found.entries, found.trials)
    return Answer(failure_blocks(documents), documents)


def history(query: Query, variants: Sequence[str]) -> Answer:
    """Every version of the variants (of all, when none is named) with what it measured."""
    from autotune.accept import labels_of, versions
    from autotune.cli.history_rows import stored_rows
    from autotune.report.history import history_blocks, history_document
    from autotune.report.policies import device_labels

    trials, devices = stored_rows(query.operation)
    snapshot, _ = load_snapshot()
    _check_operation(query, snapshot, trials)
    identities = _identities(query, devices, snapshot)
    mine = [
        row
        for row in trials
        if query.wants(row.problem)
        and query.mode in (None, row.mode)
        and (identities is None or row.device in identities)
    ]
    _check_variants(variants, {row.variant for row in trials})
    chosen = [row for row in mine if not variants or row.variant in variants]
    found = versions(chosen, labels_of(trials))
    labels = device_labels(devices, local_devices())
    return Answer(history_blocks(found, labels), history_document(found))


def _check_variants(names: Sequence[str], known: Set[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError("variant that was measured", name, known)


def explained(query: Query) -> Answer:
    """One problem on one device of this machine in full."""
    from autotune.report.policies import entry_document
    from autotune.report.ranking import explain_blocks, explain_document
    from autotune.serving import Server

    if query.operation is None:
        raise UserError("--explain is about one problem: autotune show OP --shape ... --explain.")
    device = _local(query.device)
    found = find(query)
    problem, mode = _the_problem(query, found)
    mine = [e for e in found.entries if e.key == problem.key and e.device == device.identity]
    entry = next((e for e in mine if e.mode == mode), None)
    server = Server()
    with _hushed():
        blocks = explain_blocks(problem, device, mode=mode, entry=entry, server=server)
        document = explain_document(problem, device, mode=mode, server=server)
    return Answer(blocks, [(entry_document(entry) if entry else {}) | document])


def _local(name: str | None) -> Device:
    if name == "all":
        raise DeviceNotFoundError("--explain is about one device of this machine, not all.")
    return find_device(name, usable=False)


def _the_problem(query: Query, found: Found) -> tuple[Problem, str]:
    """The problem that the options name, else the only one that is cached."""
    operation: Operation | None = known_operation(str(query.operation))
    if operation is None:
        raise UserError(
            f"{query.operation} is not registered here; load its plugin: --plugin FILE."
        )
    entries = [entry for entry in found.entries if entry.problem is not None]
    if query.problems is None:
        if len(entries) != 1:
            raise UserError(
                f"{len(entries)} problems of {operation.name} are cached here; "
                "name one with --shape, --dtype, --set and --mode."
            )
        return Problem.from_key(operation, entries[0].key), entries[0].mode
    measured = [p for p in query.problems if p.key in {entry.key for entry in entries}]
    chosen = query.problems if query.dtypes else (*measured, *query.problems)[:1]
    if len(chosen) != 1:
        raise UserError(f"--explain is about one problem, and the options name {len(chosen)}.")
    modes = [entry.mode for entry in entries if entry.key == chosen[0].key]
    return chosen[0], query.mode or (modes[0] if len(modes) == 1 else "cold")


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """The report says itself what dispatch would say on a miss."""
    log = logging.getLogger("autotune")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
