"""What a policy is and how one is resolved; see the README beside this package."""

from autotune_policies.build import Race, Rules, Subject, build_policy
from autotune_policies.intervals import Interval, median_interval, order_ranks
from autotune_policies.nearest import Near, nearest
from autotune_policies.policy import Choice, Policy, PolicyError, Verdict, row_problem
from autotune_policies.request import Constraints, Grade, Request, Resolution, Skipped
from autotune_policies.resolve import closest, grade, resolve
from autotune_policies.shipped import FORMAT as POLICY_FORMAT
from autotune_policies.shipped import load_shipped, write_shipped
from autotune_policies.snapshot import Snapshot, snapshot_of

__all__ = [
    "POLICY_FORMAT",
    "Choice",
    "Constraints",
    "Grade",
    "Interval",
    "Near",
    "Policy",
    "PolicyError",
    "Race",
    "Request",
    "Resolution",
    "Rules",
    "Skipped",
    "Snapshot",
    "Subject",
    "Verdict",
    "build_policy",
    "closest",
    "grade",
    "load_shipped",
    "median_interval",
    "nearest",
    "order_ranks",
    "resolve",
    "row_problem",
    "snapshot_of",
    "write_shipped",
]
