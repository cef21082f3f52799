"""The server behind dispatch: one snapshot, one kernel per problem, quarantine, fallbacks."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autotune.asking import Wish, device_of_arrays, problem_from_arrays, problem_from_shape
from autotune.device import find_device
from autotune.errors import NoPolicyError
from autotune.explain import explain_resolution, gone_message, miss_message
from autotune.fallback import choose_default
from autotune.kernel import Kernel
from autotune.locks import Lock
from autotune.model.problem import Config, Problem
from autotune.model.space import default_config, why_not
from autotune.model.variant import Variant
from autotune.modes import require_mode
from autotune.on_miss import may_tune, tune_now
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.rejected import Rejected
from autotune.resolution import resolve_policies
from autotune.settings import settings
from autotune.store import generation, load_snapshot
from autotune_policies import Resolution, Snapshot

if TYPE_CHECKING:
    from autotune.execution import Executable

log = logging.getLogger("autotune")

_LARGEST = 8192
_TOLD_OF = 8  # problems that were missed; the others are counted
_MORE = "more problems have no measurement that applies; autotune.stats() counts them."
_LOOK_EVERY = 1.0  # seconds between looks at the store's generation, on misses only


@dataclass(frozen=True, slots=True)
class Served:
    """A chosen candidate, on what grounds, and how to build it."""

    candidate: Variant
    config: Config
    origin: str
    explanation: str
    problem: Problem = field(repr=False)
    device: Any = field(repr=False)

    @property
    def variant(self) -> str:
        """Name of the variant."""
        return self.candidate.name

    def build(self) -> Executable:
        """Compile it; raises whatever the variant's builder raises."""
        from autotune.execution import Executable
        from autotune.quiet import Quiet, quietly

        built: Executable = quietly(Executable)(
            self.candidate, self.problem, self.config, self.device
        )
        # What an update leaves half done cannot be run again.
        once = self.device.kind == "cpu" and bool(self.problem.operation.updated)
        return Quiet(built) if once else built


