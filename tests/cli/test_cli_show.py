"""`autotune show`: what is listed, marked and explained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from command_line import Run
from filled import choice, keep, lose, measured, toy_problem

from autotune.device import local_cpu
from autotune.pins import pin
from autotune.registry import registry
from autotune.store import open_tuning_db
from autotune_policies import load_shipped


def test_nothing_cached_is_an_empty_list_and_says_what_to_run(run: Run, toy: str) -> None:
    shown = run("show")
    assert shown.code == 0
    assert "autotune tune" in shown.out
    assert run("show", "--json").document == []
    named = run("show", "toy_scale", "--shape", 1024, "--dtype", "float32")
    assert "autotune tune toy_scale --shape N=1024 --dtype float32" in named.out


def test_a_policy_is_one_line_with_its_time_lead_and_mode(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3), choice("numpy", 1.5e-3))
    shown = run("show")
    assert "toy_scale float32 cold cache" in shown.flat
    assert "N=1024 flipped 1.00 ms 50%" in shown.flat
    (entry,) = run("show", "--json").document
    assert entry["winner"]["variant"] == "flipped"
    assert entry["problem"]["dims"] == {"N": 1024}
    assert entry["mode"] == "cold"
    assert entry["state"] == "fresh"


def test_parts_are_set_apart_by_empty_lines(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3), choice("numpy", 1.5e-3))
    assert "\n\ntoy_scale  float32  cold cache\n  shape " in run("show").out


def test_output_is_plain_and_narrow_in_a_pipe(run: Run, toy: str) -> None:
    for size in (512, 1 << 40):
        keep(toy_problem(size), choice("flipped", 1e-3), choice("numpy", 1.5e-3))
    for words in (["show"], ["show", "--why"], ["devices"], ["variants"], ["path"]):
        shown = run(*words)
        assert "\x1b" not in shown.out
        assert not [line for line in shown.out.splitlines() if line != line.rstrip()]
        if words != ["path"]:
            assert max(map(len, shown.out.splitlines())) <= 80


def test_a_changed_source_is_stale_and_why_names_it(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3, fingerprint="0" * 16), choice("numpy", 2e-3))
    assert "stale" in run("show").out
    (entry,) = run("show", "--why", "--json").document
    changed = [row["field"] for row in entry["depends_on"] if row["changed"]]
    assert entry["state"] == "stale"
    assert changed == ["source of flipped"]
    why = run("show", "--why")
    assert "source of flipped 000000000000" in why.flat
    assert "not served" in why.out


def test_another_library_version_asks_to_revalidate(run: Run, toy: str) -> None:
    from autotune.fingerprint import toolchain

    then = toolchain() | {"numpy": "0.0.1"}
    keep(toy_problem(), choice("numpy", 1e-3), toolchain=then)
    (entry,) = run("show", "--json").document
    assert entry["state"] == "revalidate"
    assert any(text.startswith("numpy: 0.0.1 ->") for text in entry["changed"])


def test_foreign_entries_are_counted_then_shown_and_marked(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("numpy", 1e-3), device="cpu-other-1", family="cpu-other")
    others = 1 + len(load_shipped()[0])
    assert f"\n{others} more of other devices" in run("show").out
    assert run("show", "--json").document == []
    shown = run("show", "--device", "all")
    assert "foreign" in shown.out
    assert "Some other CPU" in shown.out
    (entry,) = run("show", "--device", "cpu-other-1", "--json").document
    assert entry["state"] == "foreign"


def test_a_pin_is_marked(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3), choice("numpy", 2e-3))
    pin(registry.operation("toy_scale"), "numpy", local_cpu())
    shown = run("show")
    assert "pinned to numpy" in shown.flat
    assert "autotune unpin" in shown.flat


def test_a_tie_is_not_shown_as_a_lead(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3), choice("numpy", 1.001e-3))
    assert "N=1024 flipped 1.00 ms - tie" in run("show").flat or "numpy" in run("show").flat
    (entry,) = run("show", "--json").document
    assert entry["verdict"]["kind"] == "tie"


def test_candidates_that_fell_out_are_named_with_their_reason(run: Run, toy: str) -> None:
    problem = toy_problem()
    keep(problem, choice("flipped", 1e-3), choice("numpy", 2e-3))
    lose(problem, "broken", "failed", "RuntimeError: this one never works")
    lose(problem, "halves", "wrong", "y is wrong")
    shown = run("show")
    assert "broken failed: RuntimeError: this one never works" in shown.flat
    assert "halves wrong: y is wrong" in shown.flat
    assert "noisy" not in shown.flat  # a variant for another dtype is no loss
    failures = run("show", "--failures", "--json").document
    assert {(row["variant"], row["status"]) for row in failures} == {
        ("broken", "failed"),
        ("halves", "wrong"),
    }
    assert "broken failed" in run("show", "--failures").flat


def test_a_problem_on_which_everything_failed_is_listed_without_a_winner(
    run: Run, toy: str
) -> None:
    lose(toy_problem(), "broken", "failed", "RuntimeError: no")
    (entry,) = run("show", "--json").document
    assert entry["state"] == "no winner"
    assert entry["winner"] is None
    assert "no candidate finished" in run("show").flat


def test_a_tuning_that_was_stopped_before_its_race_is_not_called_a_failure(
    run: Run, toy: str
) -> None:
    measured(toy_problem(), choice("flipped", 1e-3))
    (entry,) = run("show", "--json").document
    assert entry["state"] == "unsettled"
    told = run("show").flat
    assert "not tuned to the end of a race; `autotune tune` settles it" in told
    assert "no candidate finished" not in told


def test_configs_that_went_wrong_are_told_beside_those_that_did_not(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3, config=(("block", 1),)))
    measured(toy_problem(), choice("flipped", 1e-3, config=(("block", 1),)))
    lose(toy_problem(), "flipped", "wrong", "y is off", config={"block": 2})
    lose(toy_problem(), "flipped", "timeout", "slow", config={"block": 4})
    assert "flipped wrong: y is off" in run("show").flat
    assert "slow" not in run("show").flat
    measured(toy_problem(), choice("flipped", 2e-3, config=(("block", 2),)))
    assert "wrong" not in run("show").flat


def test_a_quiet_look_later_does_not_make_a_disturbed_policy_a_quiet_one(
    run: Run, toy: str
) -> None:
    measured(toy_problem(), choice("flipped", 1e-3), status="disturbed")
    keep(toy_problem(), choice("flipped", 1e-3))
    measured(toy_problem(), choice("flipped", 1e-3), started="2999-01-01T00:00:00+00:00")
    assert run("show", "--json").document[0]["disturbed"] is True
    measured(toy_problem(), choice("flipped", 1e-3), started="2026-01-01T00:00:00+00:00")
    assert run("show", "--json").document[0]["disturbed"] is False


def test_explain_gives_no_interval_to_a_few_samples(run: Run, toy: str) -> None:
    keep(toy_problem(512), choice("flipped", 1e-3, samples=3))
    told = run("show", "toy_scale", "--shape", "512", "--explain").flat
    assert "- (3 samples)" in told


def test_explain_ranks_with_intervals_and_answers_constraints(run: Run, toy: str) -> None:
    keep(
        toy_problem(),
        choice("flipped", 1e-3, deterministic=False),
        choice("numpy", 2e-3, workspace_bytes=64),
    )
    shown = run("show", "toy_scale", "--shape", 1024, "--explain")
    assert shown.code == 0
    assert "0.99 ms to 1.01 ms" in shown.flat.replace("990 us", "0.99 ms")
    assert "deterministic=True numpy" in shown.flat
    (document,) = run("show", "toy_scale", "--shape", 1024, "--explain", "--json").document
    assert document["served"]["origin"] == "tuned"
    assert document["served"]["variant"] == "flipped"
    assert document["constrained"]["deterministic=True"]["variant"] == "numpy"


def test_an_error_that_explain_shows_can_be_asked_for(run: Run, toy: str) -> None:
    keep(toy_problem(), choice("flipped", 1e-3, error=4.7012e-7))
    told = run("show", "toy_scale", "--shape", 1024, "--explain").flat
    assert "max_error=4.71e-07 flipped [copies=1] (tuned)" in told
    assert "4.8e-07" in told


def test_explain_of_an_untuned_problem_gives_nearest_and_command(run: Run, toy: str) -> None:
    keep(toy_problem(512, "float64"), choice("numpy", 1e-3))
    shown = run("show", "toy_scale", "--shape", 1024, "--dtype", "float32", "--explain")
    assert "predicted" in shown.out
    assert "dtype: float64 -> float32" in shown.flat
    assert "dim N: 512 -> 1024" in shown.flat
    command = f"  autotune tune toy_scale --shape N=1024 --dtype float32 --plugin {toy}\n"
    assert command in shown.out
    assert shown.err == ""


def test_explain_wants_one_problem(run: Run, toy: str) -> None:
    for size in (512, 1024):
        keep(toy_problem(size), choice("numpy", 1e-3))
    shown = run("show", "toy_scale", "--explain")
    assert shown.code == 2
    assert "--shape" in shown.err
    assert run("show", "--explain").code == 2


def test_an_operation_whose_plugin_is_absent_is_still_listed(run: Run, toy: str) -> None:
    policy = keep(toy_problem(), choice("numpy", 1e-3))
    key = replace(policy.problem, operation="gone")
    with open_tuning_db() as store:
        store.put_policy(replace(policy, problem=key).to_row())
    shown = run("show", "gone")
    assert shown.code == 0
    assert "not registered" in shown.out
    assert run("show", "gne").code == 2
    assert "did you mean 'gone'" in run("show", "gne").err


def test_a_damaged_database_is_one_warning_and_an_empty_list(run: Run, private_home: Path) -> None:
    private_home.mkdir()
    (private_home / "tuning.db").write_text("not a database")
    shown = run("show", "--json")
    assert shown.code == 0
    assert shown.document == []
    assert shown.err.count("autotune:") == 1
    assert "tuning.db" in shown.err
    assert (private_home / "tuning.db").read_text() == "not a database"


def test_filters_by_shape_dtype_flag_and_mode(run: Run, toy: str) -> None:
    keep(toy_problem(512), choice("numpy", 1e-3))
    keep(toy_problem(1024), choice("numpy", 1e-3), mode="hot")
    keep(toy_problem(1024, "float64"), choice("numpy", 1e-3))
    keep(toy_problem(1024, reverse=True), choice("flipped", 1e-3))

    def count(*words: object) -> int:
        return len(run("show", *words, "--json").document)

    assert count() == 4
    assert count("toy_scale", "--shape", 1024) == 3
    assert count("toy_scale", "--shape", 1024, "--set", "reverse=true") == 1
    assert count("--mode", "hot") == 1
    assert count("--dtype", "float64") == 1
    assert run("show", "--mode", "warm").code == 2


def test_nothing_is_advised_where_no_variant_takes_the_dtype(run: Run, toy: str) -> None:
    told = run("show", "decode", "--shape", "1x1x64x16", "--dtype", "bfloat16", "--explain")
    assert "to measure it" not in told.flat
    assert "no variant" in told.flat
    every = run("show", "attention", "--shape", "1x1x64x16")  # on a CPU no 16-bit variants
    assert [line.split()[-1] for line in every.out.splitlines()[2:]] == ["float32", "float64"]
    none = run("show", "attention", "--shape", "1x1x64x16", "--dtype", "float16")
    assert "--dtype float16" not in none.flat
    assert "No variant of attention is made for float16 on a CPU" in none.flat
