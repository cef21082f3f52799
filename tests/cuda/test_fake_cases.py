"""The cases that need a GPU, on a fake one: isolation, timing, capture, views, forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_cupy as fake
import numpy as np
import pytest
from measuring_bench import FakeGpu, Lab, honest, lab

from autotune import dispatch, forked
from autotune.campaign import Campaign, Settings
from autotune.cuda import bench as cuda_bench
from autotune.cuda.memory import DeviceMemory
from autotune.errors import DeviceLostError
from autotune.model import Config, Problem
from autotune.registry import registry
from autotune.worker.measure import measure
from autotune.worker.race import race
from autotune.worker.session import Session
from autotune_tuning_db import open_store


@pytest.fixture
def at_work(
    fake_cupy: Any, compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    monkeypatch.setattr(cuda_bench, "LONGEST_HEAT", 0.0)
    monkeypatch.setattr(cuda_bench, "WAKE_SECONDS", 0.0)
    with lab(fake_cupy, tmp_path) as found:
        yield found


class Restarting:
    """The worker where an error stays: with a new session CUDA works again."""

    depth = 1

    def __init__(self, at: Lab) -> None:
        self.at, self.session, self.restarts = at, at.session, 0

    def start(self, job: Any) -> None:
        """Nothing."""

    def compile_ahead(self, jobs: Any, *, starting: Any) -> int:
        return 0

    def measure(self, job: Any) -> Any:
        return self._fresh_after(measure(self.session, job))

    def race(self, job: Any) -> Any:
        return self._fresh_after(race(self.session, job))

    def _fresh_after(self, outcome: Any) -> Any:
        if self.session.spent:
            self.at.cupy.fail_with = None
            self.session, self.restarts = (
                Session(cuda_bench.CudaBench(FakeGpu())),
                self.restarts + 1,
            )
        return outcome

    def renew(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def test_iso_1_an_illegal_access_costs_one_row_of_the_sweep(at_work: Lab, tmp_path: Path) -> None:
    """A sweep over tile sizes in which one config breaks the device for all that come after it."""
    status = 700

    def breaks_at_512(launched: Any, x: int, y: int, count: int) -> None:
        honest(launched, x, y, count)
        if launched.block[0] == 512:
            at_work.cupy.fail_with = status

    at_work.cupy.kernels["honest"] = breaks_at_512, "PPq"
    variants = registry._variants[at_work.operation.name]
    for name in [each for each in variants if each != "honest"]:
        del variants[name]
    worker = Restarting(at_work)
    with open_store(tmp_path / "tuning.db") as store:
        campaign = Campaign(
            [Problem.of(at_work.operation, (4096,))],
            device=FakeGpu(),  # type: ignore[arg-type]
            settings=Settings(budget=8.0),
            store=store,
            make_worker=lambda _: worker,  # type: ignore[arg-type, return-value]
        )
        (result,) = campaign.run().results
        rows = [r for r in store.trials() if r.stage == "search" and r.variant == "honest"]
    by_block = {row.config["block"]: row for row in rows}
    assert by_block[512].status == "crashed"
    assert str(status) in by_block[512].reason
    others = {block: row.status for block, row in by_block.items() if block not in (512, 2048)}
    assert set(others) == {32, 64, 128, 256, 1024}
    assert set(others.values()) <= {"ok", "dropped", "disturbed"}
    assert worker.restarts == 1
    assert result.policy is not None
    assert result.policy.winner.variant == "honest"


@pytest.mark.parametrize("status", [715, 716, 719])  # instruction, misaligned address, trap
def test_iso_1_other_errors_that_stay_spend_the_process_too(at_work: Lab, status: int) -> None:
    def breaks(launched: Any, x: int, y: int, count: int) -> None:
        honest(launched, x, y, count)
        at_work.cupy.fail_with = status

    at_work.cupy.kernels["honest"] = breaks, "PPq"
    outcome = at_work.measure("honest")
    assert (outcome.status, outcome.samples) == ("crashed", ())
    assert str(status) in outcome.reason
    assert at_work.session.spent


@pytest.mark.parametrize(
    ("config", "kernel", "reason"),
    [
        ({"block": 2048}, "honest", "invalid argument"),
        ({"block": 64}, "absent", "named symbol not found"),
    ],
)
def test_iso_2_what_cannot_be_launched_fails_by_itself(
    at_work: Lab, config: dict[str, int], kernel: str, reason: str
) -> None:
    if kernel == "absent":
        del at_work.cupy.kernels["lazy"]
    outcome = at_work.measure("lazy" if kernel == "absent" else kernel, config=config)
    assert outcome.status == "failed"
    assert reason in outcome.reason
    assert not at_work.session.spent
    assert at_work.measure("honest").status == "ok"


def test_iso_4_a_large_input_is_there_once(at_work: Lab) -> None:
    """Inputs, outputs and what the reference needs; no second copy of what is only read."""
    size = 1 << 20
    memory, pool = DeviceMemory(), at_work.cupy.pool
    array = memory.asarray(np.arange(size, dtype="f4"))
    before = pool.used
    unchanged = memory.witness(array)
    assert pool.used - before < 0.1 * array.nbytes + (1 << 25)
    assert unchanged()
    for place in (0, 17, size - 1):
        kept = array[place].item()
        array[place] = kept + 1
        assert not unchanged()
        array[place] = kept
    assert unchanged()


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (5, 7), (2, 3, 5)])
def test_iso_4_a_witness_sees_every_element_of_every_shape(at_work: Lab, shape: Any) -> None:
    memory = DeviceMemory()
    array = memory.asarray(np.arange(float(np.prod(shape))).astype("f2").reshape(shape))
    for each in (array, array.T, array[..., ::2]):
        unchanged = memory.witness(each)
        assert unchanged()
        for place in np.ndindex(each.shape):
            kept = each[place].item()
            each[place] = kept + 1
            assert not unchanged(), place
            each[place] = kept
        assert unchanged()


def test_iso_4_memory_after_a_candidate_is_what_it_was_before(at_work: Lab) -> None:
    pool = at_work.cupy.pool
    assert at_work.measure("honest").status == "ok"
    idle = pool.used
    for variant in ("honest", "wrong", "vandal", "honest"):
        at_work.measure(variant)
        assert (pool.used, pool.total) == (idle, idle)


def test_iso_4_what_is_left_is_what_the_device_has_free(at_work: Lab) -> None:
    free, _ = at_work.cupy.memory_info
    assert DeviceMemory().left() == free


def test_iso_4_the_pool_leaves_something_for_others(at_work: Lab) -> None:
    DeviceMemory().confine()
    free, _ = at_work.cupy.memory_info
    assert 0.9 * free < at_work.cupy.pool.limit < free


def delayed(at: Lab) -> Callable[..., None]:
    """A kernel on a stream of its own: its work is done when somebody waits for the device."""
    pending: list[Callable[[], None]] = []

    def later(launched: Any, x: int, y: int, count: int) -> None:
        pending.append(lambda: honest(launched, x, y, count))

    check = at.cupy.check_sync

    def wait() -> None:
        check()
        while pending:
            pending.pop(0)()

    at.cupy.cuda.runtime.deviceSynchronize = wait
    return later


@pytest.mark.parametrize("mode", ["cold", "hot", "graph"])
def test_tim_5_work_on_another_stream_is_not_waited_for_and_wrong(at_work: Lab, mode: str) -> None:
    at_work.cupy.kernels["honest"] = delayed(at_work), "PPq"
    at_work.cupy.costs["honest"] = 0.0
    outcome = at_work.measure("honest", mode=mode)
    assert outcome.status == "wrong"
    assert outcome.samples == ()
    assert "unwritten or not a number" in outcome.reason


def test_tim_5_behind_work_that_it_should_wait_for_it_comes_too_early(at_work: Lab) -> None:
    """As fast as a call on another stream may be: outputs are poisoned behind a busy stream."""
    occupied: list[float] = []
    evict = at_work.session.bench.evictor.evict  # type: ignore[attr-defined]

    def noted(seconds: float = 0.0) -> None:
        occupied.append(seconds)
        evict(seconds)

    at_work.session.bench.evictor.evict = noted  # type: ignore[attr-defined]
    problem = at_work.session.problem(at_work.job().problem)
    gate = at_work.session.gate(problem, 0)
    occupied.clear()
    variant = registry.variant(problem.operation, "honest")
    at_work.session.build(gate, variant, Config({"block": 64}), time_limit=10.0)
    assert occupied == [cuda_bench.OCCUPIED_SECONDS] * 2  # the repeat, and the second inputs


def test_the_peak_of_a_call_is_what_it_has_of_the_pool_at_once(at_work: Lab) -> None:
    memory = DeviceMemory()
    pool = at_work.cupy.pool
    pool.total = pool.used + (1 << 24)  # parts of blocks that others have a hold of

    def call() -> str:
        memory.allocate(1 << 20)
        kept = memory.allocate(1 << 19)
        memory.allocate(1 << 18)
        del kept
        return "done"

    assert memory.peak(call) == ("done", 1 << 20)


@pytest.fixture
def forked_child(monkeypatch: pytest.MonkeyPatch, fake_cupy: Any) -> Any:
    """As if this process were forked from one that used CUDA."""
    monkeypatch.setattr(forked, "_used_cuda", True)

    def free(_: int) -> None:
        raise fake.CUDARuntimeError(3, "initialization error")

    monkeypatch.setattr(fake_cupy.cuda.runtime, "free", free)
    return fake_cupy


def test_cuda_in_a_forked_child_is_one_sentence_and_no_variants_fault(
    at_work: Lab, forked_child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune import serving
    from autotune.lookup import forget

    forget()
    monkeypatch.setattr(serving, "_server", None)
    monkeypatch.setattr("autotune.serving.find_device", lambda _: FakeGpu())
    kernel = dispatch(at_work.operation, (8,))
    x = forked_child.asarray(np.ones(8, "f4"))
    with pytest.raises(DeviceLostError, match="forked from one that uses it"):
        kernel(x)
    assert serving.server()._quarantined == set()
    forget()


def test_dsp_5_capture_by_torch_keeps_tuning_away_too(
    at_work: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune import on_miss

    torch = SimpleNamespace(cuda=SimpleNamespace(is_current_stream_capturing=lambda: True))
    monkeypatch.setitem(on_miss.sys.modules, "torch", torch)
    assert not on_miss.may_tune(FakeGpu())
    torch.cuda.is_current_stream_capturing = lambda: False
    assert on_miss.may_tune(FakeGpu())
