"""The server behind dispatch: snapshot, resolution order, quarantine, one kernel per problem."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune.device import Device, find_device
from autotune.errors import ConstraintError, NoPolicyError, ShapeError, UnknownNameError
from autotune.estimate import estimate_seconds
from autotune.explain import explain_default, explain_reference, explain_resolution, miss_message
from autotune.kernel import Kernel
from autotune.model.operation import Operation
from autotune.model.problem import Config, Problem
from autotune.model.space import default_config, inadmissible, why_not
from autotune.model.traits import is_deterministic, workspace_bytes
from autotune.model.variant import Variant
from autotune.plugins import load_plugins
from autotune.reference import reference_variant
from autotune.registry import registry
from autotune.settings import settings
from autotune_policies import Constraints, Request, Resolution, Snapshot, resolve

if TYPE_CHECKING:
    from autotune.execution import Executable

log = logging.getLogger("autotune")

OPTIONS = (
    *("dims", "device", "mode", "deterministic", "max_workspace", "max_error"),
    *("strict", "tune_on_miss"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """A chosen candidate, why it was chosen, and how to build it."""

    candidate: Variant
    config: Config
    origin: str
    explanation: str
    problem: Problem = field(repr=False)
    device: Device = field(repr=False)

    @property
    def variant(self) -> str:
        """Name of the variant."""
        return self.candidate.name

    def build(self) -> Executable:
        """Compile it; may raise whatever the variant's builder raises."""
        from autotune.execution import Executable

        return Executable(self.candidate, self.problem, self.config, self.device)


@dataclass(frozen=True, slots=True)
class Want:
    """What a caller of dispatch asks for beyond the problem."""

    constraints: Constraints
    mode: str = "cold"
    strict: bool = False
    tune_on_miss: bool = False


