"""What machine this is, as far as numbers depend on it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

#: The instruction sets that change float or integer kernels; the rest of /proc/cpuinfo's flags do not matter here.
X86 = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")
ISA = (*X86, "asimd", "asimddp", "i8mm", "sve")


@lru_cache(maxsize=1)
def host() -> Mapping[str, str]:
    """Architecture, instruction sets, number of usable cores, Python version."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.partition(":")[2].split())
                break
    return {
        "machine": platform.machine(),
        "isa": "+".join(name for name in ISA if name in flags) or "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
