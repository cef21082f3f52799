"""Hardware counters of a candidate on a GPU, read by Nsight Compute."""

from autotune.profile.counters import KernelCounters, Profile, ProfileError, read_counters
from autotune.profile.nsight import needs_counters, profile

__all__ = [
    "KernelCounters",
    "Profile",
    "ProfileError",
    "needs_counters",
    "profile",
    "read_counters",
]
