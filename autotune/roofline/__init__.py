"""Ceilings: how fast a device moves and computes at best, measured once and kept."""

from autotune.roofline.ceilings import Ceilings, rates_from
from autotune.roofline.kept import ceilings_of, device_rates

__all__ = ["Ceilings", "ceilings_of", "device_rates", "rates_from"]
