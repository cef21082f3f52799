"""dispatch: which kernel it hands out, on what grounds, and what mistakes get."""

from __future__ import annotations

import logging
import re
import threading

import numpy as np
import pytest
from filled import lose

from autotune import dispatch, stats
from autotune.errors import (
    ConstraintError,
    NoPolicyError,
    ShapeError,
    UnknownNameError,
    UserError,
)
from autotune.model import Problem
from autotune.registry import operation, variant
from autotune.serving import refresh, server
from autotune.settings import settings

NAN = float("nan")


@operation(inputs="x[M,N]", outputs="y[M,N]")
def no_axes(x):
    """x again; of its dims nothing is said."""
    return x


@variant(no_axes, "whole")
@variant(no_axes, "halves")
def copies(x, y) -> None:
    y[...] = x


def test_nothing_tuned_serves_a_predicted_default_and_says_so_once(bench, caplog) -> None:
    with caplog.at_level(logging.WARNING, logger="autotune"):
        kernel = dispatch(bench.operation, (3, 8))
        dispatch(bench.operation, (3, 8), factor=2.0)
        dispatch("served_sum", [3, 8])
    assert kernel.origin == "predicted"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "autotune tune served_sum --shape M=3,N=8 --dtype float32" in messages[0]


def test_a_tuned_problem_serves_its_winner(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6, "roomy": 1e-6})
    kernel = dispatch(bench.operation, (3, 8), dtype="float32")
    assert (kernel.variant, kernel.origin, dict(kernel.config)) == ("roomy", "tuned", {})
    assert "measured for exactly this problem" in kernel.explain()
    x, y = bench.arrays()
    np.testing.assert_allclose(kernel(x, y), 8 * (x + y), rtol=1e-6)


def test_every_spelling_of_a_problem_is_one_kernel(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8), dtype="float32")
    for dtype in ("fp32", np.float32, "<f4", np.dtype("float32")):
        assert dispatch(bench.operation, (3, 8), dtype=dtype) is kernel
    assert dispatch("served_sum", dims={"N": 8, "M": 3}) is kernel
    assert dispatch(bench.operation, *bench.arrays()) is kernel
    assert dispatch(bench.operation, (3, 8), negate=False) is kernel
    assert dispatch(bench.operation, (3, 8), negate=True) is not kernel


def test_dtype_and_flags_are_part_of_the_key(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6, "only64": 1e-6}, dtype="float64")
    bench.keep((3, 8), {"roomy": 1e-6}, dtype="float64", negate=True)
    assert dispatch(bench.operation, (3, 8), dtype="float64").variant == "only64"
    assert dispatch(bench.operation, (3, 8), dtype="float64", negate=True).variant == "roomy"
    miss = dispatch(bench.operation, (3, 8), dtype="float32")
    assert (miss.origin, miss.variant) != ("tuned", "only64")
    assert miss.variant != "only64"


def test_untuned_sizes_are_interpolated_and_respect_a_crossover(bench) -> None:
    bench.keep((3, 8), {"plain": 1e-6, "roomy": 4e-6})
    bench.keep((3, 512), {"plain": 64e-6, "roomy": 16e-6})
    small, large = dispatch(bench.operation, (3, 10)), dispatch(bench.operation, (3, 400))
    assert (small.variant, small.origin) == ("plain", "interpolated")
    assert (large.variant, large.origin) == ("roomy", "interpolated")


def test_many_sizes_leave_few_entries(bench) -> None:
    bench.keep((3, 8), {"plain": 1e-6})
    for n in range(1000, 1200):
        assert dispatch(bench.operation, (3, n)).problem.sizes["N"] == n
    assert len(server()._kernels) <= 200


def test_constraints_are_honoured_or_refused(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6, "roomy": 1e-6})
    assert dispatch(bench.operation, (3, 8), deterministic=True).variant == "plain"
    assert dispatch(bench.operation, (3, 8), max_workspace=10).variant == "plain"
    assert dispatch(bench.operation, (3, 8), max_error=5e-7).variant == "plain"
    with pytest.raises(ConstraintError, match=r"max_error=1e-12; closest: plain"):
        dispatch(bench.operation, (3, 8), max_error=1e-12)


def test_a_refusal_is_told_once_with_digits_that_tell_the_two_apart(bench, caplog) -> None:
    bench.keep((3, 8), {"plain": 1e-6})
    with (
        caplog.at_level(logging.WARNING, logger="autotune"),
        pytest.raises(ConstraintError, match=r"error 1e-07 is above max_error=9.9999e-08\)"),
    ):
        dispatch(bench.operation, (3, 8), max_error=9.9999e-8)
    assert not caplog.records


