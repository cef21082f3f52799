"""What times are compared with: variants, earlier versions, exported results; and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from accept_bench import candidate, keep, problem

from autotune.accept import Place, baselines
from autotune.accept.baseline import Baseline, Missing, Stored
from autotune.accept.versions import current_source
from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.exchange import export_file
from autotune.model import Candidate

OLD, OLDER = "0123456789abcdef", "fedcba9876543210"
PLACE = Place(local_cpu(), "cold", {"numba": "0.2"}, label="new")


def find(name: str, variant: str = "numpy", *, served: bool = False, **options: Any) -> Baseline:
    config = {"repeats": 1} if variant == "thrice" else {}
    with baselines(name, PLACE, **options) as found:
        return found.find(problem(), candidate(variant, **config), served=served)


def seconds(found: Baseline) -> float:
    assert isinstance(found, Stored)
    return round(sum(found.samples) / len(found.samples), 6)


def missing(found: Baseline) -> str:
    assert isinstance(found, Missing)
    return found.reason


def test_a_variant_is_taken_with_its_fastest_config_that_was_measured() -> None:
    assert find("thrice") == candidate("thrice", repeats=1)
    keep(1e-3, "thrice", config={"repeats": 20})
    found = find("thrice")
    assert isinstance(found, Candidate)
    assert found.config == {"repeats": 20}


def test_times_of_another_mode_decide_only_where_there_are_none_of_this_one() -> None:
    keep(1e-3, "thrice", config={"repeats": 20}, mode="hot")
    assert find("thrice") == candidate("thrice", repeats=20)
    keep(5e-3, "thrice", config={"repeats": 1})
    assert find("thrice") == candidate("thrice", repeats=1)


def test_a_variant_that_cannot_run_one_problem_says_so_there_and_the_rest_goes_on() -> None:
    with baselines("absent", PLACE) as found:
        reason = missing(found.find(problem(), candidate("numpy"), served=False))
    assert reason.startswith("absent cannot run this on ")
    assert "no unicorn" in reason


def test_previous_is_the_source_that_was_measured_last_before_this_one() -> None:
    keep(1e-3, fingerprint=OLDER)
    keep(2e-3, fingerprint=OLD)
    keep(3e-3)
    keep(4e-3, "thrice", fingerprint="a" * 16)
    assert seconds(find("previous")) == 2e-3


def test_every_label_that_a_source_ever_had_finds_it() -> None:
    keep(1e-3, label="c1")
    keep(1e-3, label="c2")
    assert seconds(find("c1")) == seconds(find("c2")) == 1e-3


def test_a_label_given_on_another_problem_finds_the_source_here() -> None:
    keep(1e-3, fingerprint=OLD)
    keep(2e-3, fingerprint=OLD, label="v1", problem=problem(64).key)
    assert seconds(find("v1")) == 1e-3


def test_of_sources_with_one_label_it_is_the_latest_that_is_not_the_present_one() -> None:
    keep(1e-3, fingerprint=OLDER, label="main")
    keep(2e-3, fingerprint=OLD, label="main")
    keep(3e-3, label="main")
    keep(4e-3, fingerprint=OLDER)
    assert seconds(find("main")) == 2e-3
    failed = {"status": "failed", "samples": (), "median": None, "low": None, "high": None}
    keep(5e-3, fingerprint="a" * 16, label="main", **failed)
    assert seconds(find("main")) == 2e-3
    assert seconds(find(current_source(problem(), "numpy"))) == 3e-3


def test_the_present_source_is_the_baseline_of_a_label_that_no_other_has() -> None:
    keep(3e-3, label="main")
    assert seconds(find("main")) == 3e-3


@pytest.mark.parametrize("name", ["v1.0", "fedcba98"])
def test_a_version_goes_by_its_label_or_the_start_of_its_fingerprint(name: str) -> None:
    keep(1e-3, fingerprint=OLDER, label="v1.0")
    keep(2e-3, fingerprint=OLD, label="v1.1")
    found = find(name)
    assert seconds(found) == 1e-3
    assert isinstance(found, Stored)
    assert found.note == "numba 0.1 then, 0.2 now"


def test_the_same_config_is_preferred_and_another_one_is_said() -> None:
    keep(1e-3, "thrice", fingerprint=OLD, config={"repeats": 20})
    other = find("previous", "thrice")
    assert isinstance(other, Stored)
    assert "the baseline is thrice [repeats=20]" in other.note
    keep(5e-3, "thrice", fingerprint=OLD, config={"repeats": 1})
    assert seconds(find("previous", "thrice")) == 5e-3


def test_where_a_trial_has_too_few_samples_those_before_it_of_the_same_source_count_too() -> None:
    few = {"fingerprint": OLD, "samples": (2e-3,) * 5}
    keep(1e-3, fingerprint=OLDER)
    keep(4e-3, **few | {"toolchain": {"numba": "0.0"}})
    for _ in range(3):
        keep(2e-3, **few)
    found = find("previous")
    assert isinstance(found, Stored)
    assert found.samples == (2e-3,) * 10
    keep(3e-3, fingerprint=OLD)
    assert seconds(find("previous")) == 3e-3  # enough by itself


def test_failures_are_no_baseline_and_a_version_of_another_problem_is_none() -> None:
    failed = {"status": "failed", "samples": (), "median": None, "low": None, "high": None}
    keep(1e-3, fingerprint=OLD, label="v1", **failed)
    assert missing(find("previous")).startswith("there is no earlier version of numpy")
    assert missing(find("v1")) == "numpy v1 has no measurement of this problem"
    keep(1e-3, fingerprint=OLDER, label="v0", problem=problem(64).key)
    assert missing(find("v0")) == "numpy v0 has no measurement of this problem"


def test_the_label_that_is_given_now_may_be_one_that_nothing_has_yet() -> None:
    assert missing(find("new")) == "nothing had the label new before"


def test_a_name_that_is_nothing_says_what_could_be_named() -> None:
    with pytest.raises(UserError, match="unknown baseline 'numpi'; name a variant of toy_sum"):
        find("numpi")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"device": "cpu-other-1"}, f"device cpu-other-1 (here {local_cpu().identity})"),
        ({"mode": "hot"}, "mode hot (here cold)"),
    ],
)
def test_another_device_or_mode_is_refused_unless_forced(
    changes: dict[str, str], told: str
) -> None:
    keep(1e-3, fingerprint=OLD, **changes)
    with pytest.raises(UserError, match="--force") as caught:
        find("previous")
    assert told in str(caught.value)
    found = find("previous", force=True)
    assert isinstance(found, Stored)
    assert told in found.note
    keep(2e-3, fingerprint=OLD)
    assert seconds(find("previous")) == 2e-3


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export of two variants; the store is then another, empty one."""
    keep(1e-3)
    keep(2e-3, "thrice", config={"repeats": 1})
    file = tmp_path / "baseline.json"
    export_file(file)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "second-home"))
    return file


