"""`autotune variants` and `autotune devices`."""

from __future__ import annotations

from command_line import Run

from autotune.device import local_cpu


def test_variants_lists_operations_with_their_variants(run: Run, toy: str) -> None:
    shown = run("variants")
    assert "toy_scale" in shown.out
    assert "flipped yes 1 - 1 yes" in shown.flat
    documents = {each["operation"]: each for each in run("variants", "--json").document}
    names = [variant["variant"] for variant in documents["toy_scale"]["variants"]]
    assert names == ["numpy", "flipped", "broken", "halves", "noisy"]


def test_one_operation_shows_passes_tunables_and_traits(run: Run, toy: str) -> None:
    shown = run("variants", "toy_scale")
    assert "sweep: parallel over N reads x writes y owned" in shown.flat
    assert "copies: 1, 2; default 1" in shown.flat
    assert "deterministic, 1 pass" in shown.flat
    assert "not deterministic, passes not declared" in shown.flat


def test_sizes_are_derived_at_a_shape(run: Run, toy: str) -> None:
    (document,) = run("variants", "toy_scale", "--shape", 1024, "--json").document
    numpy, flipped, *_, noisy = document["variants"]
    assert numpy["at"]["prediction"]["bytes_read"] == 4096
    assert numpy["at"]["prediction"]["bytes_written"] == 4096
    assert flipped["at"]["configs"] == 2
    assert noisy["at"] is None
    assert noisy["unavailable"] == "does not support float32"
    shown = run("variants", "toy_scale", "--shape", 1024)
    assert "reads 4 KiB, writes 4 KiB, workspace 0 B" in shown.flat
    assert "runs here no: does not support float32" in shown.flat


def test_every_builtin_variant_can_be_shown(run: Run) -> None:
    for document in run("variants", "--json").document:
        shown = run("variants", document["operation"])
        assert shown.code == 0
        assert all(variant["variant"] in shown.out for variant in document["variants"])


def test_devices_gives_identity_and_topology(run: Run) -> None:
    (document,) = run("devices", "--json").document
    cpu = local_cpu()
    assert document["identity"] == cpu.identity
    assert document["facts"]["max_threads"] == cpu.max_threads
    shown = run("devices")
    for word in ("sockets", "NUMA nodes", "cores", "caches", "affinity", "CPU quota", cpu.identity):
        assert word in shown.out