class Server:
    """Resolves problems against one snapshot at a time; thread-safe; never raises for the store."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kernels: dict[Any, Kernel] = {}
        self._quarantined: set[tuple[str, str]] = set()
        self._announced: set[str] = set()
        self._checked = 0.0
        self._generation: Any = None
        self._snapshot: Snapshot | None = None
        self.counts: Counter[str] = Counter()

    # --- from what a caller gives to a problem -------------------------------------------------

    def kernel(
        self, operation: Any, spec: tuple[Any, ...], dtype: Any, options: Mapping[str, Any]
    ) -> Kernel:
        """The kernel for a positional shape or `dims=`."""
        target = self._operation(operation)
        if len(spec) > 1:
            raise ShapeError(
                f"dispatch takes one shape or the input arrays of {target.name}; "
                f"write dispatch({target.name}, {tuple(spec)})."
            )
        dims = options.get("dims")
        if (dims is None) == (not spec):
            raise ShapeError(f"dispatch({target.name}, ...) takes either a shape or dims={{...}}.")
        problem = Problem.of(target, dims if dims is not None else spec[0], dtype, **_flags(target, options))
        return self._bind(problem, options)

    def kernel_for_arrays(
        self, operation: Any, arrays: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Kernel:
        """The kernel for example arrays: sizes, dtype and layout are theirs."""
        target = self._operation(operation)
        sizes = target.sizes_from_arrays([array.shape for array in arrays])
        dtypes = {str(a.dtype) for a, t in zip(arrays, target.inputs, strict=True) if not t.dtype}
        if len(dtypes) != 1:
            raise ShapeError(
                f"{target.name} takes arrays of one dtype, got {', '.join(sorted(dtypes))}."
            )
        packed = all(array.flags.c_contiguous for array in arrays)
        problem = Problem.of(
            target,
            sizes,
            dtypes.pop(),
            layout="packed" if packed else "strided",
            **_flags(target, options),
        )
        return self._bind(problem, options)

    def _operation(self, operation: Any) -> Operation:
        load_plugins()
        return registry.operation(operation)

    def _bind(self, problem: Problem, options: Mapping[str, Any]) -> Kernel:
        device = find_device(options.get("device"))
        want = Want(
            Constraints(
                deterministic=bool(options.get("deterministic", False)),
                max_workspace=options.get("max_workspace"),
                max_error=options.get("max_error"),
            ),
            mode=options.get("mode", "cold"),
            strict=bool(options.get("strict", False)),
            tune_on_miss=bool(options.get("tune_on_miss", False)),
        )
        if want.mode not in ("cold", "hot"):
            raise UnknownNameError("mode", str(want.mode), ("cold", "hot"))
        scalars = {name: options[name] for name in problem.operation.scalars if name in options}
        self._refresh_if_changed()
        key = (problem.key, device.identity, want, tuple(scalars.items()))
        with self._lock:
            kernel = self._kernels.get(key)
            if kernel is None:
                self.counts["misses"] += 1
                served = self.serve(problem, device, want)
                self.counts[served.origin] += 1
                kernel = Kernel(
                    problem,
                    served,
                    device=device,
                    scalars=scalars,
                    serve_next=lambda p, failed, error: self._next_best(p, device, want, failed, error),
                )
                if len(self._kernels) >= 8192:
                    self._kernels.clear()
                self._kernels[key] = kernel
            return kernel

    # --- the order of section "Serving" --------------------------------------------------------

    def serve(self, problem: Problem, device: Device, want: Want) -> Served:
        """Choose: pinned, tuned, interpolated, family, predicted default, reference."""
        admitted = self._admitted(problem, device)
        resolution = self._resolve(problem, device, want, admitted)
        if resolution.choice is not None:
            choice = resolution.choice
            return Served(
                admitted[choice.variant],
                Config(dict(choice.config)),
                resolution.origin,
                explain_resolution(problem, device, resolution),
                problem,
                device,
            )
        if want.tune_on_miss and not want.strict:
            return self._tune_then_serve(problem, device, want)
        if want.strict:
            raise NoPolicyError(miss_message(problem, device, resolution, self.snapshot()))
        return self._default(problem, device, want, resolution, admitted)

    def _resolve(
        self, problem: Problem, device: Device, want: Want, admitted: Mapping[str, Variant]
    ) -> Resolution:
        from autotune.fingerprint import fingerprint, toolchain

        def admits(name: str, config: Mapping[str, Any]) -> str | None:
            variant = admitted.get(name)
            if variant is None:
                return "not available here"
            reason = inadmissible(variant, problem, config, device)
            limit = want.constraints.max_workspace
            if reason is None and limit is not None:
                needed = workspace_bytes(variant, problem, config)
                if needed > limit:
                    return f"needs {needed} bytes of workspace"
            return reason

        def current(name: str) -> str | None:
            return fingerprint(admitted[name]) if name in admitted else None

        request = Request(
            problem.key,
            device.identity,
            device.family,
            want.mode,
            problem.operation.axes,
            want.constraints,
        )
        return resolve(
            self.snapshot(), request, admits=admits, fingerprints=current, toolchain=toolchain()
        )

    def _admitted(self, problem: Problem, device: Device) -> dict[str, Variant]:
        name = problem.operation.name
        return {
            variant.name: variant
            for variant in registry.variants(problem.operation)
            if (name, variant.name) not in self._quarantined
            and why_not(variant, problem, device.kind) is None
        }

    def _default(
        self,
        problem: Problem,
        device: Device,
        want: Want,
        resolution: Resolution,
        admitted: Mapping[str, Variant],
    ) -> Served:
        """The admissible default that the predictions favour, or the reference."""
        self._announce(problem, device, resolution)
        wanted = want.constraints
        options: list[tuple[float, Variant, Config]] = []
        reasons: list[str] = []
        for variant in admitted.values():
            config = default_config(variant, problem, device)
            if config is None:
                continue
            broken = _breaks(wanted, variant, problem, config)
            if broken:
                reasons.append(f"{variant.name} {broken}")
            else:
                options.append((estimate_seconds(variant, problem, config), variant, config))
        if options:
            seconds, variant, config = min(options, key=lambda option: option[0])
            text = explain_default(problem, device, variant, seconds, len(options))
            return Served(variant, config, "predicted", text, problem, device)
        if wanted != Constraints():
            raise ConstraintError(
                f"no variant of {problem} meets {_constraint_text(wanted)}; "
                f"closest: {'; '.join(reasons[:3]) or 'none is available here'}."
            )
        text = explain_reference(problem, device)
        reference = reference_variant(problem.operation)
        return Served(reference, Config(), "reference", text, problem, device)

    def _tune_then_serve(self, problem: Problem, device: Device, want: Want) -> Served:
        from autotune import tune

        tune(
            problem.operation,
            dims=dict(problem.sizes),
            dtype=problem.dtype,
            device=device.identity,
            mode=want.mode,
            budget="10s",
            **problem.flags,
        )
        self.refresh()
        return self.serve(problem, device, Want(want.constraints, want.mode, want.strict))

    def _next_best(
        self, problem: Problem, device: Device, want: Want, failed: str, error: BaseException
    ) -> Served:
        """After a launch failure: quarantine the variant for this process and choose again."""
        with self._lock:
            self._quarantined.add((problem.operation.name, failed))
            self.counts["quarantined"] += 1
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        log.warning(
            "variant %s of %s failed (%s); it is set aside for this process and the next best serves.",
            failed,
            problem,
            why,
        )
        calm = Want(want.constraints, want.mode)
        return self.serve(problem, device, calm)

    def _announce(self, problem: Problem, device: Device, resolution: Resolution) -> None:
        if problem.key.text not in self._announced:
            self._announced.add(problem.key.text)
            log.warning("%s", miss_message(problem, device, resolution, self.snapshot()))

    # --- the snapshot ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The policies this process serves from; a store that cannot be read costs one warning."""
        if self._snapshot is None:
            with self._lock:
                if self._snapshot is None:
                    self._snapshot, self._generation = _load()
        return self._snapshot

    def refresh(self) -> Snapshot:
        """Read the policies again; kernels already handed out keep what they have."""
        from autotune.dispatch import forget

        snapshot, generation = _load()
        with self._lock:
            self._snapshot, self._generation = snapshot, generation
            self._kernels.clear()
        forget()
        return snapshot

    def _refresh_if_changed(self) -> None:
        """At most once a second, and never when frozen: notice that another process has tuned."""
        now = time.monotonic()
        if now - self._checked < 1.0 or self._snapshot is None or self._settings.frozen:
            return
        self._checked = now
        if _generation() != self._generation:
            self.refresh()

    @cached_property
    def _settings(self) -> Any:
        return settings()