def test_a_file_gives_the_same_variant_and_changes_no_store(exported: Path) -> None:
    assert seconds(find(str(exported))) == 1e-3
    assert seconds(find(str(exported), "thrice")) == 2e-3
    assert missing(find(str(exported), "clipped")) == (
        "baseline.json has no measurement of this problem"
    )
    assert not (exported.parent / "second-home").exists()


def test_what_a_profiler_timed_is_no_baseline_of_a_file(tmp_path: Path) -> None:
    keep(1e-3)
    keep(9e-3, stage="profile", samples=(9e-3,))
    export_file(tmp_path / "baseline.json")
    assert seconds(find(str(tmp_path / "baseline.json"))) == 1e-3


def test_what_a_file_has_and_cannot_be_read_is_told(exported: Path) -> None:
    text = exported.read_text()
    document = json.loads(text)
    for trial in document["trials"]:
        trial["samples"] = [-1.0] * len(trial["samples"])
    exported.write_text(json.dumps(document))
    assert "can be read; trials, entry 1: a time is not above zero" in missing(find(str(exported)))


def test_a_file_of_another_device_is_refused(exported: Path) -> None:
    exported.write_text(exported.read_text().replace(local_cpu().identity, "cpu-other-1"))
    with pytest.raises(UserError, match=r"baseline\.json was measured with device cpu-other-1"):
        find(str(exported))


def test_a_file_that_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(UserError, match="was not written by `autotune export`"):
        find(str(tmp_path / "b.json"))
    with pytest.raises(UserError, match="No such file"):
        find(str(tmp_path / "nowhere.json"))
