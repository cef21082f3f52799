"""Which device a name means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_driver import A10, A100, CUPY, H20, H200, H200_SLICE, Card, machine

from autotune.device import described, find_device, gpus, local_cpu, local_devices, why_no_gpu
from autotune.device.find import choose
from autotune.device.gpus import Gpus
from autotune.device.toolkit import Cupy
from autotune.errors import DeviceNotFoundError

Have = Callable[..., Gpus]
SECOND = replace(H200, number=1)


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> Have:
    """Makes this machine one with the given cards."""

    def put(*cards: Card, cupy: Cupy | None = CUPY, reason: str | None = None) -> Gpus:
        found = machine(*cards, cupy=cupy) if cards else Gpus(reason=reason)
        monkeypatch.setattr(gpus, "local_gpus", lambda: found)
        return found

    return put


@pytest.mark.parametrize(
    "label",
    [
        "NVIDIA H200",
        "NVIDIA H200 SXM5 141GB",
        "NVIDIA-H200-141GB-HBM3e",
        "nvidia h200  ",
        "NVIDIA H200 NVL",
        "NVIDIA(R) H200(TM)",
        "NVIDIA Graphics Device",
        "NVIDIA H20Z",
    ],
)
def test_h200_is_found_however_the_driver_spells_it(label: str, have: Have) -> None:
    have(A100, replace(H200, name=label, number=1))
    for name in ("h200", "H200", " h200 "):
        assert find_device(name).address == "cuda:1"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("h200", "cuda:0"),
        ("h20", "cuda:1"),
        ("a100", "cuda:2"),
        ("a10", "cuda:3"),
        ("nvidia a10", "cuda:3"),
        ("A100-SXM4", "cuda:2"),
        ("a100 80gb", "cuda:2"),
        ("a100-sxm4-80gb", "cuda:2"),
        ("cuda", "cuda:0"),
        ("CUDA:2", "cuda:2"),
        ("cuda-sm80", "cuda:2"),
        (f"GPU-{A10.raw}"[:12].lower(), None),
    ],
)
def test_names_are_words_not_beginnings(name: str, address: str | None, have: Have) -> None:
    have(H200, replace(H20, number=1), replace(A100, number=2), replace(A10, number=3))
    if address is None:
        with pytest.raises(DeviceNotFoundError, match="means several devices"):
            find_device(name)
    else:
        assert find_device(name).address == address


@pytest.mark.parametrize("name", ["h2", "20", "h2000", "a1", "100", "cuda:9", "cuda-sm9-", "gb"])
def test_what_is_part_of_a_word_is_no_name(name: str, have: Have) -> None:
    have(H200, replace(A100, number=1))
    with pytest.raises(DeviceNotFoundError, match="no device"):
        find_device(name)


def test_words_written_as_one(have: Have) -> None:
    have(replace(A10, name="NVIDIA GeForce RTX 4090"))
    for name in ("rtx4090", "rtx 4090", "RTX-4090", "4090", "geforce rtx4090"):
        assert find_device(name).kind == "cuda"
    for name in ("rtx409", "4090ti", "rtx 4090 ti"):
        with pytest.raises(DeviceNotFoundError):
            find_device(name)


def test_every_address_identity_and_uuid_is_found(have: Have) -> None:
    have(H200, SECOND, replace(A100, number=2))
    for device in local_devices():
        assert find_device(device.address) is device
        assert find_device(device.identity).identity == device.identity
    one, two, _ = gpus.local_gpus().devices
    assert find_device(one.identity) is one
    assert find_device(two.uuid) is two
    assert find_device(two.uuid.lower()) is two


def test_of_equal_cards_the_first_is_taken_and_of_unlike_ones_none(have: Have) -> None:
    have(H200, SECOND)
    assert find_device("h200").address == "cuda:0"
    have(H200, replace(H200_SLICE, number=1))
    with pytest.raises(DeviceNotFoundError) as caught:
        find_device("h200")
    for device in gpus.local_gpus().devices:
        assert f"{device.address} ({device.identity})" in str(caught.value)
    assert find_device("3g.71gb").address == "cuda:1"
    assert find_device("cuda").address == "cuda:0"


def test_best_first_and_the_cpu_before_a_gpu_that_cannot_be_used(have: Have) -> None:
    have(A100, replace(H200, number=1))
    assert [device.address for device in local_devices()] == ["cuda:0", "cuda:1", "cpu"]
    assert find_device() is gpus.local_gpus().devices[0]
    assert why_no_gpu() is None
    have(H200, cupy=None)
    assert [device.address for device in local_devices()] == ["cpu", "cuda:0"]
    assert find_device() is local_cpu()
    assert why_no_gpu() == "CuPy is not installed: pip install 'onf-autotune[cuda13]'"


@pytest.mark.parametrize("name", ["h200", "cuda", "cuda:0"])
def test_a_gpu_that_cannot_be_used_is_refused_with_the_remedy(name: str, have: Have) -> None:
    have(H200, cupy=None)
    with pytest.raises(DeviceNotFoundError) as caught:
        find_device(name)
    told = str(caught.value)
    assert told.startswith("NVIDIA H200 (cuda:0, cuda-sm90-132sm-141gb-")
    assert told.endswith(
        "cannot be used: CuPy is not installed: pip install 'onf-autotune[cuda13]'."
    )
    assert find_device(name, usable=False).kind == "cuda"


def test_the_usable_one_of_several_is_taken(have: Have) -> None:
    have(replace(H200, mode=2), SECOND)
    assert find_device("h200").address == "cuda:1"
    assert find_device("cuda").address == "cuda:1"
    with pytest.raises(DeviceNotFoundError, match="Prohibited"):
        find_device("cuda:0")


def test_a_machine_without_one_says_why(have: Have) -> None:
    have(reason="there is no NVIDIA driver here (libcuda.so.1 is not found)")
    with pytest.raises(DeviceNotFoundError) as caught:
        find_device("h200")
    told = str(caught.value)
    assert told.startswith(
        "no device 'h200' on this machine: there is no NVIDIA driver here "
        "(libcuda.so.1 is not found); it has cpu ("
    )
    assert caught.value.exit_code == 2
    assert why_no_gpu() == "there is no NVIDIA driver here (libcuda.so.1 is not found)"
    with pytest.raises(DeviceNotFoundError) as caught:
        find_device("cpu-nothing")
    assert "NVIDIA" not in str(caught.value)


def test_a_name_is_a_string() -> None:
    with pytest.raises(DeviceNotFoundError, match="named by a string"):
        find_device(3)  # type: ignore[arg-type]


def test_a_description_says_which(have: Have) -> None:
    have(H200, SECOND)
    two = find_device("cuda:1")
    assert described(two) == f"NVIDIA H200 (cuda:1, {two.identity})"
    assert described(local_cpu()) == f"{local_cpu().label} ({local_cpu().identity})"
    with pytest.raises(DeviceNotFoundError):
        choose("h200", [local_cpu()])
