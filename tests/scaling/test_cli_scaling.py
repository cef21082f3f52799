"""`autotune scale` and `autotune threads` with the real measuring process."""

from __future__ import annotations

import pytest
from command_line import Run
from scaling_bench import PLUGIN, FakeWorker

from autotune import trials
from autotune.device import local_cpu


def test_sizes_are_measured_in_one_process_and_reported(run: Run) -> None:
    words = ("scale", "toy_cube", "--vary", "N=8:16", "--shape", "M=2", "--budget", "20s")
    ended = run(*words, "--variant", "plain", "--variant", "breaking", "--plugin", PLUGIN, "--json")
    assert ended.code == 0
    plain, breaking = ended.document["variants"]
    assert [point["size"] for point in plain["points"]] == [8, 16]
    assert all(point["seconds"] > 0 and point["samples"] for point in plain["points"])
    assert plain["steps"][0]["low"] <= plain["steps"][0]["exponent"] <= plain["steps"][0]["high"]
    assert plain["steps"][0]["flops_exponent"] == 2.0
    assert breaking["points"][1]["reason"] == "raised RuntimeError: too long"
    assert "N=16: plain" in ended.err


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """Answers in place of the measuring process."""
    worker = FakeWorker(lambda size, job: "failed" if job.variant == "breaking" else 1e-3)
    monkeypatch.setattr(trials, "worker_for", lambda device: worker)
    return worker


def test_threads_of_this_cpu(run: Run, fake: FakeWorker) -> None:
    words = ("threads", "toy_cube", "--shape", "2x8", "--variant", "threaded", "--budget", "0.2s")
    ended = run(*words, "--mode", "hot", "--plugin", PLUGIN)
    assert {job.mode for job in fake.jobs} == {"hot"}
    assert ended.code == 0, ended.err
    assert "best: " in ended.out
    most = max(local_cpu().thread_counts())
    assert f"all {most} thread" in ended.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["scale", "toy_cube", "--vary", "N=8", "--shape", "M=2"], "N=8 is one size"),
        (["scale", "toy_cub", "--vary", "N=8:16"], "did you mean 'toy_cube'"),
        (["scale", "toy_cube", "--vary", "N=8:16", "--shape", "M=2", "--variant", "plan"], "plain"),
        (["scale", "toy_cube", "--vary", "N=8:16", "--shape", "M=2", "--mode", "graph"], "a GPU"),
        (["scale", "toy_cube", "--vary", "N=8:16", "--shape", "M=2", "--budget", "x"], "60s"),
        (["scale", "toy_cube"], "Missing option '--vary'"),
        (["threads", "toy_cube", "--shape", "2x8", "--variant", "plain"], "no tunable `threads`"),
        (["threads", "toy_cube"], "give the sizes of toy_cube"),
    ],
)
def test_a_mistake_costs_one_sentence(run: Run, words: list[str], told: str) -> None:
    ended = run(*words, "--plugin", PLUGIN)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.usefixtures("fake")
def test_when_nothing_can_be_measured_the_code_is_3(run: Run) -> None:
    words = ("--vary", "N=16:32", "--shape", "M=2", "--variant", "breaking", "--plugin", PLUGIN)
    ended = run("scale", "toy_cube", *words)
    assert (ended.code, ended.out) == (3, "")
    assert "no variant of toy_cube could be measured at any size" in ended.err
    assert "breaking at 16: failed, it did not work." in ended.err


def test_when_no_thread_count_can_be_measured_the_first_reason_is_told(
    run: Run, fake: FakeWorker
) -> None:
    fake.seconds = lambda size, job: "failed"
    words = ("--shape", "2x8", "--variant", "threaded", "--plugin", PLUGIN)
    ended = run("threads", "toy_cube", *words)
    assert (ended.code, ended.out) == (3, "")
    told = "threaded could not be measured with any thread count: 1 thread placed free: failed, it"
    assert f"{told} did not work." in ended.err


def test_a_jump_from_a_disturbed_time_is_marked(run: Run, fake: FakeWorker) -> None:
    words = ("--vary", "N=8:16", "--shape", "M=2", "--variant", "plain", "--plugin", PLUGIN)
    fake.seconds = lambda size, job: 1e-3 * size**4
    sure = run("scale", "toy_cube", *words)
    assert "jump: plain takes 16.0x as long" in sure.out
    assert "disturbed: measure again" not in sure.out
    fake.disturbed = True
    doubtful = run("scale", "toy_cube", *words)
    assert " 4.0x~\n" in doubtful.out
    assert "jump~: plain takes 16.0x as long" in doubtful.out
    assert "disturbed: measure again when the machine is quiet." in doubtful.out


def test_a_named_variant_that_cannot_run_is_refused_with_the_reason(run: Run) -> None:
    words = ("--vary", "N=32:64", "--shape", "M=2", "--plugin", PLUGIN)
    ended = run("scale", "toy_cube", *words, "--variant", "small")
    assert (ended.code, ended.out) == (2, "")
    assert "small cannot run toy_cube" in ended.err
    assert "needs N <= 16." in ended.err
    ended = run(
        *("scale", "decode", "--vary", "N=64:128", "--shape", "B=1,H=1,D=64"),
        *("--device", "cpu", "--variant", "cuda_split"),
    )
    assert ended.code == 2
    assert "runs on cuda, not on cpu" in ended.err


def test_ctrl_c_shows_what_was_measured(run: Run, fake: FakeWorker) -> None:
    words = ("scale", "toy_cube", "--shape", "M=2", "--variant", "plain", "--plugin", PLUGIN)
    fake.stopped = 3
    ended = run(*words, "--vary", "N=8:32", "--json")
    assert ended.code == 130
    assert "stopped by Ctrl-C; what was measured until then is shown and kept" in ended.err
    (plain,) = ended.document["variants"]
    assert [point["size"] for point in plain["points"]] == [8, 16]
    fake.stopped = 4
    ended = run(*words, "--vary", "N=8:32")
    assert (ended.code, ended.out) == (130, "")
    assert "stopped by Ctrl-C" in ended.err
