"""The measuring process: started fresh, given jobs, killed when it hangs."""

from autotune.worker.client import Worker, WorkerError
from autotune.worker.protocol import Job, Mode, Outcome, RaceJob, RaceOutcome, Status

__all__ = ["Job", "Mode", "Outcome", "RaceJob", "RaceOutcome", "Status", "Worker", "WorkerError"]