def test_workspace_is_checked_at_the_size_that_is_asked(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6, "roomy": 1e-6})
    bench.keep((3, 64), {"plain": 2e-5, "roomy": 1e-5})
    assert dispatch(bench.operation, (3, 16), max_workspace=16 * 3 * 8).variant == "plain"
    assert dispatch(bench.operation, (3, 16), max_workspace=16 * 3 * 16).variant == "roomy"


def test_an_unmeasured_error_cannot_be_promised(bench) -> None:
    with pytest.raises(ConstraintError, match="not measured"):
        dispatch(bench.operation, (3, 8), max_error=1.0)


def test_strict_raises_instead_of_guessing(bench) -> None:
    with pytest.raises(NoPolicyError, match="autotune tune served_sum"):
        dispatch(bench.operation, (3, 8), strict=True)
    bench.keep((3, 8), {"plain": 2e-6})
    server().refresh()
    assert dispatch(bench.operation, (3, 8), strict=True).origin == "tuned"


def test_modes_do_not_mix(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6}, mode="hot")
    assert dispatch(bench.operation, (3, 8), mode="hot").origin == "tuned"
    assert dispatch(bench.operation, (3, 8)).origin != "tuned"


@pytest.mark.parametrize(
    ("spec", "options", "error", "message"),
    [
        (((3, 8),), {"negat": True}, UnknownNameError, "did you mean 'negate'"),
        (((3, 8),), {"mode": "warm"}, UnknownNameError, "unknown mode 'warm'"),
        (((3, 8),), {"dtype": "flot32"}, UnknownNameError, "flot32"),
        (((3, 8, 1),), {}, ShapeError, "takes a shape of 2 numbers"),
        ((3, 8), {}, ShapeError, "as one tuple"),
        ((), {}, ShapeError, "either a shape or dims"),
        (("3x8",), {}, ShapeError, "tuple of sizes"),
        (((3, 8),), {"negate": "no"}, UserError, "flag negate of served_sum is a bool"),
        (((3, 8),), {"dtype": None}, UnknownNameError, "None"),
        (((3, "a"),), {}, ShapeError, "whole number"),
        (((3, 10**200),), {}, ShapeError, r"whole number < 2\*\*62"),
        (((3, 8),), {"max_workspace": "1MB"}, UserError, "max_workspace is a number"),
        (((3, 8),), {"max_workspace": NAN}, UserError, "max_workspace is a number, got nan"),
        (((3, 8),), {"max_error": NAN}, UserError, "max_error is a number, got nan"),
        (((3, 8),), {"factor": 10**400}, UserError, "factor of served_sum is a number too large"),
        (((3, 8),), {"factor": np.ones(2)}, UserError, "factor of served_sum is a number, got"),
        (((3, 8),), {"dtype": "float32,float64"}, UnknownNameError, "'float32,float64'"),
        ((), {"dims": {1: 2}}, UnknownNameError, "unknown dim of served_sum 1; known: M, N"),
        ((np.ma.ones((3, 8)),) * 2, {}, ShapeError, "mask would be ignored"),
        ((), {"dims": {"M": 3, "K": 8}}, UnknownNameError, "unknown dim of served_sum 'K'"),
    ],
)
def test_mistakes_get_one_sentence(bench, spec, options, error, message) -> None:
    with pytest.raises(error, match=message) as caught:
        dispatch(bench.operation, *spec, **options)
    assert "\n" not in str(caught.value)


def test_a_scalar_may_be_any_number(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8), factor=2.0)
    assert dispatch(bench.operation, (3, 8), factor=np.array(2.0)) is kernel
    with pytest.raises(UserError, match="is a number too large for float64"):
        kernel(*bench.arrays(), factor=10**400)


def test_a_dtype_beside_arrays_is_theirs_or_refused(bench) -> None:
    single, double = bench.arrays(), bench.arrays(dtype="float64")
    kernel = dispatch(bench.operation, *single)
    for _ in range(2):
        assert dispatch(bench.operation, *single, dtype="fp32") is kernel
        with pytest.raises(ShapeError, match="the arrays are float32, not float64; leave dtype"):
            dispatch(bench.operation, *single, dtype="float64")
    dispatch(bench.operation, *double)
    with pytest.raises(ShapeError, match="the arrays are float64, not float32"):
        dispatch(bench.operation, *double, dtype="float32")


