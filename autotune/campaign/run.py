"""One problem of a campaign: from its candidates to its policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.campaign.beside import needs_comparison, time_beside
from autotune.campaign.events import (
    ProblemEnded,
    ProblemResult,
    ProblemStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.campaign.evidence import choice_of, gather, rank_of, seconds_of
from autotune.campaign.exclusion import Exclusion
from autotune.campaign.neighbours import winners_nearby
from autotune.campaign.proposals import Proposal, Proposals
from autotune.campaign.records import Circumstances, one_line
from autotune.campaign.session import Session
from autotune.campaign.verdict import decide, stored_policy
from autotune.estimate import estimate_seconds
from autotune.fingerprint import fingerprint
from autotune.model.problem import Candidate, Config, Problem
from autotune.registry import registry
from autotune.roofline import device_rates
from autotune.search import Search, Strategy, build_space
from autotune.worker.protocol import Job, Outcome, Status
from autotune_policies import Choice, Policy
from autotune_tuning_db import TrialRow

SETTLED = "nothing better was left to try"


class ProblemRun:
    """Measures one problem within its share of the budget, and settles its policy.

    `searching` tells what may be spent on once all defaults are measured, given what they took.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        *,
        index: int,
        share: float,
        searching: Callable[[float], float],
    ) -> None:
        self.session, self.problem, self.index, self.share = session, problem, index, share
        self._started = session.clock()
        settings = session.settings
        self.variants = {v.name: v for v in registry.variants(problem.operation)}
        self._rates = device_rates(session.device)
        self.space = build_space(
            problem,
            self.variants.values(),
            session.device,
            device_kind=session.device.kind,
            rates=self._rates,
        )
        names = [home.variant for home in self.space.variants]
        self._fingerprints = {name: fingerprint(self.variants[name]) for name in names}
        self._where = Circumstances(
            session.campaign, problem.key, session.device.identity, settings.mode
        )
        stored = session.store.trials(problem.key, session.device.identity, mode=settings.mode)
        self.evidence = gather(
            stored, self.space, self.variants, self._fingerprints, session.toolchain
        )
        self.search = Search(
            self.space,
            seed=settings.seed,
            seeds=winners_nearby(session, problem),
            strategy=Strategy(band=settings.band),
        )
        for candidate, row in self.evidence.rows.items():
            self.search.tell(candidate, rank_of(row))
        self._exclusion = Exclusion(problem, self.variants)
        self._known = len(self.evidence.rows)
        self._defaults = {home.candidate(home.default) for home in self.space.variants}
        self._unmeasured = self._defaults - self.evidence.rows.keys()
        self._searching = searching
        self._searched = 0.0
        self._fixed: float | None = None
        self._held: list[Candidate] = []
        self._proposals = Proposals(session.worker, self._asked, self._job)
        self._counts: Counter[Status] = Counter()
        self._measuring = 0.0
        self._stopped = SETTLED

    def run(self) -> ProblemResult:
        """Measure, race, choose; every trial is in the store before the next begins."""
        self.session.emit(
            ProblemStarted(
                self.problem,
                self.index,
                len(self.space),
                tuple(home.variant for home in self.space.variants),
                self.space.skipped,
                self._known,
                self.share,
            )
        )
        while (outdated := self.evidence.outdated()) and not self._over():
            self._measure(Proposal(outdated[0]))
        while self._one_more():
            pass
        result = self._settled()
        self.session.emit(ProblemEnded(result))
        return result

    def _one_more(self) -> bool:
        """Measure the next candidate; False when there is none."""
        begun = self.session.clock()
        proposal = self._next()
        if proposal is None:
            return False
        self._measure(proposal)
        if proposal.candidate not in self._unmeasured:
            self._searched += self.session.clock() - begun
            return True
        self._unmeasured.discard(proposal.candidate)
        if not self._unmeasured:
            used = self._used()
            self._fixed = used - self._searched
            self.share = used + self._searching(self._fixed)
            self._stopped = SETTLED
        return True

    def _next(self) -> Proposal | None:
        """The next candidate; past the budget only defaults that are still to be measured."""
        while self._exclusion.hopeless is None:
            if self._proposals.pending and self._over():
                self._held += self._proposals.keep(self._defaults.__contains__)
            proposal = self._proposals.next(self._patience)
            if proposal is not None or not self._proposals.pending:
                return proposal
        self._stopped = f"the problem cannot be prepared: {self._exclusion.hopeless}"
        return None

    def _patience(self) -> float | None:
        """How long to wait for candidates to be compiled: for defaults until they are."""
        if self._proposals.any(self._defaults.__contains__):
            return None
        return max(self._left() - self._reserve(), 0.0)

    def _asked(self) -> Candidate | None:
        """What the search proposes; past the budget nothing but defaults."""
        candidate = self._held.pop(0) if self._held else self.search.ask()
        if candidate is None or candidate in self._defaults or not self._over():
            return candidate
        self._held.append(candidate)
        return None

    def _over(self) -> bool:
        settings = self.session.settings
        if settings.trials is not None and self._counts.total() >= settings.trials:
            self._stopped = f"{settings.trials} trials were made"
            return True
        if self._left() <= self._reserve():
            self._stopped = "the time was up"
            return True
        return False

    def _left(self) -> float:
        return self.share - self._used()

    def _used(self) -> float:
        return self.session.clock() - self._started

    def _reserve(self, left: float = 0.0) -> float:
        settings = self.session.settings
        return settings.race_seconds(self.share, fixed=self._fixed or 0.0, left=left)

    @property
    def unsearched(self) -> float | None:
        """Seconds that were spent whatever the share; None: it had its defaults from before."""
        if self._fixed is None and not self._unmeasured:
            return None
        fixed = self._used() - self._searched if self._fixed is None else self._fixed
        return fixed + max(self._used() - max(self.share, fixed), 0.0)

    def _measure(self, proposal: Proposal) -> None:
        """One candidate, from the worker to the store, the search and the listener."""
        session, candidate = self.session, proposal.candidate
        session.emit(TrialStarted(candidate))
        job = self._job(candidate)
        why_not = self._exclusion.why_not(candidate)
        if why_not is not None:
            outcome = Outcome("unavailable", why_not)
        else:
            outcome = self._outcome(job, proposal.compiled)
        self._measuring += outcome.wall_seconds
        if outcome.toolchain:
            session.toolchain = self.evidence.toolchain = dict(outcome.toolchain)
        row = self._where.trial(
            job, outcome, self._fingerprints[candidate.variant], session.toolchain
        )
        row = self._marked(candidate, row)
        anchor = self.evidence.anchor()
        if anchor is not None and needs_comparison(row, anchor):
            row = self._beside(anchor, row, 0.5 * job.budget)
        session.store.add_trial(row)
        self.evidence.add(row)
        self._exclusion.learn(row)
        self.search.tell(candidate, rank_of(row))
        status: Status = row.status  # type: ignore[assignment]
        self._counts[status] += 1
        self._report(candidate, status, one_line(row.reason), seconds_of(row))

    def _marked(self, candidate: Candidate, row: TrialRow) -> TrialRow:
        """The trial with why the search proposed it: a transfer, say, or a neighbour."""
        origin = self.search.origin(candidate)
        if origin is None:
            return row
        return replace(row, circumstances={**row.circumstances, "proposed": origin})

    def _beside(self, anchor: Choice, row: TrialRow, seconds: float) -> TrialRow:
        """The trial of a disturbed candidate, with what it takes beside the anchor."""
        other = choice_of(row, self.variants[row.variant])
        found, outcome = time_beside(self.session, self.problem, anchor, other, seconds)
        self._measuring += outcome.wall_seconds
        for each in self._where.race([anchor, other], outcome, self.session.toolchain):
            self.session.store.add_trial(each)
        return row if found is None else found.onto(row)

    def _outcome(self, job: Job, compiled: Outcome | None) -> Outcome:
        """Measure a candidate, unless compiling it has failed already."""
        if compiled is None:
            return self.session.worker.measure(job)
        if compiled.status != "ok":
            return compiled
        outcome = self.session.worker.measure(job)
        both = (compiled.compile_seconds or 0.0) + (outcome.compile_seconds or 0.0)
        return replace(outcome, compile_seconds=both)

    def _job(self, candidate: Candidate) -> Job:
        settings = self.session.settings
        best, known = next(iter(self.evidence.choices()), None), self.evidence.reference()
        variant = self.variants[candidate.variant]
        expected = estimate_seconds(variant, self.problem, candidate.config, self._rates)
        return Job(
            problem=self.problem.key.text,
            variant=candidate.variant,
            config=dict(candidate.config),
            mode=settings.mode,
            seed=settings.seed,
            incumbent=best.seconds if best else None,
            reference=(known.variant, dict(known.config), known.seconds) if known else None,
            precision=settings.precision,
            budget=settings.trial_seconds(self.share),
            time_limit=settings.candidate_seconds(self.share, expected),
        )

    def _report(
        self, candidate: Candidate, status: Status, reason: str, seconds: float | None
    ) -> None:
        best, best_seconds, lead = self._standing()
        self.session.emit(
            TrialEnded(
                candidate,
                status,
                reason,
                seconds,
                best,
                best_seconds,
                lead,
                max(self._left(), 0.0),
                Counter(self._counts),
            )
        )

    def _standing(self) -> tuple[Candidate | None, float | None, float | None]:
        """The best candidate, its time, and how much slower the best other variant is."""
        choices = self.evidence.choices()
        if not choices:
            return None, None, None
        first = choices[0]
        rival = next((each for each in choices if each.variant != first.variant), None)
        lead = rival.seconds / first.seconds - 1.0 if rival else None
        best = Candidate(first.variant, Config(dict(first.config)))
        return best, seconds_of(self.evidence.rows[best]), lead

    def _settled(self) -> ProblemResult:
        policy = stored_policy(self.session, self.problem)
        renewed = not self._still_holds(policy)
        if renewed:
            before = self.session.clock()
            seconds = self._reserve(self._left())
            made = decide(self.session, self.problem, self.evidence, seconds=seconds)
            self._measuring += self.session.clock() - before
            renewed, policy = made is not None, made
        return ProblemResult(
            problem=self.problem,
            policy=policy,
            renewed=renewed,
            counts=Counter(self._counts),
            failures=self.evidence.failures(),
            skipped=self.space.skipped,
            known=self._known,
            candidates=len(self.space),
            stopped=self._stopped,
            seconds=self._used(),
            measuring_seconds=self._measuring,
        )

    def _still_holds(self, policy: Policy | None) -> bool:
        """Whether nothing was measured since the stored policy, and its sources are the same."""
        if policy is None or self._counts.total() or policy.origin != "tuned":
            return False
        current: Mapping[str, str] = self._fingerprints
        same = all(current.get(c.variant) == c.fingerprint for c in policy.variants)
        return same and dict(policy.toolchain) == dict(self.evidence.toolchain)
