"""The evictor sweeps more than the last-level cache, all of it, and frees it."""

from __future__ import annotations

from autotune.device import local_cpu
from autotune.eviction import EXCESS, UNKNOWN_CACHE_BYTES, Evictor

MEBI = 1 << 20


def test_every_element_of_more_than_the_cache_is_rewritten() -> None:
    cpus = local_cpu().topology.allowed
    evictor = Evictor(8 * MEBI, cpus)
    try:
        assert evictor.nbytes == EXCESS * 8 * MEBI
        assert sum(part.nbytes for part in evictor._parts) > 8 * MEBI
        evictor.evict()
        evictor.evict()
        assert all((part == 3).all() for part in evictor._parts)
        assert len(evictor._parts) == len(cpus)
        assert evictor.sweeps == 2
        assert evictor.seconds > 0
        assert evictor.best_rate > 0
    finally:
        evictor.close()
    assert evictor._parts == []


def test_an_unknown_cache_is_taken_to_be_large() -> None:
    evictor = Evictor(0, local_cpu().topology.allowed[:1])
    evictor.close()
    assert evictor.nbytes > UNKNOWN_CACHE_BYTES
