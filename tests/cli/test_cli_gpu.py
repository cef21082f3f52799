"""Commands on machines with GPUs, and about GPUs of other machines."""

from __future__ import annotations

import pytest
from cards import Have
from command_line import Run
from filled import choice, keep, toy_problem

from autotune.cli.selection import measuring_device
from autotune.device import gpus, local_cpu
from autotune.registry import registry

LACKING = "CuPy is not installed: pip install 'onf-autotune[cuda13]'"


def test_devices_lists_usable_gpus_before_the_cpu(run: Run, have: Have) -> None:
    gpu = have()
    shown = run("devices")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert shown.out.index("cuda:0") < shown.out.index("cuda:1") < shown.out.index("cpu ")
    assert "no GPU" not in shown.out
    one, two, cpu = run("devices", "--json").document
    assert one["identity"] == two["identity"] == gpu.identity
    assert one["uuid"] != two["uuid"]
    assert (one["address"], one["unusable"]) == ("cuda:0", None)
    assert one["limits"]["sms"] == 108
    assert cpu["identity"] == local_cpu().identity


def test_devices_says_why_there_is_no_gpu(run: Run) -> None:
    shown = run("devices")
    assert ("no GPU: " in shown.out) == (gpus.local_gpus().devices == ())


@pytest.mark.parametrize("name", ["a100", "cuda", "cuda:1", "A100-SXM4-40GB"])
def test_a_gpu_without_cupy_is_refused_in_one_sentence(name: str, run: Run, have: Have) -> None:
    have(LACKING)
    ended = run("tune", "--device", name)
    assert ended.code == 2
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1
    assert "NVIDIA A100-SXM4-40GB (cuda:" in ended.err
    assert f"cannot be used: {LACKING}." in ended.err


def test_what_is_measured_on_is_said(have: Have, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = have()
    assert measuring_device("A100").identity == gpu.identity
    told = f"autotune: on NVIDIA A100-SXM4-40GB (cuda:0, {gpu.identity}).\n"
    assert capsys.readouterr() == ("", told)
    have(LACKING)
    assert measuring_device(None) is local_cpu()
    said = capsys.readouterr().err
    assert f"autotune: NVIDIA A100-SXM4-40GB (cuda:1, {gpu.identity}) is not used: " in said
    measuring_device("cpu")
    assert capsys.readouterr() == ("", "")


def cuda_variants(document: list[dict[str, object]]) -> dict[str, str | None]:
    """Why each CUDA variant of attention cannot run, by name."""
    (attention,) = document
    variants = attention["variants"]
    assert isinstance(variants, list)
    return {v["variant"]: v["unavailable"] for v in variants if v["device_kind"] == "cuda"}


def test_variants_says_why_a_cuda_variant_cannot_run_here(run: Run, have: Have) -> None:
    have(LACKING)
    reasons = cuda_variants(run("variants", "attention", "--json").document)
    assert reasons
    assert set(reasons.values()) == {f"runs on cuda; {LACKING}"}
    overview = run("variants")
    assert f"no: runs on cuda; {LACKING}." in overview.flat
    assert max(map(len, overview.out.splitlines())) <= 80


def test_variants_are_judged_on_the_best_device_of_their_kind(run: Run, have: Have) -> None:
    have()
    reasons = cuda_variants(run("variants", "attention", "--json").document)
    hopper = [
        v
        for v in registry.variants("attention")
        if v.device == "cuda" and "compute == 90" in v.constraints
    ]
    for variant in hopper:
        assert reasons[variant.name] == "needs compute == 90 (here compute=80)"
    assert "not on" not in " ".join(map(str, reasons.values()))
    (document,) = run("variants", "attention", "--device", "cpu", "--json").document
    elsewhere = {v["unavailable"] for v in document["variants"] if v["device_kind"] == "cuda"}
    assert elsewhere == {"runs on cuda, not on cpu"}


def test_show_finds_results_of_a_gpu_that_is_not_here(run: Run, toy: str) -> None:
    identity = "cuda-sm90-132sm-141gb-0123abcd"
    keep(toy_problem(), choice("numpy", 1e-3), device=identity)
    for name in ("h200", identity):
        shown = run("show", "toy_scale", "--device", name, "--json")
        assert [each["device"] for each in shown.document] == [identity]
    ended = run("show", "toy_scale", "--device", "h20")
    assert ended.code == 2
    assert "no device 'h20' on this machine" in ended.err


def test_show_finds_results_of_a_gpu_that_cannot_be_used(run: Run, toy: str, have: Have) -> None:
    gpu = have(LACKING)
    keep(toy_problem(), choice("numpy", 1e-3), device=gpu.identity)
    shown = run("show", "toy_scale", "--device", "a100", "--json")
    assert [each["device"] for each in shown.document] == [gpu.identity]
