"""Every CUDA variant, once on each of some small cases, under NVIDIA's compute-sanitizer.

    python tests/gpu/sanitize.py [memcheck] [racecheck] [--variants cuda_dmma,cuda_mma]
                                 [--part 2/8]

Prints what the tool says and ends with its verdict (0: clean). Arrays come straight from the
driver, not from a pool, so that memcheck sees where each of them ends.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

TOOLS = ("memcheck", "racecheck")
_FOUND = 7  # the exit code asked of compute-sanitizer where it finds something
_USUAL = Path("/usr/local/cuda/bin/compute-sanitizer")


def sanitizer() -> str | None:
    """Where compute-sanitizer is, or None."""
    return shutil.which("compute-sanitizer") or (str(_USUAL) if _USUAL.exists() else None)


def command(tool: str, prefixes: tuple[str, ...], part: tuple[int, int] = (1, 1)) -> list[str]:
    """The command line that runs the variants, or the first of so many parts, inside of a tool."""
    found = sanitizer()
    assert found is not None
    options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--print-limit", "20"]
    what = [f"--variants={','.join(prefixes)}", f"--part={part[0]}/{part[1]}"]
    return [found, *options, sys.executable, __file__, "--inside", *what]


def run_variants(prefixes: tuple[str, ...], part: tuple[int, int]) -> int:
    """Run each variant once on each case, of all runs the first of so many parts, say; how many."""
    import cupy
    from contract import Bound, Case, candidates

    from autotune.cuda.memory import DeviceMemory
    from autotune.device import find_device

    cupy.cuda.set_allocator(None)
    device, memory, count = find_device("cuda"), DeviceMemory(), 0
    cases = (
        Case.of((1, 2, 1, 70, 91, 24), causal=True),
        Case.of((1, 1, 1, 65, 65, 64)),
        Case.of((1, 2, 1, 300, 700, 64), causal=True),  # every place of a ring is filled again
        Case((("B", 1), ("H", 4), ("Hkv", 2), ("N", 203), ("D", 24))),
        Case((("B", 2), ("H", 1), ("Hkv", 1), ("N", 130), ("D", 64))),
        Case((("N", 70), ("D", 64))),
        Case((("N", 70), ("D", 24), ("F", 40)), residual=True),
        Case((("N", 130), ("D", 64), ("F", 72))),
        Case((("B", 2), ("Hkv", 3), ("N", 5), ("D", 7))),
    )
    number, parts = part
    for candidate in islice(candidates(cases, prefixes), number - 1, None, parts):
        config = candidate.config(device)
        if config is not None:
            Bound(candidate, config, memory)()
            cupy.cuda.runtime.deviceSynchronize()
            print(candidate, flush=True)
            count += 1
    return count


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; 2/8 is the second of eight.")
    return int(found[1]), int(found[2])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=" or ".join(TOOLS))
    parser.add_argument("--variants", default="cuda_", help="those whose names begin so: a,b")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="I/N", help="2/8, say")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    prefixes = tuple(options.variants.split(","))
    if unknown := set(options.tools) - set(TOOLS):
        parser.error(f"no tool {', '.join(sorted(unknown))}; there is {' and '.join(TOOLS)}.")
    if options.inside:
        print(run_variants(prefixes, options.part), "runs of variants")
        return 0
    if sanitizer() is None:
        print("compute-sanitizer is not on this machine; it comes with the CUDA toolkit.")
        return 2
    worst = 0
    for tool in options.tools or TOOLS:
        print(f"== {tool}", flush=True)
        worst = max(
            worst, subprocess.run(command(tool, prefixes, options.part), check=False).returncode
        )
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
