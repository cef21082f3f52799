"""GPUs as devices, from what drivers of known cards tell."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fake_driver import (
    A10,
    A100,
    CUPY,
    H20,
    H200,
    H200_SLICE,
    MIB,
    Card,
    FakeDriver,
    FakeNvml,
    machine,
)

from autotune.device.cuda import CudaDevice, memory_class
from autotune.device.driver import read_driver
from autotune.device.gpus import gpus_of
from autotune.device.nvml import NvmlReading, partition_in, read_nvml
from autotune.model.variant import MACHINE_LIMITS


def device(card: Card) -> CudaDevice:
    (found,) = machine(card).devices
    return found


def test_an_h200_is_what_it_is_made_of() -> None:
    gpu = device(H200)
    assert gpu.identity.startswith("cuda-sm90-132sm-141gb-")
    assert len(gpu.identity.rpartition("-")[2]) == 8
    assert (gpu.family, gpu.label, gpu.address) == (
        "cuda-sm90-around128sm",
        "NVIDIA H200",
        "cuda:0",
    )
    assert gpu.limits == {
        "compute": 90,
        "sms": 132,
        "shared_per_block": 232_448,
        "shared_per_sm": 233_472,
        "registers_per_sm": 65_536,
        "max_threads_per_block": 1024,
        "max_threads_per_sm": 2048,
        "warp": 32,
        "device_memory": 143156 * MIB,
        "l2_bytes": 60 * MIB,
    }
    assert gpu.limits.keys() == set(MACHINE_LIMITS["cuda"])
    assert gpu.last_level_cache_bytes == 60 * MIB
    assert (gpu.thread_counts(), gpu.placements()) == ((1,), ("free",))
    assert gpu.unusable is None


def test_facts_are_plain_values_about_the_silicon_not_the_one_card() -> None:
    facts = json.loads(json.dumps(dict(device(H200).facts)))
    assert facts["compute_capability"] == "9.0"
    assert (facts["driver"], facts["cuda"]) == ("580.65.06", "13.0")
    assert facts["power_limit_watts"] == 700.0
    assert facts["partition"] is None
    assert not any("uuid" in name or "bus_id" in name for name in facts)
    assert facts["memory_bytes"] == 143156 * MIB


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H200 141GB HBM3e", "nvidia h200  ", "NVIDIA-H200-SXM5-141GB", "Graphics Device"],
)
def test_a_renamed_card_is_the_same_device(name: str) -> None:
    renamed = device(replace(H200, name=name))
    assert renamed.identity == device(H200).identity
    assert renamed.label == " ".join(name.split())


def test_what_does_not_belong_to_the_identity_does_not_change_it() -> None:
    """ECC takes GDDR memory, another driver keeps more for itself, another card is as good."""
    ecc_off = replace(A10, memory=24100 * MIB, ecc=0)
    assert device(ecc_off).identity == device(A10).identity
    for memory in (143771, 143000, 142500):
        assert device(replace(H200, memory=memory * MIB)).identity == device(H200).identity
    bare = gpus_of(read_driver(FakeDriver([H200], 12040), {}), NvmlReading(), None).devices[0]
    assert bare.identity == device(H200).identity
    assert bare.uuid == device(H200).uuid


@pytest.mark.parametrize(
    "other",
    [
        H20,
        A100,
        H200_SLICE,
        replace(H200, sms=114),
        replace(H200, l2=50 * MIB),
        replace(H200, memory=81000 * MIB),
        replace(H200, bus=5120),
        replace(H200, mig=(7, 7)),
    ],
)
def test_unlike_silicon_is_another_device(other: Card) -> None:
    assert device(other).identity != device(H200).identity


def test_a_mig_slice_is_a_device_of_its_own_on_a_shared_card() -> None:
    gpu = device(H200_SLICE)
    assert gpu.identity.startswith("cuda-sm90-60sm-71gb-mig3g-")
    assert gpu.facts["partition"] == "MIG 3g"
    assert gpu.uuid.startswith("MIG-")
    assert gpu.lock_name == device(H200).lock_name
    assert gpu.limits["sms"] == 60


def test_a_slice_has_one_identity_whoever_names_the_partition() -> None:
    only_nvml = device(replace(H200_SLICE, name="NVIDIA H200"))
    driver = read_driver(FakeDriver([H200_SLICE]), {})
    (only_driver,) = gpus_of(driver, NvmlReading(reason="not installed"), CUPY).devices
    assert only_nvml.identity == only_driver.identity == device(H200_SLICE).identity
    assert only_driver.uuid.startswith("MIG-")


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        ("NVIDIA H200", ""),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g"),
        ("NVIDIA H200 MIG 1c.3g.71gb", "1c.3g"),
        ("NVIDIA H100 MIG 1g.10gb+me", "1g"),
    ],
)
def test_slices_in_the_names_of_the_driver(name: str, slices: str) -> None:
    assert partition_in(name) == slices


def test_divided_slices_carry_both_numbers() -> None:
    divided = replace(H200_SLICE, name="NVIDIA H200", mig=(3, 1), sms=16)
    assert "-mig1c.3g-" in device(divided).identity


def test_two_equal_cards_share_an_identity_and_have_locks_of_their_own() -> None:
    one, two = machine(H200, replace(H200, number=1)).devices
    assert one.identity == two.identity
    assert (one.address, two.address) == ("cuda:0", "cuda:1")
    assert one.uuid != two.uuid
    assert one.lock_name != two.lock_name
    assert one != two


def test_nvml_is_asked_by_uuid_since_it_numbers_cards_differently() -> None:
    """CUDA lists the fastest first here, NVML by bus, and one card is hidden from CUDA."""
    a100, h200, hidden = A100, replace(H200, number=1), replace(H200, number=2)
    driver = read_driver(FakeDriver([h200, a100]), {})
    reading = read_nvml([gpu.uuid for gpu in driver.gpus], FakeNvml([a100, hidden, h200]))
    one, two = gpus_of(driver, reading, CUPY).devices
    assert (one.label, one.card) == ("NVIDIA H200", h200.uuid)
    assert (two.label, two.card) == ("NVIDIA A100-SXM4-80GB", a100.uuid)


def test_families_join_cards_of_an_architecture_and_about_a_size() -> None:
    families = {card.name: device(card).family for card in (H200, H20, H200_SLICE, A100)}
    assert families["NVIDIA H200"] != families["NVIDIA H20"]
    assert families["NVIDIA H200"] != families["NVIDIA H200 MIG 3g.71gb"]
    assert families["NVIDIA A100-SXM4-80GB"] == "cuda-sm80-around128sm"
    assert device(replace(H200, sms=114, memory=81000 * MIB)).family == families["NVIDIA H200"]


@pytest.mark.parametrize(
    ("mebibytes", "gigabytes"),
    [
        (143156, 141),
        (143771, 141),
        (81050, 80),
        (81559, 80),
        (40326, 40),
        (97280, 96),
        (24210, 24),
        (22500, 24),
        (45480, 48),
        (14900, 16),
        (182630, 180),
        (327000, 320),
    ],
)
def test_memory_class_is_what_a_card_is_sold_as(mebibytes: int, gigabytes: int) -> None:
    assert memory_class(mebibytes * MIB) == gigabytes
