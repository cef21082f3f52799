"""Ceilings: measured once, kept with their toolchain, and what they do to estimates."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from autotune import attention
from autotune.campaign.budget import expected_seconds
from autotune.device import local_cpu
from autotune.disturbance import Load
from autotune.estimate import estimate_seconds
from autotune.fingerprint import toolchain
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.rates import CORE, nominal_rates
from autotune.registry import registry
from autotune.roofline import Ceilings, ceilings_of, cpu, device_rates, quiet, rates_from
from autotune.search import build_space
from autotune.settings import settings
from autotune.store import kept_ceilings, open_tuning_db
from autotune_tuning_db import utc_now

CPU = local_cpu()
RATES = {
    **{"read": 2e10, "copy": 3e10, "read alone": 1.5e10},
    **{"loop float32": 4e10, "vector float32": 1e11, "matrix float32": 2e11},
}


def found(rates: dict[str, float] = RATES, **changes: Any) -> Ceilings:
    given = {"measured": utc_now(), "toolchain": toolchain(), "rates": rates}
    return Ceilings(CPU.identity, **(given | changes))


def keep(ceilings: Ceilings) -> None:
    with open_tuning_db() as store:
        store.put_ceilings(ceilings.to_row())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts how often the CPU is measured, in no time."""
    calls: list[str] = []

    def measure(device: Any) -> dict[str, float]:
        calls.append(device.identity)
        return dict(RATES)

    monkeypatch.setattr(cpu, "measure_cpu", measure)
    return calls


def test_measured_once_and_again_on_request(measured: list[str]) -> None:
    first = ceilings_of(CPU)
    assert ceilings_of(CPU) == first
    assert measured == [CPU.identity]
    again = ceilings_of(CPU, measure=True)
    assert len(measured) == 2
    assert again.measured > first.measured
    assert ceilings_of(CPU) == again


def test_another_toolchain_measures_again(measured: list[str]) -> None:
    keep(found(toolchain=toolchain() | {"numpy": "0.1"}))
    assert ceilings_of(CPU).toolchain == toolchain()
    assert len(measured) == 1


BUSY = "other processes used 60% of the CPUs"


def test_rates_of_a_busy_machine_are_marked_and_not_kept(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(found(RATES | {"read": 5e10}))
    monkeypatch.setattr(quiet, "disturbances", lambda samples, load: (BUSY,))
    busy = ceilings_of(CPU, measure=True)
    assert (busy.rates, busy.disturbed) == (RATES, (BUSY,))
    assert len(measured) == quiet.ATTEMPTS
    older = ceilings_of(CPU)
    assert (older.rates["read"], older.disturbed) == (5e10, ())


def test_after_a_busy_machine_the_next_call_measures_again(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(quiet, "disturbances", lambda samples, load: (BUSY,))
        assert ceilings_of(CPU).disturbed == (BUSY,)
        assert kept_ceilings(CPU.identity) is None
    assert ceilings_of(CPU).disturbed == ()
    assert kept_ceilings(CPU.identity) is not None


def test_a_disturbed_attempt_is_repeated_and_the_best_rates_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = iter([RATES | {"copy": 4e10, "read": 1e10}, RATES])
    loads = iter([(BUSY,), ()])
    monkeypatch.setattr(cpu, "measure_cpu", lambda device: next(attempts))
    monkeypatch.setattr(quiet, "disturbances", lambda samples, load: next(loads))
    taken = ceilings_of(CPU)
    assert (taken.rates, taken.disturbed) == (RATES | {"copy": 4e10}, ())


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({"read": 10.9e9, "copy": 18.8e9, "read alone": 10e9}, []),
        ({"read": 9.11e9, "copy": 26.3e9}, ["reading was slower than what a copy reads"]),
        ({"read": 8.5e9, "copy": 16e9, "read alone": 15e9}, ["all workers together read slower"]),
        ({"read": 19e9, "copy": 30e9, "read alone": 20e9}, []),
        ({}, []),
    ],
)
def test_rates_that_contradict_each_other(rates: dict[str, float], told: list[str]) -> None:
    found = quiet.contradictions(rates)
    assert len(found) == len(told)
    assert all(each.startswith(text) for each, text in zip(found, told, strict=True))


def test_kept_rates_that_contradict_each_other_are_taken_again(measured: list[str]) -> None:
    keep(found(RATES | {"read": 9e9, "copy": 26e9}))
    assert ceilings_of(CPU).rates == RATES
    assert measured == [CPU.identity]


@pytest.mark.parametrize(("foreign", "told"), [(0.1, []), (0.6, [BUSY])])
def test_a_light_load_spoils_no_rates(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, foreign: float, told: list[str]
) -> None:
    load = Load(foreign=foreign, steal=0.0, switches=0, throttled=0)
    monkeypatch.setattr(quiet.Watch, "load", lambda self, before, after: load)
    assert list(ceilings_of(CPU).disturbed) == told


