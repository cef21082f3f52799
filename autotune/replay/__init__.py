"""Searching recordings: what was measured once answers in place of a device."""

from autotune.replay.read import read_recordings
from autotune.replay.recording import Recording
from autotune.replay.run import Outcome, Replayed, replay

__all__ = ["Outcome", "Recording", "Replayed", "read_recordings", "replay"]
