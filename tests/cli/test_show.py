"""`autotune show`: what is listed, marked, explained; and that JSON is JSON."""

from __future__ import annotations
