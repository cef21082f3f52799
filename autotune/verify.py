"""The correctness gate: what a candidate must pass before it is timed, and once more after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from autotune.arrays import Array, same_bits
from autotune.execution import Executable
from autotune.expected import Expected, GateError, expected_outputs, largest, loud_gain
from autotune.inputs import Buffers, make_buffers
from autotune.memory import HOST, Memory
from autotune.model import Problem, is_deterministic

CHEAP_SECONDS = 0.05
"""A problem whose reference takes less is checked on a second set of inputs as well, a loud one."""

CHEAP_BYTES = 256 << 20
"""And whose arrays take no more: large ones are there once."""

LOUD_BOUND = 0.05
"""Of its magnitude an output may be off on large inputs, where sums cancel and exponentials amplify
what is rounded: they are to show what overflows. How accurate it is, the others tell."""

Outputs = tuple[Array, ...]

MakeCall = Callable[[Callable[[], Any]], Any]
"""Makes a call, and returns what it returns."""

Run = Callable[[MakeCall], Outputs]
"""Has a call made, and copies its outputs at once."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check; `error` and `bound` are relative to each output's magnitude.

    They are those of the output that comes closest to its bound, or exceeds it furthest.
    """

    passed: bool
    reason: str = ""
    error: float | None = None
    bound: float | None = None
    repeats: Outputs = field(default=(), repr=False, compare=False)
    """Of a candidate that claims determinism: what it must give again, bit by bit."""


class Gate:
    """Checks candidates on one problem; reference and plain implementation run once per seed.

    The error of an output is max |x - reference| / max |reference| over all its elements. Sums of
    products are accurate relative to the magnitude of what is summed, not of a result that happens
    to cancel (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5), so an
    element-wise relative error would reject every implementation; the maximum, unlike a mean,
    lets no single element be wrong. For the bound see `expected_outputs`. The second inputs are
    large, unless the dtype cannot hold the result or the plain implementation does not get there.

    `occupy` gives the device work for a moment: before every call but the first, so that a
    candidate that does not wait for what was started before it is found out.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        *,
        gain: float = 1.0,
        conditioned: bool = False,
        memory: Memory = HOST,
        occupy: Callable[[], None] = lambda: None,
    ) -> None:
        self.problem, self.memory, self._occupy = problem, memory, occupy
        self.gain, self.conditioned = gain, conditioned
        self.buffers = self._make_buffers(seed)
        started = perf_counter()
        self.expected = self._expected(self.buffers)
        self.reference_seconds = perf_counter() - started
        if self._small and not memory.concurrent and self.reference_seconds >= CHEAP_SECONDS:
            started = perf_counter()  # without what a GPU's library compiles at first
            self.expected = self._expected(self.buffers)
            self.reference_seconds = perf_counter() - started
        self._sound = self._witnesses()
        self._second: tuple[Buffers, tuple[Expected, ...]] | None = None
        if self.reference_seconds < CHEAP_SECONDS and self._small:
            plain = gain == 1.0 and not conditioned
            self._second = (self._loud(seed + 1) if plain else None) or self._other(seed + 1)

    @property
    def _small(self) -> bool:
        return self.buffers.nbytes <= CHEAP_BYTES

    def check(
        self,
        executable: Executable,
        first_call: MakeCall | None = None,
        later_run: Callable[[Run], Outputs] | None = None,
    ) -> Verdict:
        """Run a candidate on poisoned outputs and judge it.

        `first_call` is given the very first call to make, and `later_run` the runs after it, so
        that a caller can time them. Raises whatever the candidate raises.
        """
        outputs = run_once(executable, self.buffers, first_call)
        verdict = self.judge(outputs)
        if not verdict.passed:
            return verdict
        if is_deterministic(executable.variant):
            verdict = replace(verdict, repeats=outputs)
        if verdict.repeats or self._second is None:
            verdict = self.judge_again(self._run(executable, self.buffers, later_run), verdict)
        if self._second is not None and verdict.passed:
            buffers, expected = self._second
            again = judge(self._run(executable, buffers, later_run), expected, buffers)
            if buffers.gain == self.gain:
                return _worse(verdict, again) if again.passed else again
            if not again.passed:
                return replace(again, reason=f"{again.reason}, on inputs times {buffers.gain:g}")
        return verdict

    def judge_again(self, outputs: Outputs, before: Verdict) -> Verdict:
        """Judge a later call of a candidate that passed; `before` is its verdict then."""
        verdict = self.judge(outputs)
        for expected, one, other in zip(self.expected, before.repeats, outputs, strict=False):
            if verdict.passed and not same_bits(one, other):
                reason = f"{expected.name} differs between two runs, but it claims determinism"
                return replace(before, passed=False, reason=reason)
        return replace(verdict, repeats=before.repeats)

    def written_late(self, wait: Callable[[], None]) -> str | None:
        """Whether calls that have returned go on writing, in words; `wait` gives them time."""
        self.buffers.reset()
        wait()
        name = self.buffers.written()
        return f"{name} was written to after the call had returned" if name else None

    def repair(self) -> None:
        """Make anew what a candidate has damaged: buffers, or the values it is held against."""
        if self.buffers.damage() is not None:
            self.buffers = self._make_buffers(self.buffers.seed)
        if not all(sound() for sound in self._sound):
            self.expected = self._expected(self.buffers)
            self._sound = self._witnesses()
        if self._second is not None and self._second[0].damage() is not None:
            buffers, expected = self._second
            again = make_buffers(self.problem, buffers.seed, gain=buffers.gain, memory=self.memory)
            self._second = again, expected

    def judge(self, outputs: Outputs) -> Verdict:
        """Judge outputs that a candidate has just left, and what it did to everything else."""
        return judge(outputs, self.expected, self.buffers)

    def _run(
        self, executable: Executable, buffers: Buffers, watch: Callable[[Run], Outputs] | None
    ) -> Outputs:
        self._occupy()
        run = partial(run_once, executable, buffers)
        return watch(run) if watch is not None else run()

    def _expected(self, buffers: Buffers) -> tuple[Expected, ...]:
        return expected_outputs(buffers, conditioned=self.conditioned)

    def _witnesses(self) -> list[Callable[[], bool]]:
        return [self.memory.witness(each.values) for each in self.expected]

    def _other(self, seed: int) -> tuple[Buffers, tuple[Expected, ...]]:
        buffers = self._make_buffers(seed)
        return buffers, self._expected(buffers)

    def _loud(self, seed: int) -> tuple[Buffers, tuple[Expected, ...]] | None:
        """Large inputs; None where nobody can say what should come out of them."""
        gain = loud_gain(self.problem.dtype)
        buffers = make_buffers(self.problem, seed, gain=gain, memory=self.memory)
        try:
            expected = expected_outputs(buffers, conditioned=True)
        except GateError:
            return None
        if not all(each.representable for each in expected):
            return None
        roomy = (replace(each, bound=max(each.bound, LOUD_BOUND)) for each in expected)
        return buffers, tuple(roomy)

    def _make_buffers(self, seed: int) -> Buffers:
        return make_buffers(self.problem, seed, gain=self.gain, memory=self.memory)


