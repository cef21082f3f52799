"""From the name a person gives to the device it means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotune.device.base import Device
from autotune.errors import DeviceNotFoundError

_SILICON = {
    "a10": ("sm86-72sm-24gb",),
    "a100": ("sm80-108sm-40gb", "sm80-108sm-80gb"),
    "b200": ("sm100-148sm-180gb",),
    "h100": ("sm90-114sm-80gb", "sm90-132sm-80gb", "sm90-132sm-94gb"),
    "h20": ("sm90-78sm-96gb", "sm90-78sm-141gb"),
    "h200": ("sm90-132sm-141gb",),
    "l4": ("sm89-58sm-24gb",),
    "l40s": ("sm89-142sm-48gb",),
}
"""What well-known cards are made of, for drivers that call them something else."""


def choose(
    name: str, devices: Sequence[Device], *, no_gpu: str | None = None, usable: bool = True
) -> Device:
    """The device among `devices` that `name` means.

    A name is an address (`cuda:1`), a UUID, an identity or the start of one, a kind (the first
    of its kind), or a card's market name (`h200`), whose words have to be words of the label.
    Of equal devices the first usable one is taken. Raises DeviceNotFoundError when nothing is
    called so, when unlike devices are, or when what is called so cannot be used; `no_gpu` is why
    the machine has no GPU.
    """
    found = _called(name.strip().lower(), devices)
    if not found:
        raise DeviceNotFoundError(_nothing(name, devices, no_gpu))
    found = [device for device in found if device.unusable is None] or found
    if len({device.identity for device in found}) > 1:
        raise DeviceNotFoundError(
            f"{name!r} means several devices: {_listed(found)}; name one of these."
        )
    if usable and found[0].unusable is not None:
        raise DeviceNotFoundError(f"{described(found[0])} cannot be used: {found[0].unusable}.")
    return found[0]


def described(device: Device) -> str:
    """Label, address and identity."""
    address = f"{device.address}, " if device.address != device.kind else ""
    return f"{device.label} ({address}{device.identity})"


def called_so(name: str, label: str, identity: str) -> bool:
    """Whether a market name fits a GPU's label, or else what the card is known to be made of."""
    return _words_fit(name, label) or _silicon_fits(name, identity)


def _called(wanted: str, devices: Sequence[Device]) -> list[Device]:
    """By the first rule that finds any."""
    exact = [d for d in devices if wanted in (d.address, d.identity)]
    if exact:
        return exact
    of_kind = [d for d in devices if d.kind == wanted]
    if of_kind:
        return [d for d in of_kind if d.unusable is None][:1] or of_kind[:1]
    gpus = [d for d in devices if d.kind == "cuda"]
    if wanted.startswith(("gpu-", "mig-")):
        return [d for d in gpus if getattr(d, "uuid", "").lower().startswith(wanted)]
    if wanted.startswith(("cpu-", "cuda-")):
        return [d for d in devices if d.identity.startswith(wanted)]
    return [d for d in gpus if _words_fit(wanted, d.label)] or [
        d for d in gpus if _silicon_fits(wanted, d.identity)
    ]


def _words_fit(name: str, label: str) -> bool:
    """Whether the words of `name` are words of `label`, or several of them written as one.

    "h200" fits "NVIDIA-H200-SXM5-141GB" and "h20" does not; "rtx4090" fits "GeForce RTX 4090".
    """
    wanted, words = _words(name), _words(label)
    runs = {
        "".join(words[first:stop])
        for first in range(len(words))
        for stop in range(first + 1, len(words) + 1)
    }
    return bool(wanted) and all(word in runs for word in wanted)


def _silicon_fits(name: str, identity: str) -> bool:
    made = _SILICON.get("".join(_words(name)), ())
    return any(identity.startswith(f"cuda-{each}-") for each in made)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _nothing(name: str, devices: Sequence[Device], no_gpu: str | None) -> str:
    why = f": {no_gpu}" if no_gpu and not name.strip().lower().startswith("cpu") else ""
    return (
        f"no device {name!r} on this machine{why}; it has {_listed(devices)}: "
        f"name one of these, or leave --device out for the best."
    )


def _listed(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.address} ({device.identity})" for device in devices)
