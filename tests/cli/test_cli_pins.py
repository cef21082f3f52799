"""`autotune pin` and `unpin`."""

from __future__ import annotations

from command_line import Run
from filled import choice, keep, toy_problem

from autotune import dispatch
from autotune.serving import refresh


def test_a_pinned_variant_is_served_until_it_is_taken_back(run: Run, toy: str) -> None:
    keep(toy_problem(512), choice("numpy", 1e-3), choice("flipped", 2e-3))
    assert run("pin", "toy_scale", "flipped", "--shape", 512, "--config", "copies=2").code == 0
    refresh()
    kernel = dispatch("toy_scale", (512,))
    assert (kernel.variant, kernel.origin) == ("flipped", "pinned")
    assert dict(kernel.config) == {"copies": 2}
    assert run("unpin", "toy_scale", "--shape", 512).code == 0
    refresh()
    assert dispatch("toy_scale", (512,)).variant == "numpy"


def test_a_pin_of_the_operation_holds_for_every_problem(run: Run, toy: str) -> None:
    pinned = run("pin", "toy_scale", "flipped")
    assert "autotune unpin toy_scale" in pinned.flat
    refresh()
    assert dispatch("toy_scale", (77,)).variant == "flipped"
    assert run("unpin", "toy_scale", "--json").document["variant"] == "flipped"


def test_the_command_that_takes_a_pin_back_is_given(run: Run, toy: str) -> None:
    pinned = run("pin", "toy_scale", "flipped", "--shape", 64, "--set", "reverse=true")
    command = pinned.flat.partition("with: autotune ")[2]
    assert run(*command.split()).code == 0


def test_a_pin_that_could_not_be_served_is_refused(run: Run, toy: str) -> None:
    for words, told in (
        (["numpi"], "did you mean 'numpy'"),
        (["flipped", "--config", "copies=3"], "copies=3 is not available here; use 1, 2"),
        (["flipped", "--config", "copy=1"], "did you mean 'copies'"),
        (["flipped", "--config", "copies"], "NAME=VALUE"),
        (["numpy", "--shape", "64", "--set", "reverse=true"], "needs not reverse"),
        (["noisy", "--shape", "64"], "does not support float32"),
        (["numpy", "--dtype", "float32"], "only together with --shape"),
        (["numpy", "--shape", "64:128"], "one problem"),
    ):
        ended = run("pin", "toy_scale", *words)
        assert ended.code == 2
        assert told in ended.err


def test_pins_without_a_measurement_are_shown(run: Run, toy: str) -> None:
    run("pin", "toy_scale", "flipped")
    run("pin", "toy_scale", "numpy", "--shape", 64)
    shown = run("show")
    assert "every problem of toy_scale to flipped" in shown.flat
    assert "N=64 float32 reverse=False packed to numpy" in shown.flat
    first, second = run("show", "--json").document
    assert first["problem"] == {"operation": "toy_scale"}
    assert second["problem"]["dims"] == {"N": 64}
    assert first["pinned"]["variant"] == "flipped"
    assert run("show", "attention", "--json").document == []


def test_taking_back_what_is_not_pinned_names_the_pins(run: Run, toy: str) -> None:
    run("pin", "toy_scale", "flipped")
    ended = run("unpin", "toy_scale", "--shape", 64)
    assert ended.code == 2
    assert "every problem of toy_scale to flipped" in ended.err


def test_a_pin_that_could_never_serve_is_refused(run: Run, toy: str) -> None:
    refused = run("pin", "decode", "cuda_split", "--device", "cpu")
    assert refused.code == 2
    assert "cuda_split runs on cuda, and cpu-" in refused.err
    assert run("show", "--json").document == []
