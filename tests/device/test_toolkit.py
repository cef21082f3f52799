"""What keeps a GPU from being used, and the remedies."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
from fake_driver import A100, CUPY, H200, V100, Card, FakeDriver, machine

from autotune.device.__main__ import needed_extra
from autotune.device.driver import read_driver
from autotune.device.toolkit import Cupy, find_cupy, fitting_extra, unfit


def test_a_driver_without_cupy_names_the_extra_that_fits_it() -> None:
    (gpu,) = machine(H200, cupy=None).devices
    assert gpu.unusable == "CuPy is not installed: pip install 'onf-autotune[cuda13]'"
    (gpu,) = machine(H200, cuda=12040, cupy=None).devices
    assert gpu.unusable == "CuPy is not installed: pip install 'onf-autotune[cuda12]'"


@pytest.mark.parametrize(
    ("cuda", "compute", "cupy", "told"),
    [
        (12040, 90, CUPY, "driver 550.54 supports CUDA 12.4 and cupy-cuda13x needs CUDA 13"),
        (12040, 90, CUPY, "install driver 580 or newer, or pip uninstall cupy-cuda13x"),
        (12040, 90, CUPY, "pip install 'onf-autotune[cuda12]'"),
        (11040, 80, CUPY, "driver 550.54 supports CUDA 11.4: install driver 525 or newer"),
        (11040, 80, None, "install driver 525 or newer"),
        (13000, 70, CUPY, "CUDA 13 no longer compiles for compute capability 7.0"),
        (13000, 70, CUPY, "pip uninstall cupy-cuda13x and pip install 'onf-autotune[cuda12]'"),
        (13000, 35, CUPY, "no CUDA since 12 compiles for compute capability 3.5"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_a_remedy(
    cuda: int, compute: int, cupy: Cupy | None, told: str
) -> None:
    assert told in str(unfit("550.54", cuda, compute, cupy))


@pytest.mark.parametrize("cupy", [CUPY, Cupy("cupy-cuda12x", 12), Cupy("cupy")])
def test_what_fits(cupy: Cupy) -> None:
    assert unfit("580.65", 13000, 90, cupy) is None


def test_an_unknown_release_is_left_out_of_the_sentence() -> None:
    assert str(unfit("", 11040, 80, None)).startswith("the driver supports CUDA 11.4:")


def test_the_extra_follows_driver_and_card() -> None:
    fits = {(c, sm): fitting_extra(c, sm) for c in (13010, 12020, 11080) for sm in (90, 70)}
    assert fits[13010, 90] == "cuda13"
    assert fits[13010, 70] == fits[12020, 90] == fits[12020, 70] == "cuda12"
    assert fits[11080, 90] is None


def test_a_volta_card_is_told_to_take_the_older_extra() -> None:
    (gpu,) = machine(V100).devices
    assert "7.0" in str(gpu.unusable)


def test_a_card_that_bars_compute() -> None:
    (gpu,) = machine(replace(H200, mode=2)).devices
    assert "Prohibited" in str(gpu.unusable)


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        (["cupy-cuda12x"], Cupy("cupy-cuda12x", 12)),
        ([], Cupy("cupy")),
        (["cupy-cuda12x", "cupy-cuda13x"], Cupy("cupy")),
    ],
)
def test_the_installed_cupy(
    installed: list[str], found: Cupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version_of(package: str) -> str:
        if package not in installed:
            raise PackageNotFoundError(package)
        return "14.2.0"

    monkeypatch.setitem(sys.modules, "cupy", sys)
    assert find_cupy(version_of) == found


def test_the_extra_to_install_serves_every_card_that_has_one() -> None:
    def needed(*cards: Card, cuda: int = 13000) -> str:
        return needed_extra(read_driver(FakeDriver(cards, cuda), {}))

    assert needed(H200, A100) == "cuda13"
    assert needed(H200, V100) == "cuda12"
    assert needed(H200, cuda=12040) == "cuda12"
    assert needed(H200, cuda=11040) == ""
    assert needed() == ""
