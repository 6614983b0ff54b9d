"""Start-up, comparison kernel, a whole check and a second gate, beside their targets and peers.

    python benchmarks/speed.py [--quick]

Every figure is the median of several runs with its spread (the machine's noise). A missed target exits 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MINILM = Path(__file__).resolve().parents[1] / "fixtures" / "minilm" / "candidate.toml"
MISSED: list[str] = []
#: What no cache can spare: the source is asked anew.
SOURCE = f"""
import sys
sys.path.insert(0, {str(MINILM.parent)!r})
import build, torch
torch.set_num_threads(1)
model = build.source()
with torch.inference_mode():
    for case in build.cases():
        model(*map(torch.from_numpy, case.inputs.values()))
"""


KERNEL = {"float32": 3.5, "float16": 1.0}  # GB/s of one core, the design's targets
#: As an installation is: modules are compiled once, not on every start.
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(call: Callable[[], object], repeat: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    taken = []
    for _ in range(repeat):
        start = clock()
        call()
        taken.append(clock() - start)
    return taken


def children() -> float:
    """CPU seconds of every process that was started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *words], check=False, capture_output=True, env=COMPILED)


def row(what: str, taken: list[float], target: float | None, unit: float = 1e3, name: str = "ms") -> None:
    middle, low, high = (f(taken) * unit for f in (statistics.median, min, max))
    goal = f"target {target * unit:g} {name}" if target else ""
    late = bool(target) and statistics.median(taken) > (target or 0)
    if late:
        MISSED.append(what)
    print(f"{what:52} {middle:9.1f} {name} ({low:.1f} to {high:.1f})  {goal}{'  MISSED' if late else ''}", flush=True)


def start_up() -> None:
    bare = seconds(command("-c", "pass"), 15)
    row("bare interpreter", bare, None)
    base = statistics.median(bare)
    # the interpreter's own start is not ours: targets are on top of it for an import, whole for a command
    imported = seconds(command("-c", "import verify"), 15)
    row("import verify, beyond the bare interpreter", [t - base for t in imported], 0.05)
    row("npu-verify --help, whole", seconds(command("-m", "verify.cli", "--help"), 15), 0.15)


def kernels() -> None:
    import torch

    from verify.metrics import difference

    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float16):
        wanted = rng.standard_normal(16 << 20, dtype=np.float32).astype(dtype)
        got = (wanted * np.float32(1 + 1e-3)).astype(dtype)
        size, both = 2 * wanted.nbytes / 1e9, (torch.from_numpy(wanted), torch.from_numpy(got))
        peers: dict[str, Callable[[], object]] = {
            "npu-verify, all metrics": lambda a=wanted, b=got: difference(a, b),  # type: ignore[misc]
            "numpy.testing.assert_allclose": lambda a=wanted, b=got: np.testing.assert_allclose(b, a, 1e-2, 1e-2),  # type: ignore[misc]
            "torch.testing.assert_close": lambda p=both: torch.testing.assert_close(p[1], p[0], rtol=1e-2, atol=1e-2),  # type: ignore[misc]
        }
        for name, call in peers.items():
            # CPU time: what one core does, whoever else is on this machine
            rates = [size / t for t in seconds(call, 5, time.process_time)]
            label, goal = f"{np.dtype(dtype).name}, {name}", ""
            if name.startswith("npu-verify"):
                goal = f"target {KERNEL[np.dtype(dtype).name]:g} GB/s"
                if not statistics.median(rates) >= KERNEL[np.dtype(dtype).name]:
                    MISSED.append(label)
                    goal += "  MISSED"
            spread = f"({min(rates):.2f} to {max(rates):.2f})"
            print(f"{label:52} {statistics.median(rates):9.2f} GB/s {spread}  {goal}".rstrip(), flush=True)


def whole(repeat: int) -> None:
    check = command("-m", "verify.cli", "check", str(MINILM), "--variant", "fp16", "--quiet")
    row("check MiniLM fp16, first (builds unless cached)", seconds(check, 1), None, 1, "s")
    row("check MiniLM fp16, build from the cache", seconds(check, repeat), 60, 1, "s")
    gate = command("-m", "verify.cli", "gate", str(MINILM), "--variant", "fp16", "--quiet")
    gate()
    row("second gate of MiniLM fp16, nothing changed", seconds(gate, 5), 2, 1, "s")
    row("the same, CPU time", seconds(gate, 5, children), None, 1, "s")
    row("of which its source needs by itself, CPU time", seconds(command("-c", SOURCE), 5, children), None, 1, "s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="start-up and kernels only")
    options = parser.parse_args()
    start_up()
    kernels()
    if not options.quick:
        whole(3)
    if MISSED:
        print(f"missed: {', '.join(MISSED)}")
    return int(bool(MISSED))


if __name__ == "__main__":
    sys.exit(main())