class Server:
    """Answers from one snapshot at a time; thread-safe; a broken store never reaches a caller."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kernels: dict[Any, Kernel] = {}
        self._busy: dict[Any, Lock] = {}
        self._quarantined: set[tuple[str, str]] = set()
        self._without_room: set[tuple[str, str]] = set()  # problem and variant
        self._announced: set[str] = set()
        self._told_of: set[str] = set()
        self._frozen = settings().frozen
        self._looked = time.monotonic()
        self._snapshot, self._generation = load_snapshot()
        self.counts: Counter[str] = Counter()

    @property
    def snapshot(self) -> Snapshot:
        """The policies in force in this process."""
        return self._snapshot

    def kernel(
        self, operation: Any, spec: tuple[Any, ...], dtype: Any, options: Mapping[str, Any]
    ) -> Kernel:
        """The kernel for a positional shape or `dims=`; see `autotune.dispatch`."""
        load_plugins()
        target = registry.operation(operation)
        problem = problem_from_shape(target, spec, dtype, options)
        return self._bind(problem, find_device(options.get("device")), options)

    def kernel_for_arrays(
        self, operation: Any, arrays: tuple[Any, ...], dtype: Any, options: Mapping[str, Any]
    ) -> Kernel:
        """The kernel for example arrays; `dtype` is None or what the caller says it is."""
        load_plugins()
        target = registry.operation(operation)
        problem = problem_from_arrays(target, arrays, dtype, options)
        return self._bind(problem, device_of_arrays(arrays, options.get("device")), options)

    def _bind(self, problem: Problem, device: Any, options: Mapping[str, Any]) -> Kernel:
        wish = Wish.of(options)
        names = problem.operation.scalars
        numbers = problem.scalars({name: options[name] for name in names if name in options})
        scalars = dict(zip(names, numbers, strict=True))
        self._look_for_news()
        index = getattr(device, "index", None)  # two GPUs of one kind have one identity
        key = (problem.key, device.identity, index, wish, numbers)
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is not None:
                self.counts["known"] += 1
                return kernel
            busy = self._busy.setdefault(key, Lock())
        try:
            with busy:  # one thread resolves a key, and may tune it; the others wait for that
                kernel = self._kernels.get(key)
                if kernel is not None:
                    self._note("known")
                    return kernel
                snapshot = self._snapshot
                kernel = self._resolved(problem, device, wish, scalars)
                self._keep(key, kernel, snapshot)
                return kernel
        finally:
            with self._lock:
                self._busy.pop(key, None)

    def _resolved(
        self, problem: Problem, device: Any, wish: Wish, scalars: dict[str, Any]
    ) -> Kernel:
        self._note("misses")

        def serve_next(failed: Served, error: BaseException) -> Served:
            return self._after_failure(problem, device, wish, failed, error)

        served = self.serve(problem, device, wish)
        return Kernel(problem, served, device=device, scalars=scalars, serve_next=serve_next)

    def _keep(self, key: Any, kernel: Kernel, snapshot: Snapshot) -> None:
        """Remember a kernel, unless the policies that it rests on were replaced meanwhile."""
        with self._lock:
            if len(self._kernels) >= _LARGEST:
                self._kernels.clear()
            if snapshot is self._snapshot:
                self._kernels[key] = kernel

    def _note(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def serve(self, problem: Problem, device: Any, wish: Wish) -> Served:
        """Choose: pinned, tuned, interpolated, family; then tune, predict or fall back."""
        require_mode(wish.mode, device.kind)
        admitted = self._admitted(problem, device)
        rejects = Rejected(problem, device.identity)
        resolution = resolve_policies(self._snapshot, problem, device, wish, admitted, rejects)
        applies = resolution.applies(wish.mode)
        if wish.strict and not applies:
            raise NoPolicyError(
                miss_message(problem, device, resolution, self._snapshot, mode=wish.mode)
            )
        may = not applies and wish.tune_on_miss and may_tune(device)
        if may and tune_now(problem, device, wish):
            return self.serve(problem, device, replace(wish, tune_on_miss=False))
        if resolution.origin is not None:
            variant = admitted[resolution.variant]
            config = resolution.config
            chosen = default_config(variant, problem, device) if config is None else dict(config)
            text = explain_resolution(problem, device, resolution)
            self._name_the_gone(problem, resolution)
            served = Served(variant, Config(chosen), resolution.origin, text, problem, device)
        else:
            variant, chosen, origin, text = choose_default(
                problem,
                device,
                wish.constraints,
                admitted=admitted,
                rejects=rejects,
                resolution=resolution,
            )
            self._tell_of_miss(problem, device, resolution, wish.mode)
            served = Served(variant, chosen, origin, text, problem, device)
        self._note(served.origin)
        return served

    def _tell_of_miss(
        self, problem: Problem, device: Any, resolution: Resolution, mode: str
    ) -> None:
        """One line for each of the first few problems that nothing measured answers."""
        about = problem.key.text
        with self._lock:
            if len(self._told_of) < _TOLD_OF:
                self._told_of.add(about)
            in_full = about in self._told_of

        def miss() -> str:
            return miss_message(problem, device, resolution, self._snapshot, mode=mode, limit=1)

        if in_full:
            self._say_once(about, miss)
        else:
            self._say_once("", lambda: _MORE)

    def _name_the_gone(self, problem: Problem, resolution: Resolution) -> None:
        """Stored choices whose variants nobody registers any more."""
        name, here = problem.operation.name, registry.variants(problem.operation)
        for gone in {s.variant for s in resolution.skipped} - {variant.name for variant in here}:
            self._say_once(
                f"{name}/{gone}", partial(gone_message, problem, gone, resolution.variant)
            )

    def _admitted(self, problem: Problem, device: Any) -> dict[str, Variant]:
        name = problem.operation.name
        return {
            variant.name: variant
            for variant in registry.variants(problem.operation)
            if (name, variant.name) not in self._quarantined
            and (problem.key.text, variant.name) not in self._without_room
            and why_not(variant, problem, device.kind, device.limits) is None
        }

    def _after_failure(
        self, problem: Problem, device: Any, wish: Wish, failed: Served, error: BaseException
    ) -> Served:
        """Set a variant that failed aside for this process, and choose again.

        One that ran out of memory is set aside for this problem alone.
        """
        from autotune.worker.failures import is_memory

        lacking = is_memory(error)
        aside = self._without_room if lacking else self._quarantined
        place = (problem.key.text if lacking else problem.operation.name, failed.variant)
        with self._lock:
            new = place not in aside
            aside.add(place)
            self.counts["quarantined"] += new
        if new:
            why = next(iter(f"{type(error).__name__}: {error}".splitlines()))
            log.warning(
                "%s failed on %s (%s); the next best serves instead.", failed.variant, problem, why
            )
        return self.serve(problem, device, replace(wish, tune_on_miss=False))

    def _say_once(self, about: str, text: Callable[[], str]) -> None:
        """One message about each thing, not one for each call."""
        with self._lock:
            new = about not in self._announced
            self._announced.add(about)
        if new:
            log.warning("%s", text())

    def refresh(self) -> Snapshot:
        """Read the policies again; kernels already handed out keep what they have."""
        from autotune.lookup import forget

        snapshot, number = load_snapshot()
        with self._lock:
            self._snapshot, self._generation = snapshot, number
            self._kernels.clear()
        forget()
        return snapshot

    def _look_for_news(self) -> None:
        """Notice, when something is missed anyway, that another process has tuned."""
        now = time.monotonic()
        if self._frozen or now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        if generation() != self._generation:
            self.refresh()


_server: Server | None = None
_server_lock = Lock()


def server() -> Server:
    """The process's server, made on first use."""
    global _server
    if _server is None:
        with _server_lock:
            if _server is None:
                made = Server()
                # A signal may have come meanwhile whose handler dispatches.
                _server = _server or made
    return _server


def refresh() -> None:
    """Let this process see the newest policies, if it has served any yet."""
    if _server is not None:
        _server.refresh()


def counts() -> Counter[str]:
    """What the server of this process has counted; nothing without one."""
    return _server.counts if _server is not None else Counter()
