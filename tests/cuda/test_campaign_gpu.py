"""A whole campaign on a fake GPU: real compilations in processes of their own, fake launches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measuring_bench import FakeGpu

from autotune.campaign import Campaign, CampaignInterrupted, CampaignResult, Settings
from autotune.campaign.events import ProblemResult, TrialEnded
from autotune.cuda import nvrtc, versions
from autotune.errors import AutotuneError, UserError
from autotune.model import Problem
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.worker.gpu import GpuWorker
from autotune_tuning_db import Store, open_store

HERE = Path(__file__).parent
PLUGIN = HERE.parent / "gpu" / "gpu_plugin.py"


@pytest.fixture
def store(private_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    try:
        version = nvrtc.version()
    except AutotuneError as error:
        pytest.skip(str(error))
    load_file(PLUGIN)
    loaded = {"cupy": "14.2.0", "nvrtc": version, "cuda": "13.0", "driver": versions.driver()}
    monkeypatch.setattr(versions, "cuda_versions", lambda: loaded)
    with open_store(tmp_path / "tuning.db") as opened:
        yield opened


def worker(device: Any) -> GpuWorker:
    return GpuWorker(device, plugin_files=[str(HERE / "fake_gpu_plugin.py")], processes=2)


def campaign(store: Store, *sizes: int, **settings: Any) -> Campaign:
    operation = registry.operation("gpu_scale")
    given = {"budget": 3.0, "trials": 10, **settings}
    listener = given.pop("progress", None)
    return Campaign(
        [Problem.of(operation, (size,)) for size in sizes],
        device=FakeGpu(),
        settings=Settings(**given),
        store=store,
        make_worker=worker,
        progress=listener,
    )


def statuses(result: ProblemResult) -> dict[str, str]:
    return {failure.candidate.variant: failure.status for failure in result.failures}


def test_good_and_bad_candidates_of_two_problems(store: Store) -> None:
    found: CampaignResult = campaign(store, 4096, 65536).run()
    for result in found.results:
        assert result.policy is not None
        assert result.policy.winner.variant in ("honest", "wrong")
        failed = statuses(result)
        assert failed["illegal"] == "crashed"
        assert failed["trap"] == "crashed"
        assert failed["beyond"] == "wrong"
        assert failed["uncompilable"] == "failed"
        assert failed["greedy"] == "failed"
    reasons = "\n".join(found.results[0].reasons())
    assert "no_such_name" in reasons
    assert "ran out of device memory" in reasons
    assert "700" in reasons
    rows = [row for row in store.trials() if row.variant == "honest" and row.stage == "search"]
    assert all(row.toolchain["nvrtc"] == nvrtc.version() for row in rows)
    assert any((row.compile_seconds or 0.0) > 0.0 for row in rows)


def test_it_goes_on_where_it_was_interrupted(store: Store) -> None:
    ended: list[Any] = []

    def stop(event: Any) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.candidate)
            if len(ended) == 3:
                raise KeyboardInterrupt

    with pytest.raises(CampaignInterrupted, match="kept 3 measurements"):
        campaign(store, 4096, progress=stop).run()
    result = campaign(store, 4096).run().results[0]
    assert result.known == 3
    searched = [
        (row.variant, tuple(row.config.items())) for row in store.trials() if row.stage == "search"
    ]
    assert len(set(searched)) == len(searched)


def test_graphs_are_a_mode_of_their_own(store: Store) -> None:
    result = campaign(store, 4096, mode="graph").run().results[0]
    assert result.policy is not None
    assert result.policy.mode == "graph"
    assert {row.mode for row in store.trials()} == {"graph"}
    problem = result.problem.key
    assert store.trials(problem, FakeGpu().identity, mode="cold") == []


def test_a_cpu_has_no_graphs(store: Store) -> None:
    from autotune.device import local_cpu

    with pytest.raises(UserError, match="needs a GPU; a CPU has cold and hot"):
        Campaign(
            [Problem.of(registry.operation("gpu_scale"), (8,))],
            device=local_cpu(),
            settings=Settings(mode="graph"),
            store=store,
        )