def test_a_burst_takes_the_best_of_samples_in_a_row() -> None:
    samples = iter([3.0, *[5.0] * 10_000])

    def sample() -> float:
        time.sleep(cpu.BURST_SECONDS / 3)
        return next(samples)

    assert cpu._burst(sample) == 5.0


def test_every_rate_is_sampled_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """What disturbs for a moment spoils one round of all rates, not all samples of one."""
    monkeypatch.setattr(cpu, "BURST_SECONDS", 0.0)
    order: list[str] = []

    def probe(name: str) -> cpu.Probe:
        def sample() -> float:
            order.append(name)
            return float(len(order) % 7)

        return sample

    monkeypatch.setattr(cpu, "_memory", lambda team, nbytes: {"read": probe("read")})
    monkeypatch.setattr(cpu, "_loops", lambda team, dtype: {dtype: probe(dtype)})
    monkeypatch.setattr(cpu, "_product", lambda dtype, threads: probe(f"matrix {dtype}"))
    assert set(cpu.measure_cpu(CPU)) == set(order[:5])
    assert order == order[:5] * cpu.ROUNDS
    assert max(cpu.measure_cpu(CPU).values()) == 6.0


def test_what_cannot_be_kept_is_used_with_a_warning(measured: list[str]) -> None:
    settings().database.mkdir(parents=True)
    with pytest.warns(UserWarning, match="The ceilings are not kept"):
        assert ceilings_of(CPU).rates == RATES


def test_rates_are_nominal_until_something_is_measured() -> None:
    assert device_rates(CPU).flops == CORE.flops
    assert not settings().database.exists()
    keep(found())
    rates = device_rates(CPU)
    assert rates.read == 2e10
    assert rates.alone == 1.5e10
    assert rates.workers == CPU.max_threads
    assert rates.flops["matrix float32"] == pytest.approx(2e11 / CPU.max_threads)
    assert rates.flops["matrix float64"] == CORE.flops["matrix float64"]


def test_a_store_that_cannot_be_read_leaves_nominal_rates() -> None:
    settings().database.parent.mkdir(parents=True)
    settings().database.write_text("no database")
    assert kept_ceilings(CPU.identity) is None
    assert device_rates(CPU).read == math.inf


def test_one_worker_gets_no_less_than_its_share() -> None:
    slow = found({"read": 1e9, "copy": 1e9 * 64, "read alone": 1.0})
    assert rates_from(CPU, slow).alone == pytest.approx(64e9 / CPU.max_threads)


def test_estimates_go_by_kept_ceilings() -> None:
    """Where BLAS is measured to be slower than vectors, variants that use it come later."""
    problem = Problem.of(attention, (2, 1, 512, 64), "float32")
    names = ("blas_tiled", "simd_tiled")
    variants = [registry.variant(attention, name) for name in names]

    def first() -> str:
        rates = device_rates(CPU)
        return build_space(problem, variants, CPU, rates=rates).variants[0].variant

    assert first() == "blas_tiled"
    keep(found(RATES | {"matrix float32": 1e10}))
    assert first() == "simd_tiled"


def test_budget_shares_go_by_kept_ceilings() -> None:
    problem = Problem.of(attention, (2, 1, 2048, 64), "float32")
    variants = [registry.variant(attention, "blas_tiled")]
    before = expected_seconds(problem, variants, CPU)
    keep(found(RATES | {"matrix float32": 1e9}))
    assert expected_seconds(problem, variants, CPU).fixed > before.fixed + 0.1


def test_the_estimate_of_a_default_is_what_the_ceilings_imply() -> None:
    problem = Problem.of(attention, (2, 1, 2048, 64), "float32")
    variant = registry.variant(attention, "blas_tiled")
    config = default_config(variant, problem, CPU)
    assert config is not None
    rates = rates_from(CPU, found())
    seconds = estimate_seconds(variant, problem, config, rates)
    assert seconds == pytest.approx(problem.flops / 2e11, rel=0.3)
    assert seconds != estimate_seconds(variant, problem, config, nominal_rates("cpu"))


def test_a_cpu_is_measured_in_every_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real measurement, on small arrays: every rate is there and can be."""
    monkeypatch.setattr(cpu, "EXCESS", 0.01)
    monkeypatch.setattr(cpu, "SAMPLE_SECONDS", 1e-4)
    monkeypatch.setattr(cpu, "BURST_SECONDS", 1e-3)
    monkeypatch.setattr(cpu, "SQUARE", 64)
    rates = cpu.measure_cpu(CPU)
    units = {f"{unit} {dtype}" for unit in ("loop", "vector", "matrix") for dtype in cpu.DTYPES}
    assert set(rates) == {"read", "copy", "read alone"} | units
    assert all(1e6 < rate < 1e15 for rate in rates.values())
