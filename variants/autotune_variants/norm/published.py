"""What the study counts for the normalisation: elements moved, forward and backward together."""

from __future__ import annotations

from autotune import Published

SOURCE = "HAL 05734881"
MOVED = "4*N*D"

BACKWARD = (Published("forward and backward", SOURCE, moved=MOVED, without="weights"),)