def test_an_unknown_operation_gets_the_nearest_name(bench) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'attention'"):
        dispatch("atention", (1, 1, 4, 8))


def test_first_calls_from_many_threads_get_one_kernel(bench) -> None:
    found, start = [], threading.Barrier(16)

    def work() -> None:
        start.wait()
        kernel = dispatch(bench.operation, (3, 8))
        x, y = bench.arrays()
        found.append((kernel, np.allclose(kernel(x, y), 8 * (x + y))))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(kernel) for kernel, _ in found}) == 1
    assert all(right for _, right in found)


def test_a_store_that_is_no_database_costs_one_warning(bench, caplog) -> None:
    settings().database.parent.mkdir(parents=True, exist_ok=True)
    settings().database.write_text("not a database")
    with caplog.at_level(logging.WARNING, logger="autotune"):
        kernels = [dispatch(bench.operation, (3, n)) for n in (8, 16)]
    assert {kernel.origin for kernel in kernels} == {"predicted"}
    about = [r for r in caplog.records if str(settings().database) in r.getMessage()]
    assert len(about) == 1


def test_another_processs_tuning_is_noticed_on_a_miss(bench, monkeypatch) -> None:
    assert dispatch(bench.operation, (3, 8)).origin == "predicted"
    bench.keep((3, 8), {"plain": 2e-6})
    assert dispatch(bench.operation, (3, 8)).origin == "predicted"
    monkeypatch.setattr(server(), "_looked", -1e9)
    dispatch(bench.operation, (3, 9))
    assert dispatch(bench.operation, (3, 8)).origin == "tuned"


def test_a_frozen_process_keeps_its_snapshot(bench, monkeypatch) -> None:
    monkeypatch.setenv("AUTOTUNE_FROZEN", "1")
    digest = server().snapshot.digest
    bench.keep((3, 8), {"plain": 2e-6})
    monkeypatch.setattr(server(), "_looked", -1e9)
    dispatch(bench.operation, (3, 9))
    assert server().snapshot.digest == digest


def test_another_mode_serves_but_is_no_answer_to_a_strict_question(bench) -> None:
    bench.keep((3, 8), {"plain": 2e-6}, mode="hot")
    kernel = dispatch(bench.operation, (3, 8))
    assert (kernel.origin, kernel.variant) == ("interpolated", "plain")
    assert "mode: hot -> cold" in kernel.explain()
    with pytest.raises(NoPolicyError):
        dispatch(bench.operation, (3, 8), strict=True)


def test_tuning_that_fails_on_a_miss_costs_one_warning(bench, caplog, monkeypatch) -> None:
    import autotune
    from autotune.errors import CampaignError

    def fails(*_: object, **__: object) -> None:
        raise CampaignError("no candidate could be measured")

    monkeypatch.setattr(autotune, "tune", fails, raising=False)
    with caplog.at_level(logging.WARNING, logger="autotune"):
        kernel = dispatch(bench.operation, (3, 8), tune_on_miss=True)
    assert kernel.origin == "predicted"
    assert "no candidate could be measured" in caplog.text


def test_arrays_and_dims_do_not_go_together(bench) -> None:
    with pytest.raises(ShapeError, match="not both"):
        dispatch(bench.operation, *bench.arrays(), dims={"M": 3, "N": 8})
    with pytest.raises(ShapeError, match="got a list among them"):
        dispatch(bench.operation, bench.arrays()[0], [1.0])


TIMES = {"samples": (1e-6,), "median": 1e-6, "low": 1e-6, "high": 1e-6}


def tried(bench, variant: str, status: str, shape: tuple[int, int] = (3, 8), **config: int) -> None:
    """A trial as a campaign keeps it."""
    problem = Problem.of(bench.operation, shape, "float32")
    lose(problem, variant, status, "", config=config, **(TIMES if status == "ok" else {}))


def test_what_the_gate_has_rejected_is_no_prediction(bench) -> None:
    predicted = dispatch(bench.operation, (3, 8)).variant
    config = {"order": 1} if predicted == "plain" else {}
    tried(bench, predicted, "wrong", **config)
    refresh()
    other = dispatch(bench.operation, (3, 8))
    assert other.variant != predicted
    assert dispatch(bench.operation, (5, 99)).variant != predicted, "it was never right anywhere"
    tried(bench, predicted, "ok", (7, 7), **config)
    refresh()
    assert dispatch(bench.operation, (5, 99)).variant == predicted
    assert dispatch(bench.operation, (3, 8)).variant != predicted, "on this problem it was wrong"
    tried(bench, predicted, "ok", **config)
    refresh()
    assert dispatch(bench.operation, (3, 8)).variant == predicted


