"""`autotune predict`."""

from __future__ import annotations

from typing import Any

import pytest
from cards import Have
from command_line import Run
from filled import choice, keep, toy_problem

from autotune.cli.assumed import ASSUMED_LIMITS
from autotune.device import local_cpu
from autotune.fingerprint import fingerprint, toolchain
from autotune.model import Problem
from autotune.registry import registry
from autotune.roofline import cpu, gpu, quiet
from autotune.store import kept_ceilings, open_tuning_db
from autotune_tuning_db import CeilingsRow, TrialRow, utc_now

RATES = {
    **{"read": 2e10, "copy": 2e10, "read alone": 2e10},
    **{f"{unit} {dtype}": 1e11 for unit in ("vector", "matrix") for dtype in cpu.DTYPES},
    **{f"loop {dtype}": 2e10 for dtype in cpu.DTYPES},
}


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices that were measured; none is in earnest."""
    calls: list[str] = []

    def measure(device: Any) -> dict[str, float]:
        calls.append(device.identity)
        return dict(RATES)

    monkeypatch.setattr(cpu, "measure_cpu", measure)
    monkeypatch.setattr(gpu, "measure_gpu", measure)
    return calls


def test_a_line_for_each_variant_in_80_columns(run: Run) -> None:
    shown = run("predict", "attention_train", "--shape", "2x1x2048x64", "--dtype", "float64")
    assert shown.code == 0
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    (document,) = [
        each
        for each in run(
            *("predict", "attention_train", "--shape", "2x1x2048x64"),
            *("--dtype", "float64", "--json"),
        ).document["variants"]
        if each["variant"] == "five_pass"
    ]
    line = next(line for line in shown.out.splitlines() if line.startswith("  five_pass "))
    assert f"{document['over_compulsory']:.0f}x" in line
    assert shown.out.count("  five_pass ") == 2


def test_the_studys_figures_stand_beside_the_full_count(run: Run) -> None:
    shown = run("predict", "attention", "--shape", "2x1x2048x64", "--dtype", "float64")
    assert "forward, A stored: 75.497 MB, 6.291 read, 69.206 written" in shown.flat
    assert "left out there: lse" in shown.flat
    train = run("predict", "attention_train", "--shape", "2x1x2048x64", "--dtype", "float64")
    assert "536,870,912 atomics" in train.flat
    assert "1,073,741,824 atomics" in train.flat


def test_a_count_of_no_variant_in_particular_stands_beside_all(run: Run) -> None:
    words = ("predict", "transformer_block_train", "--shape", "B=2,N=256,D=64,F=256")
    shown = run(*words, "--dtype", "float64")
    assert "forward and backward: 10.486 MB (HAL 05734881)" in shown.flat
    variants = run(*words, "--dtype", "float64", "--json").document["variants"]
    moved = [(each["bytes_read"] + each["bytes_written"]) / 1e6 for each in variants]
    here = f"{min(moved):.3f} to {max(moved):.3f} MB"
    assert f"without what its parts move: {here}; left out there:" in shown.flat
    one = run(*words, "--dtype", "float64", "--variant", "parts")
    assert "without what its parts move: 17.116 MB; left out there:" in one.flat


def test_the_document_has_counts_times_and_passes(run: Run, toy: str) -> None:
    document = run("predict", "toy_scale", "--shape", 1024, "--plugin", toy, "--json").document
    assert document["compulsory"] == {"bytes_read": 4096, "bytes_written": 4096}
    assert document["device"] == local_cpu().identity
    found = {each["variant"]: each for each in document["variants"]}
    numpy = found["numpy"]
    assert (numpy["bytes_read"], numpy["bytes_written"]) == (4096, 4096)
    assert numpy["over_compulsory"] == 1.0
    assert numpy["roofline_seconds"] == pytest.approx(8192 / 2e10)
    assert numpy["expected_seconds"] > numpy["roofline_seconds"]
    assert (numpy["measured_seconds"], numpy["ratio"]) == (None, None)
    assert [each["name"] for each in numpy["passes"]] == ["sweep"]
    assert found["broken"]["declared"] is False
    assert found["broken"]["over_compulsory"] is None
    assert found["broken"]["launches"] is found["broken"]["bytes_read"] is None  # and not 0
    names = [each["variant"] for each in document["variants"]]
    assert names.index("numpy") < names.index("broken")
    assert document["skipped"] == {"noisy": "does not support float32"}


def test_the_measured_time_stands_beside_with_its_ratio(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("numpy", 4096e-9), choice("flipped", 1e-5))
    document = run("predict", "toy_scale", "--shape", 1024, "--json").document
    found = {each["variant"]: each for each in document["variants"]}
    assert found["numpy"]["measured_seconds"] == pytest.approx(4096e-9)
    assert found["numpy"]["ratio"] == pytest.approx(10.0)
    assert found["flipped"]["config"] == {"copies": 1}
    assert found["halves"]["measured_seconds"] is None
    shown = run("predict", "toy_scale", "--shape", 1024)
    assert "4.10 us 10.00x" in shown.flat
    assert "Nothing is measured here" not in shown.out


def test_a_measurement_of_older_source_does_not_count(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("numpy", 1e-5, fingerprint="0" * 16))
    shown = run("predict", "toy_scale", "--shape", 1024)
    assert "Nothing is measured here" in shown.out
    assert "autotune tune toy_scale --shape N=1024 --dtype float32" in shown.out


def test_counters_stand_beside_with_their_ratio(run: Run, toy: str) -> None:
    counters = {"bytes_read": 8192, "bytes_written": 4096, "atomics": 0}
    profiled(toy_problem(), "flipped", {"counters": {**counters, "kernels": []}})
    document = run("predict", "toy_scale", "--shape", 1024, "--json").document
    found = {each["variant"]: each["counted"] for each in document["variants"]}
    assert found["numpy"] is None
    assert found["flipped"]["ratios"] == {"bytes_read": 2, "bytes_written": 1, "atomics": None}
    shown = run("predict", "toy_scale", "--shape", 1024)
    assert "counted read ratio written ratio atomics" in shown.flat
    assert "flipped 8 KiB 2.00x 4 KiB 1.00x -" in shown.flat


def profiled(problem: Problem, variant: str, circumstances: dict[str, Any]) -> None:
    """Put what a profiler counted into the store."""
    with open_tuning_db() as store:
        store.add_trial(
            TrialRow(
                campaign=store.start_campaign(local_cpu().identity, {}),
                problem=problem.key,
                device=local_cpu().identity,
                mode="cold",
                stage="profile",
                variant=variant,
                fingerprint=fingerprint(registry.variant("toy_scale", variant)),
                config={"copies": 1},
                status="ok",
                started=utc_now(),
                samples=(1e-6,),
                median=1e-6,
                low=1e-6,
                high=1e-6,
                toolchain={},
                circumstances=circumstances,
            )
        )


def test_one_variant_pass_by_pass(run: Run) -> None:
    shown = run("predict", "attention", "--shape", "2x1x512x64", "--variant", "stored")
    assert "pass read written atomics flops" in shown.flat
    assert "pass workers steps expected limit" in shown.flat
    assert "unit loop" in shown.flat
    assert "config block_q=" in shown.flat
    assert "blas_tiled" not in shown.out.partition("variant")[2]


def test_ceilings_are_measured_once_and_again_on_request(
    run: Run, toy: str, measured: list[str]
) -> None:
    first = run("predict", "toy_scale", "--shape", 1024)
    assert "measuring what" in first.err
    again = run("predict", "toy_scale", "--shape", 2048)
    assert "measuring what" not in again.err
    assert len(measured) == 1
    run("predict", "toy_scale", "--shape", 1024, "--measure")
    assert len(measured) == 2


def test_kept_ceilings_of_another_toolchain_are_taken_again(
    run: Run, toy: str, measured: list[str]
) -> None:
    identity = local_cpu().identity
    old = CeilingsRow(identity, utc_now(), toolchain() | {"numba": "0"}, RATES)
    with open_tuning_db() as store:
        store.put_ceilings(old)
    run("predict", "toy_scale", "--shape", 1024)
    assert measured == [identity]
    kept = kept_ceilings(identity)
    assert kept is not None
    assert kept.toolchain == toolchain()


def test_ceilings_of_a_busy_machine_are_marked_and_taken_again(
    run: Run, toy: str, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "other processes used 60% of the CPUs"
    words = ("predict", "toy_scale", "--shape", 1024)
    with monkeypatch.context() as patched:
        patched.setattr(quiet, "disturbances", lambda samples, load: (busy,))
        shown = run(*words)
        assert f"were taken on a busy machine ({busy}) and are not kept" in shown.flat
        assert "the next `autotune predict` takes them again, as --measure does" in shown.flat
        assert run(*words, "--json").document["ceilings"]["disturbed"] == [busy]
    before = len(measured)
    assert run(*words, "--json").document["ceilings"]["disturbed"] == []
    assert len(measured) == before + 1
    assert "busy machine" not in run(*words).out
    assert len(measured) == before + 1


def test_on_a_gpu_its_variants_are_counted(
    run: Run,
    have: Have,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autotune.cuda import versions

    monkeypatch.setattr(versions, "cuda_versions", lambda: {"cupy": "14.2.0"})
    card = have()
    words = ("predict", "attention_train", "--shape", "2x1x2048x64", "--dtype", "float64")
    shown = run(*words, "--device", "cuda")
    assert shown.code == 0, shown.err
    assert measured == [card.identity]
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert "cuda_v3" in shown.out
    assert "  blas_tiled" not in shown.out
    found = {
        each["variant"]: each
        for each in run(*words, "--device", "cuda", "--json").document["variants"]
    }
    assert found["cuda_v3"]["atomics"] == 536_870_912
    assert found["cuda_dmma"]["unit"] == {"kind": "matrix", "dtype": None, "times": 1}


def test_without_a_gpu_a_cuda_variant_is_counted_for_assumed_limits(
    run: Run, toy: str, measured: list[str]
) -> None:
    words = ("predict", "attention_train", "--shape", "2x1x2048x64", "--dtype", "float64")
    shown = run(*words, "--variant", "cuda_v2")
    assert shown.code == 0, shown.err
    assert "No GPU is here that can be used: counts alone, by the limits of compute" in shown.flat
    assert "132 multiprocessors, 227 KiB of shared memory per block" in shown.flat
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    document = run(*words, "--variant", "cuda_v2", "--json").document
    assert document["assumed_limits"] == ASSUMED_LIMITS
    assert document["ceilings"] is None
    (cuda_v2,) = document["variants"]
    assert cuda_v2["atomics"] == 1_073_741_824
    assert cuda_v2["launches"] == 3
    assert cuda_v2["workspace_bytes"] == 32 << 20
    assert cuda_v2["roofline_seconds"] is None
    assert cuda_v2["expected_seconds"] is None
    assert {each["times"] for each in cuda_v2["passes"]} == {None}
    assert measured == []  # and what is here has no limits assumed
    assert run("predict", "toy_scale", "--shape", 1024, "--json").document["assumed_limits"] is None


def test_a_gpu_that_is_named_and_absent_is_refused(run: Run) -> None:
    words = ("predict", "attention_train", "--shape", "2x1x2048x64", "--variant", "cuda_v2")
    assert run(*words, "--device", "h200").code == 2
    ended = run(*words, "--device", "cpu")
    assert ended.code == 2
    assert "runs on cuda, not on cpu" in ended.err
    narrow = run(*words[:-1], "cuda_dmma", "--dtype", "float32")
    assert narrow.code == 2
    assert "on an assumed GPU of compute 9.0: does not support float32" in narrow.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("attention",), "give the sizes of attention: --shape"),
        (("attention", "--shape", "2x1x512:2048x64"), "this asks about one problem"),
        (("atention", "--shape", "2x1x512x64"), "did you mean 'attention'"),
        (("attention", "--shape", "2x1x512x64", "--variant", "tild"), "variant of attention"),
        (
            ("attention", "--shape", "2x1x512x64", "--dtype", "bfloat16", "--variant", "stored"),
            "stored cannot run attention",
        ),
        (("attention", "--shape", "2x1x512x64", "--device", "cuda:3"), "no device 'cuda:3'"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, words: tuple[str, ...], message: str) -> None:
    ended = run("predict", *words)
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
