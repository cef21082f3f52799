"""Every error the project raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AutotuneError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class UserError(AutotuneError):
    """A mistake in what was asked for; the message names the thing and the remedy."""

    exit_code = 2


class PluginError(UserError):
    """A plugin failed while it was imported."""


class UnknownNameError(UserError):
    """An operation, variant, dim, flag, dtype or plan key that does not exist."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names, said = sorted(known), str(name).lower()
        close = difflib.get_close_matches(said, [n.lower() for n in names], n=1, cutoff=0.5)
        spelled = [n for n in names if close and n.lower() == close[0]]
        hint = (
            f"did you mean {spelled[0]!r}?" if spelled else f"known: {', '.join(names) or 'none'}."
        )
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.kind, self.name, self.suggestion = kind, name, spelled[0] if spelled else None


class DeviceNotFoundError(UserError):
    """A device that is not on this machine."""


class ShapeError(UserError, ValueError):
    """Shapes that do not fit the operation or each other; the message names the dims."""


class DeclarationError(UserError, ValueError):
    """An operation or variant whose declaration contradicts itself."""


class CapturingError(UserError):
    """What cannot be done while a CUDA graph is captured."""


class UnavailableError(AutotuneError, ValueError):
    """What this process cannot give a candidate, and another may: threads, CPUs."""


class LaunchError(AutotuneError):
    """A kernel that cannot be loaded or launched; one line."""


class DeviceLostError(AutotuneError):
    """An error after which CUDA runs nothing more in this process, whoever caused it."""


class ConstraintError(UserError):
    """No admissible candidate satisfies the constraints; lists what came closest."""


class NoPolicyError(UserError, LookupError):
    """`strict=True` and nothing tuned applies to the problem."""


class StoreUnavailableError(AutotuneError):
    """The tuning database cannot be used for what was asked."""


class CampaignError(AutotuneError):
    """A campaign in which no candidate could be measured; nothing is stored as winner."""

    exit_code = 3
