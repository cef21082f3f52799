"""What a thresholds file may say, and what a mistake in it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from accept_bench import problem

from autotune.accept import Limits, read_thresholds
from autotune.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def read(folder: Path, text: str) -> object:
    file = folder / "acceptance.toml"
    file.write_text(text)
    return read_thresholds(file)


def test_limits_hold_for_all_and_an_operation_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("""
        [correctness]
        gain = 1
        edge_shapes = false

        [memory]
        over_compulsory = 2.5

        [performance]
        slowdown = 0

        [operations.toy_sum.memory]
        over_predicted = 1.5

        [[problem]]
        operation = "toy_sum"
        shape = "M=4,N=9"
        """)
    found = read_thresholds(tmp_path / "a.toml")
    common = Limits(edge_shapes=False, gain=1.0, over_compulsory=2.5, slowdown=0.0)
    assert found.of("attention") == common
    assert found.of("toy_sum").over_predicted == 1.5
    assert found.of("toy_sum").over_compulsory == 2.5
    assert found.problems == (problem(),)


def test_the_example_can_be_read() -> None:
    from autotune.plugins import load_plugins

    load_plugins()
    found = read_thresholds(ROOT / "examples" / "acceptance.toml")
    assert found.problems
    assert found.common.over_compulsory is not None


MISTAKES = {
    "[performance\n": "not TOML",
    "[speed]\nslowdown = 0.1": "'speed'",
    "[performance]\nslow = 0.1": "unknown threshold of performance 'slow'; did you mean 'slowdown'",
    "[performance]\nslowdown = '5%'": "slowdown is '5%'; write a number of at least 0",
    "[performance]\nseconds = 0": "seconds is 0; write a number above 0",
    "[performance]\nseconds = inf": "seconds is inf",
    "[memory]\nover_compulsory = true": "over_compulsory is True",
    "[correctness]\nedge_shapes = 1": "write true or false",
    "memory = 3": "memory is 3, not a table",
    "[operations.toy_sun.memory]\nover_predicted = 2": "did you mean 'toy_sum'",
    "[operations.toy_sum.timing]\nslowdown = 0.1": "'timing'",
    "[operations.toy_sum]\nslowdown = 0.1": "'slowdown'",
    "[[problem]]\noperation = 'toy_sun'\nshape = '4x9'": "problem 1: unknown operation 'toy_sun'",
    "[problem]\noperation = 'toy_sum'": "write \\[\\[problem\\]\\]",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=MISTAKES[text]) as caught:
        read(tmp_path, text)
    assert "acceptance.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cannot read the thresholds .*nowhere\.toml: No such file"
    ):
        read_thresholds(tmp_path / "nowhere.toml")
