"""Which silicon this is, from /proc/cpuinfo as x86, ARM, POWER, s390 and IA-64 kernels write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.device.sysfs import read_text

# Instruction sets that decide which code numba and BLAS run. A fixed list, so that a newer kernel
# which merely names more flags does not make the same machine look like another one.
VECTOR_FLAGS = frozenset(
    {"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"}
    | {"avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"}
    | {"neon", "asimd", "asimdhp", "sve", "sve2", "altivec", "vsx", "vx"}
)

_VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "hygon",
    "CentaurHauls": "zhaoxin",
    "0x41": "arm",
    "0x42": "broadcom",
    "0x43": "cavium",
    "0x46": "fujitsu",
    "0x48": "hisilicon",
    "0x4e": "nvidia",
    "0x50": "apm",
    "0x51": "qualcomm",
    "0x53": "samsung",
    "0x61": "apple",
    "0x6d": "microsoft",
    "0xc0": "ampere",
    "IBM/S390": "ibm",
}


@dataclass(frozen=True, slots=True)
class Silicon:
    """What the chip says of itself. `model_name` is marketing: shown, never part of a key.

    Fields are strings because ISAs disagree on what they are: numbers on x86, part numbers on ARM
    (`0xd0c`, several joined by `+` when the cores differ), `003f 0201` on POWER.
    """

    vendor: str = "unknown"
    family: str = ""
    model: str = ""
    stepping: str = ""
    model_name: str = ""
    vector_flags: tuple[str, ...] = ()


def read_processors(root: Path) -> tuple[Mapping[str, str], ...]:
    """/proc/cpuinfo as one mapping a block, keys lower-case; the first value of a key counts."""
    blocks: list[dict[str, str]] = []
    for text in re.split(r"\n\s*\n", read_text(root / "proc/cpuinfo") or ""):
        block: dict[str, str] = {}
        for line in text.splitlines():
            key, colon, value = line.partition(":")
            if colon:
                # ARM's v7 kernels open with `Processor : <name>` above `processor : 0`.
                name = "model name" if key.startswith("Processor") else key.strip().lower()
                block.setdefault(name, value.strip())
        if block:
            blocks.append(block)
    return tuple(blocks)


def read_silicon(processors: Iterable[Mapping[str, str]], cpus: Iterable[int] = ()) -> Silicon:
    """The silicon of `cpus` (all when none given or known), from the blocks of /proc/cpuinfo."""
    blocks = tuple(processors)
    wanted = {str(cpu) for cpu in cpus}
    chosen = [b for b in blocks if b.get("processor") in wanted] or list(blocks)
    shared = [b for b in blocks if "processor" not in b]

    def joined(*keys: str) -> str:
        found = [b[k] for b in (*chosen, *shared) for k in keys if b.get(k)]
        return "+".join(sorted(set(found)))

    pvr = re.search(r"pvr ([0-9a-f]+) ([0-9a-f]+)", joined("revision"))
    if pvr:  # POWER: processor version and revision
        vendor, family, model, stepping = "ibm", "power", pvr[1], pvr[2]
    elif implementer := joined("cpu implementer"):
        vendor = _VENDORS.get(implementer, f"arm-{implementer}")
        family = joined("cpu architecture")
        model, stepping = joined("cpu part"), f"{joined('cpu variant')}p{joined('cpu revision')}"
    elif machine := re.search(r"machine = (\w+)", " ".join(joined_values(blocks))):
        vendor, family, model, stepping = "ibm", "s390", machine[1], ""
    else:
        raw = joined("vendor_id", "vendor", "mvendorid")
        vendor = _VENDORS.get(raw, raw.lower().replace(" ", "-") or "unknown")
        family, model = joined("cpu family", "family", "isa"), joined("model", "marchid")
        stepping = joined("stepping", "revision", "mimpid")
    flags = set(f"{joined('flags')} {joined('features')}".replace("+", " ").split())
    return Silicon(
        vendor=vendor,
        family=family,
        model=model,
        stepping=stepping,
        model_name=" ".join(joined("model name", "cpu", "cpu model").split()),
        vector_flags=tuple(sorted(flags & VECTOR_FLAGS)),
    )


def joined_values(blocks: Iterable[Mapping[str, str]]) -> list[str]:
    """Every `key = value` text of the blocks, for kernels that put facts inside values."""
    return [value for block in blocks for value in block.values()]
