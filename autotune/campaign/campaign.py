"""The campaign: problems measured one after the other on one device, within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path

from autotune.campaign.ahead import compile_needed, compile_openings
from autotune.campaign.budget import Shares, expected_seconds
from autotune.campaign.events import (
    CampaignEnded,
    CampaignResult,
    CampaignStarted,
    Listener,
    ProblemResult,
    Waiting,
    silent,
)
from autotune.campaign.run import ProblemRun
from autotune.campaign.session import Measurer, Session, Settings
from autotune.campaign.verdict import stored_policy
from autotune.device import Device, find_device
from autotune.errors import CampaignError, StoreUnavailableError, UserError
from autotune.explain import nothing_to_measure
from autotune.lock import device_lock
from autotune.model.problem import Problem
from autotune.modes import require_mode
from autotune.registry import registry
from autotune.store import device_row, open_tuning_db
from autotune_tuning_db import Store, StoreError

_NAMED = 8
_AHEAD = 8
"""Problems whose openings compile while one is measured, where the worker can do both."""


class CampaignInterrupted(KeyboardInterrupt):
    """Ctrl-C during a campaign; the message says what was kept and how to go on."""


def local_worker(device: Device) -> Measurer:
    """A worker process for the device, with the plugin files of this process."""
    from autotune.plugins import plugin_files
    from autotune.worker.client import Worker
    from autotune.worker.gpu import GpuWorker

    if device.kind == "cuda":
        return GpuWorker(device, plugin_files=plugin_files())
    return Worker(device, plugin_files=plugin_files())


class Campaign:
    """Tunes problems on one device.

    Every trial is committed to the store as it ends, and a later campaign over the same problems
    goes on where this one stopped, however it stopped. While it runs it holds the device's lock.

    Args:
        problems: what to tune; a problem that occurs twice is tuned once, one that no variant is
            made for is left out and told of. UserError where that leaves none.
        device: where; by default the best one of this machine.
        settings: budget, mode, seed and how a winner is declared.
        store: the tuning database, open or as a path; by default the one of the settings in force.
        progress: called with every event, in this thread.
        make_worker: what measures; by default a process of its own.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        device: Device | None = None,
        settings: Settings | None = None,
        store: Store | str | Path | None = None,
        progress: Listener | None = None,
        make_worker: Callable[[Device], Measurer] = local_worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not problems:
            raise UserError("there is no problem to tune; name an operation and a shape.")
        self.device = device or find_device()
        self.settings = settings or Settings()
        require_mode(self.settings.mode, self.device.kind)
        asked = {problem: nothing_to_measure(problem, self.device) for problem in problems}
        self.problems = tuple(problem for problem, none in asked.items() if none is None)
        self._left_out = tuple(dict.fromkeys(filter(None, asked.values())))
        if not self.problems:
            raise UserError(f"{'. '.join(self._left_out)}.")
        self._store = store
        self._emit = progress or silent
        self._make_worker = make_worker
        self._clock = clock
        self._kept = 0
        self._done: list[ProblemResult] = []

    def run(self) -> CampaignResult:
        """Measure every problem and store its policy.

        Raises:
            CampaignError: nothing could be measured for any problem; older policies stay.
            CampaignInterrupted: Ctrl-C; what was measured is kept.
            StoreUnavailableError: the tuning database cannot be used.
        """
        try:
            with self._opened() as store:
                return self._locked(store)
        except StoreError as error:
            raise StoreUnavailableError(str(error)) from error
        except CampaignInterrupted:
            raise
        except KeyboardInterrupt:
            raise CampaignInterrupted(self._kept_message()) from None

    def _opened(self) -> AbstractContextManager[Store]:
        """The store; one that was passed open stays open."""
        if self._store is None:
            return open_tuning_db()
        if isinstance(self._store, str | Path):
            from autotune_tuning_db import open_store

            return open_store(self._store)
        return nullcontext(self._store)

    def _locked(self, store: Store) -> CampaignResult:
        with (
            device_lock(
                self.device.lock_name,
                waiting=lambda text: self._emit(Waiting(text)),
                timeout=self.settings.patience,
            ),
            closing(self._make_worker(self.device)) as worker,
        ):
            session = self._session(store, worker)
            try:
                result = self._measure_all(session)
            except KeyboardInterrupt:
                stored = store.trials(campaign=session.campaign)
                self._kept = sum(row.stage == "search" for row in stored)
                raise
            store.end_campaign(session.campaign)
        self._emit(CampaignEnded(result))
        if len(result.empty) == len(result.results):
            problems = [each.problem for each in result.results]
            earlier = any(stored_policy(session, problem) for problem in problems)
            raise CampaignError(_nothing_measured(result, earlier))
        return result

    def _session(self, store: Store, worker: Measurer) -> Session:
        from autotune.fingerprint import toolchain

        device, settings = self.device, self.settings
        store.add_device(device_row(device))
        described = {
            "budget": settings.budget,
            "mode": settings.mode,
            "seed": settings.seed,
            "band": settings.band,
            "problems": [problem.key.text for problem in self.problems],
        }
        campaign = store.start_campaign(device.identity, described)
        return Session(
            device,
            worker,
            store,
            campaign,
            settings,
            self._clock,
            self._emit,
            toolchain(device.kind),
        )

    def _measure_all(self, session: Session) -> CampaignResult:
        started = self._clock()
        self._emit(
            CampaignStarted(
                self.device.identity, self.device.label, len(self.problems), self.settings.budget
            )
        )
        for sentence in self._left_out:
            self._emit(Waiting(sentence))
        compile_needed(session, self.problems)
        shares = Shares(
            [
                expected_seconds(problem, registry.variants(problem.operation), self.device)
                for problem in self.problems
            ]
        )

        def left() -> float:
            return self.settings.budget - (self._clock() - started)

        for index, problem in enumerate(self.problems):
            run = ProblemRun(
                session,
                problem,
                index=index,
                share=shares.share(index, left()),
                searching=partial(_searching, shares, index, left),
            )
            first = index + 1 if index == 0 else index + _AHEAD
            compile_openings(session, self.problems[first : index + _AHEAD + 1])
            self._done.append(run.run())
            if (unsearched := run.unsearched) is not None:
                shares.learn(index, unsearched)
        return CampaignResult(
            self.device.identity,
            self.settings.mode,
            tuple(self._done),
            self._clock() - started,
        )

    def _kept_message(self) -> str:
        done = len(self._done)
        return (
            f"interrupted; kept {self._kept} measurements and the policies of {done} of "
            f"{len(self.problems)} problems. Run the same command to go on from here."
        )


def _searching(shares: Shares, index: int, left: Callable[[], float], fixed: float) -> float:
    return shares.searching(index, left(), fixed)


def _nothing_measured(result: CampaignResult, earlier: bool) -> str:
    """The sentence and its reasons; `earlier` says whether any of them has a policy."""
    lines = [line for each in result.results for line in each.reasons()]
    shown = "\n".join(f"  {line}" for line in lines[:_NAMED])
    more = f"\n  and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    problems = ", ".join(str(each.problem) for each in result.results[:3])
    stays = " and an earlier policy stays in force" if earlier else ""
    reasons = f"\n{shown}{more}" if shown else ""
    return (
        f"no candidate could be measured for {problems}; nothing was stored as winner{stays}."
        f"{reasons}"
    )
