"""Hardware counters of a candidate on a GPU, read by Nsight Compute."""

from autotune.profile.counters import (
    KernelCounters,
    NoCountersError,
    Profile,
    ProfileError,
    read_counters,
)
from autotune.profile.nsight import needs_counters, profile

__all__ = [
    "KernelCounters",
    "NoCountersError",
    "Profile",
    "ProfileError",
    "needs_counters",
    "profile",
    "read_counters",
]