def test_where_all_were_rejected_the_reference_serves_and_constraints_are_refused(bench) -> None:
    for name in ("plain", "roomy", "breaks"):
        tried(bench, name, "crashed", (16, 16), **({"order": 1} if name == "plain" else {}))
    kernel = dispatch(bench.operation, (3, 8))
    assert kernel.origin == "reference"
    x, y = bench.arrays()
    np.testing.assert_allclose(kernel(x, y), 8 * (x + y), rtol=1e-6)
    with pytest.raises(ConstraintError, match="nothing but wrong results here, or crashed"):
        dispatch(bench.operation, (3, 8), deterministic=True)


def test_a_neighbour_s_winner_that_was_wrong_here_is_passed_over(bench) -> None:
    bench.keep((3, 512), {"plain": 1e-6, "roomy": 2e-6})
    assert dispatch(bench.operation, (3, 500)).variant == "plain"
    tried(bench, "plain", "wrong", (3, 500), order=2)
    tried(bench, "plain", "ok", (3, 512), order=2)
    refresh()
    assert dispatch(bench.operation, (3, 500)).variant == "roomy"
    assert dispatch(bench.operation, (3, 501)).variant == "plain"


def test_an_edited_source_has_no_record(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = dispatch(bench.operation, (3, 8)).variant
    tried(bench, predicted, "wrong", **({"order": 1} if predicted == "plain" else {}))
    monkeypatch.setattr("autotune.fingerprint.fingerprint", lambda variant: "edited")
    refresh()
    assert dispatch(bench.operation, (3, 8)).variant == predicted


def test_what_came_closest_to_the_constraints_is_told_first(bench) -> None:
    with pytest.raises(ConstraintError) as refused:
        dispatch("attention", (3, 1, 333, 24), device="cpu", max_workspace=100)
    needed = [int(bytes_) for bytes_ in re.findall(r"needs (\d+) bytes", str(refused.value))]
    assert len(needed) == 3
    assert needed == sorted(needed)


@pytest.mark.parametrize("nothing", [None, 5, ["served_sum"], 1.5])
def test_an_operation_that_is_none(bench, nothing: object) -> None:
    with pytest.raises(UserError, match="an operation goes by its name or as it was declared"):
        dispatch(nothing, (3, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["deterministic", "strict", "tune_on_miss"])
def test_a_switch_that_is_neither_true_nor_false(bench, name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is True or False, got 'no'"):
        dispatch(bench.operation, (3, 8), **{name: "no"})


def test_sizes_in_a_list_or_by_name_are_remembered_like_a_tuple(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    before = stats()
    for _ in range(3):
        assert dispatch(bench.operation, [3, 8]) is kernel
        assert dispatch(bench.operation, dims={"M": 3, "N": 8}) is kernel
    after = stats()
    assert after.misses == before.misses
    assert after.hits == before.hits + 6
    resolved = server().counts["known"]
    dispatch(bench.operation, dims={"M": 3, "N": 8})
    assert server().counts["known"] == resolved, "the server was not asked again"


def test_a_mistake_is_told_without_what_was_looked_up_before(bench) -> None:
    with pytest.raises(ShapeError) as mistake:
        dispatch(bench.operation, "3x8")
    assert mistake.value.__context__ is None


def test_only_the_first_few_misses_are_told_in_full(bench, caplog) -> None:
    with caplog.at_level(logging.WARNING, logger="autotune"):
        for n in range(1, 30):
            dispatch(bench.operation, (3, n))
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if "nothing measured applies" in text]) == 8
    assert told[-1] == (
        "more problems have no measurement that applies; autotune.stats() counts them."
    )
    assert len(told) == 9


def test_an_operation_without_axes_is_interpolated_in_any_dim(bench, monkeypatch) -> None:
    monkeypatch.setattr(bench, "operation", no_axes)
    for n in (1024, 16384):
        bench.keep((4, n), {"whole": n * 1e-9})
    kernel = dispatch(no_axes, (4, 4096))
    assert (kernel.variant, kernel.origin) == ("whole", "interpolated")
    assert dispatch(no_axes, (8, 4096)).origin == "interpolated"
    assert "times outside" not in kernel.explain()
