"""Progress of a campaign on stderr: two moving lines in a terminal, else a line per problem."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from autotune import units
from autotune.campaign.events import (
    CampaignEnded,
    CampaignResult,
    CampaignStarted,
    Event,
    ProblemEnded,
    ProblemResult,
    ProblemStarted,
    RaceStarted,
    TrialEnded,
    TrialStarted,
    Waiting,
)
from autotune.spelling import candidate_text, short_problem

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


@dataclass(slots=True)
class Progress:
    """Listens to a campaign; `result` is its result once it has ended, also a bad one.

    It draws only when something happened: a thread that redraws would take CPU time from what is
    being measured.
    """

    result: CampaignResult | None = None
    _finished: int = 0
    _problems: int = 0
    _now: ProblemStarted | None = None
    _last: TrialEnded | None = None
    _doing: str = ""
    _console: Console | None = None
    _live: Live | None = None

    def __enter__(self) -> Progress:
        from rich.console import Console

        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_drawing()

    def __call__(self, event: Event) -> None:
        """Take an event in and draw what changed."""
        if isinstance(event, CampaignStarted):
            self._problems = event.problems
            amount = units.number(event.problems, "problem")
            self._line(f"tuning {amount} on {event.label}, about {units.duration(event.budget)}")
        elif isinstance(event, Waiting):
            self._line(event.message)
        elif isinstance(event, ProblemStarted):
            self._now, self._last, self._doing = event, None, "starting"
            self._start_drawing()
        elif isinstance(event, TrialStarted):
            self._doing = (
                f"measuring {candidate_text(event.candidate.variant, event.candidate.config)}"
            )
        elif isinstance(event, TrialEnded):
            self._last = event
        elif isinstance(event, RaceStarted):
            self._doing = f"final race of {len(event.entrants)}"
        elif isinstance(event, ProblemEnded):
            self._finished += 1
            self._stop_drawing()
            self._line(ended_line(event.result, self._finished, self._problems))
        elif isinstance(event, CampaignEnded):
            self.result = event.result
        self._draw()

    def _line(self, text: str) -> None:
        if self._console is not None:
            self._console.print(text, soft_wrap=True)

    def _start_drawing(self) -> None:
        from rich.live import Live

        if self._console is not None and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def _stop_drawing(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        if self._live is None or self._now is None:
            return
        from rich.console import Group
        from rich.text import Text

        lines = status_lines(self._now, self._last, self._doing, self._problems)
        shown = (Text(line, no_wrap=True, overflow="ellipsis") for line in lines)
        self._live.update(Group(*shown), refresh=True)


def status_lines(
    now: ProblemStarted, last: TrialEnded | None, doing: str, problems: int
) -> tuple[str, str]:
    """The two moving lines: the problem with its bar and time left, and how it stands."""
    left = last.left if last else now.budget
    done = 1 - left / now.budget if now.budget > 0 else 1.0
    title = f"[{now.index + 1}/{problems}] {short_problem(now.problem)}"
    first = f"{title}  {_bar(done)}  {units.duration(max(left, 0.0))} left"
    counts: Mapping[Any, int] = last.counts if last else {}
    parts = [f"{sum(counts.values())} of {now.candidates} tried"]
    failed = sum(n for s, n in counts.items() if s not in ("ok", "dropped", "disturbed", "wrong"))
    for amount, word in (
        (counts.get("dropped", 0), "dropped"),
        (counts.get("wrong", 0), "wrong"),
        (failed, "failed"),
    ):
        parts += [f"{amount} {word}"] if amount else []
    best = ""
    if last is not None and last.best is not None:
        ahead = f", {units.lead(last.lead)} ahead" if last.lead is not None else ""
        best = f"; best {last.best.variant} {units.seconds(last.best_seconds)}{ahead}"
    return first, f"  {', '.join(parts)}{best}; {doing}"


def _bar(share: float, width: int = 16) -> str:
    full = round(min(max(share, 0.0), 1.0) * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def ended_line(result: ProblemResult, number: int, problems: int) -> str:
    """One line for a problem that is done."""
    title = f"[{number}/{problems}] {short_problem(result.problem)}:"
    if result.policy is None:
        return f"{title} nothing could be measured; {result.summary()}"
    winner, verdict = result.policy.winner, result.policy.verdict
    ahead = f", {units.lead(verdict.lead)} ahead" if verdict.kind == "clear" else ""
    time = units.seconds(winner.seconds)
    return f"{title} {winner.variant} {time}{ahead}; {result.summary()}"
