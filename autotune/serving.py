"""The server behind dispatch: one snapshot, one kernel per problem, quarantine, fallbacks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autotune.asking import Wish, device_of_arrays, problem_from_arrays, problem_from_shape
from autotune.device import find_device
from autotune.errors import AutotuneError, NoPolicyError
from autotune.explain import explain_resolution, miss_message
from autotune.fallback import choose_default
from autotune.kernel import Kernel
from autotune.model.problem import Config, Problem
from autotune.model.space import default_config, inadmissible, why_not
from autotune.model.traits import is_deterministic, workspace_bytes
from autotune.model.variant import Variant
from autotune.modes import require_mode
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.settings import settings
from autotune.store import generation, load_snapshot
from autotune_policies import Request, Resolution, Snapshot, resolve

if TYPE_CHECKING:
    from autotune.execution import Executable

log = logging.getLogger("autotune")

_LARGEST = 8192
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

        return Executable(self.candidate, self.problem, self.config, self.device)


class Server:
    """Answers from one snapshot at a time; thread-safe; a broken store never reaches a caller."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kernels: dict[Any, Kernel] = {}
        self._quarantined: set[tuple[str, str]] = set()
        self._announced: set[str] = set()
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
        self, operation: Any, arrays: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Kernel:
        """The kernel for example arrays."""
        load_plugins()
        target = registry.operation(operation)
        problem = problem_from_arrays(target, arrays, options)
        return self._bind(problem, device_of_arrays(arrays, options.get("device")), options)

    def _bind(self, problem: Problem, device: Any, options: Mapping[str, Any]) -> Kernel:
        wish = Wish.of(options)
        scalars = {name: options[name] for name in problem.operation.scalars if name in options}
        self._look_for_news()
        index = getattr(device, "index", None)  # two GPUs of one kind have one identity
        key = (problem.key, device.identity, index, wish, tuple(scalars.items()))
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                self.counts["misses"] += 1
                kernel = Kernel(
                    problem,
                    self.serve(problem, device, wish),
                    device=device,
                    scalars=scalars,
                    serve_next=lambda failed, error: self._after_failure(
                        problem, device, wish, failed, error
                    ),
                )
                if len(self._kernels) >= _LARGEST:
                    self._kernels.clear()
                self._kernels[key] = kernel
            return kernel

    def serve(self, problem: Problem, device: Any, wish: Wish) -> Served:
        """Choose: pinned, tuned, interpolated, family; then tune, predict or fall back."""
        require_mode(wish.mode, device.kind)
        admitted = self._admitted(problem, device)
        resolution = self._resolve(problem, device, wish, admitted)
        applies = resolution.applies(wish.mode)
        if wish.strict and not applies:
            raise NoPolicyError(
                miss_message(problem, device, resolution, self._snapshot, mode=wish.mode)
            )
        may_tune = not applies and wish.tune_on_miss and _may_tune(device)
        if may_tune and self._tune(problem, device, wish):
            return self.serve(problem, device, replace(wish, tune_on_miss=False))
        if resolution.origin is not None:
            variant = admitted[resolution.variant]
            config = resolution.config
            chosen = default_config(variant, problem, device) if config is None else dict(config)
            text = explain_resolution(problem, device, resolution)
            served = Served(variant, Config(chosen), resolution.origin, text, problem, device)
        else:
            self._announce(problem, device, wish, resolution)
            variant, chosen, origin, text = choose_default(
                problem, device, wish.constraints, admitted=admitted, resolution=resolution
            )
            served = Served(variant, chosen, origin, text, problem, device)
        self.counts[served.origin] += 1
        return served

    def _admitted(self, problem: Problem, device: Any) -> dict[str, Variant]:
        name = problem.operation.name
        return {
            variant.name: variant
            for variant in registry.variants(problem.operation)
            if (name, variant.name) not in self._quarantined
            and why_not(variant, problem, device.kind, device.limits) is None
        }

    def _resolve(
        self, problem: Problem, device: Any, wish: Wish, admitted: Mapping[str, Variant]
    ) -> Resolution:
        from autotune.fingerprint import fingerprint, toolchain

        def admits(name: str, config: Any) -> str | None:
            if name not in admitted:
                return "it is not available here, or was set aside"
            variant = admitted[name]
            given = dict(config) or dict(default_config(variant, problem, device) or {})
            if wish.constraints.deterministic and not is_deterministic(variant):
                return "it is not deterministic"
            limit = wish.constraints.max_workspace
            needed = workspace_bytes(variant, problem, given) if limit is not None else 0
            if limit is not None and needed > limit:
                return f"it needs {needed} bytes of workspace at this size"
            return inadmissible(variant, problem, given, device)

        registered = {variant.name: variant for variant in registry.variants(problem.operation)}

        def current(name: str) -> str | None:
            return fingerprint(registered[name]) if name in registered else None

        request = Request(
            problem.key,
            device.identity,
            device.family,
            wish.mode,
            problem.operation.axes,
            wish.constraints,
        )
        return resolve(
            self._snapshot,
            request,
            admits=admits,
            fingerprints=current,
            toolchain=toolchain(device.kind),
        )

    def _tune(self, problem: Problem, device: Any, wish: Wish) -> bool:
        """Tune now; a failure costs one warning, and the call is served without a measurement."""
        from autotune import tune

        try:
            tune(
                problem.operation,
                dims=dict(problem.sizes),
                dtype=problem.dtype,
                device=device.address,
                mode=wish.mode,
                budget="10s",
                **problem.flags,
            )
        except AutotuneError as error:
            log.warning("could not tune %s: %s", problem, error)
            return False
        return True

    def _after_failure(
        self, problem: Problem, device: Any, wish: Wish, failed: str, error: BaseException
    ) -> Served:
        """Set a variant that failed aside for this process, and choose again."""
        with self._lock:
            self._quarantined.add((problem.operation.name, failed))
            self.counts["quarantined"] += 1
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        log.warning("%s failed on %s (%s); the next best serves instead.", failed, problem, why)
        return self.serve(problem, device, replace(wish, tune_on_miss=False))

    def _announce(self, problem: Problem, device: Any, wish: Wish, resolution: Resolution) -> None:
        """One message for each key that is missed, not for each call."""
        if problem.key.text not in self._announced:
            self._announced.add(problem.key.text)
            text = miss_message(problem, device, resolution, self._snapshot, mode=wish.mode)
            log.warning("%s", text)

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


def _may_tune(device: Any) -> bool:
    """Not while the caller captures a CUDA graph."""
    if device.kind != "cuda":
        return True
    from autotune.cuda.streams import capturing

    return not capturing()


_server: Server | None = None
_server_lock = threading.Lock()


def server() -> Server:
    """The process's server, made on first use."""
    global _server
    if _server is None:
        with _server_lock:
            if _server is None:
                _server = Server()
    return _server


def refresh() -> None:
    """Let this process see the newest policies, if it has served any yet."""
    if _server is not None:
        _server.refresh()