def run_once(
    executable: Executable,
    buffers: Buffers,
    make_call: MakeCall | None = None,
) -> Outputs:
    """One call on restored inputs and poisoned outputs; returns the outputs as they stand then."""
    buffers.reset()
    arguments = call_arguments(executable, buffers)

    def call() -> Any:
        return executable.call(*arguments)

    result = make_call(call) if make_call is not None else call()
    return collect_outputs(executable, buffers, result)


def call_arguments(executable: Executable, buffers: Buffers) -> tuple[Any, ...]:
    """What `executable.call` takes."""
    if executable.takes_outputs:
        return buffers.arguments
    return (*buffers.input_arrays, *buffers.scalars)


def collect_outputs(executable: Executable, buffers: Buffers, result: Any) -> Outputs:
    """Copies of the outputs after a call that returned `result`, in declared order.

    Copies, and at once: what a candidate writes after it has returned comes too late.
    """
    if executable.takes_outputs:
        return tuple([output.copy() for output in buffers.output_arrays])
    operation = buffers.problem.operation
    inputs = zip((t.name for t in operation.inputs), buffers.input_arrays, strict=True)
    named: dict[str, Any] = dict(inputs)
    fresh = (buffers.memory.copy(each) for each in executable.returned(result))
    named |= zip((t.name for t in operation.fresh_outputs), fresh, strict=True)
    return tuple([named[tensor.name] for tensor in operation.outputs])


def judge(outputs: Outputs, expected: tuple[Expected, ...], buffers: Buffers) -> Verdict:
    """Compare every element of every output, and see that nothing else was written."""
    worst: Verdict | None = None
    for output, target in zip(outputs, expected, strict=True):
        verdict = _judge_output(output, target)
        if not verdict.passed:
            return verdict
        worst = verdict if worst is None or _closer(verdict, worst) else worst
    damage = buffers.damage()
    if damage is not None:
        return Verdict(False, damage)
    return worst or Verdict(True)


def _worse(one: Verdict, other: Verdict) -> Verdict:
    """The first, with the error and the bound of the one that is closer to its bound."""
    closer = one if _closer(one, other) else other
    return replace(one, error=closer.error, bound=closer.bound)


def _closer(one: Verdict, other: Verdict) -> bool:
    """Whether `one` is closer to its bound than `other` is."""
    return _share(one) >= _share(other)


def _share(verdict: Verdict) -> float:
    return (verdict.error or 0.0) / verdict.bound if verdict.bound else 0.0


def _judge_output(output: Array, target: Expected) -> Verdict:
    if output.shape != target.values.shape or output.dtype != target.dtype:
        found = f"{output.dtype} {output.shape}"
        wanted = f"{target.dtype} {target.values.shape}"
        return Verdict(False, f"{target.name} is {found}, not {wanted}")
    with np.errstate(invalid="ignore", over="ignore"):
        # In float64, as the reference's values are; what 16 bits promote to, libraries disagree.
        values = output if output.dtype.itemsize > 2 else output.astype(np.float64)
        difference = np.abs(values - target.values)
        furthest = largest(difference)
        if not np.isfinite(furthest):  # NaN, or infinities, which may agree
            count = int(np.isnan(values).sum())
            if count:
                share = f"{count} of {output.size} elements"
                return Verdict(False, f"{target.name} has {share} unwritten or not a number")
            furthest = largest(np.where(values == target.values, 0.0, difference))
    error = furthest / target.magnitude
    if not error <= target.bound:
        reason = f"{target.name} is off by {error:.3g} of its magnitude, allowed {target.bound:.3g}"
        return Verdict(False, reason, error if np.isfinite(error) else None, target.bound)
    return Verdict(True, "", error, target.bound)
