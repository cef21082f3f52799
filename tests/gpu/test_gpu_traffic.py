"""Traffic of the tiled variants on this machine's GPU, counted and predicted."""

from __future__ import annotations

from typing import Any

import pytest
from contract import Candidate, Case, candidates, config_or_skip
from test_gpu_tiled import TILED

from autotune import model
from autotune.model import predict
from autotune.profile import NoCountersError, profile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("compiled"),
    pytest.mark.xdist_group("counters"),  # one profiler at a time
]

LARGE = Case.of((8, 16, 16, 2048, 2048, 64))
"""Each array is 32 MiB and more in 16 bits, so that little is left in the L2 that was written."""


@pytest.mark.parametrize("candidate", list(candidates((LARGE,), TILED)), ids=str)
def test_bytes_are_within_half_of_what_is_predicted(candidate: Candidate, device: Any) -> None:
    config = config_or_skip(candidate, device)
    chosen = model.Candidate(candidate.variant, config)
    try:
        counted = profile(candidate.problem, chosen, device)
    except NoCountersError as error:
        pytest.skip(f"cannot read hardware counters: {error}")
    predicted = predict(candidate.declared, candidate.problem, config).bytes_moved
    ratio = (counted.bytes_read + counted.bytes_written) / predicted
    assert 1 / 1.5 < ratio < 1.5