def _flags(operation: Operation, options: Mapping[str, Any]) -> dict[str, Any]:
    known = (*OPTIONS, *operation.scalars)
    flags = {name: value for name, value in options.items() if name not in known}
    for name in flags:
        if name not in operation.flags:
            raise UnknownNameError(
                f"option of dispatch for {operation.name}", name, (*operation.flags, *known)
            )
    return flags


def _breaks(
    wanted: Constraints, variant: Variant, problem: Problem, config: Config
) -> str | None:
    """Which constraint an unmeasured candidate breaks, or None."""
    if wanted.deterministic and not is_deterministic(variant):
        return "is not deterministic"
    needed = workspace_bytes(variant, problem, config)
    if wanted.max_workspace is not None and needed > wanted.max_workspace:
        return f"needs {needed} bytes of workspace"
    if wanted.max_error is not None:
        return "has no measured error yet; tune the problem first"
    return None


def _constraint_text(wanted: Constraints) -> str:
    parts = ["deterministic"] if wanted.deterministic else []
    if wanted.max_workspace is not None:
        parts.append(f"max_workspace={wanted.max_workspace}")
    if wanted.max_error is not None:
        parts.append(f"max_error={wanted.max_error:g}")
    return ", ".join(parts)


def _load() -> tuple[Snapshot, Any]:
    from autotune.store import load_snapshot

    return load_snapshot()


def _generation() -> Any:
    from autotune.store import generation

    return generation()


_server: Server | None = None
_server_lock = threading.Lock()


def server() -> Server:
    """The process's server."""
    global _server
    if _server is None:
        with _server_lock:
            if _server is None:
                _server = Server()
    return _server
