"""`python -m autotune.device`: the extra of this package that this machine's GPUs need, if any."""

from __future__ import annotations

from autotune.device.driver import DriverReading, read_driver
from autotune.device.toolkit import fitting_extra


def needed_extra(driver: DriverReading) -> str:
    """The newest extra that all GPUs with one can use; "" without such a GPU."""
    extras = [fitting_extra(driver.cuda, gpu.limits["compute"]) for gpu in driver.gpus]
    return min(filter(None, extras), default="")


if __name__ == "__main__":
    print(needed_extra(read_driver()))
