"""The vendor simulator's and onnxruntime's honest errors over the floor: the table of docs/floor.md.

    python benchmarks/floor.py [FIXTURE ...] [--variant NAME ...] [--cache FOLDER]

Runs `check` without the scores on every fixture's fp16, int8 and fused float32 builds (from the cache where nothing
changed) and prints, per build, the tensors compared, the ratio of the error accumulated up to each to the root mean
square of 32 draws (median, 95th percentile, largest, all cases), how close the closest of all grains came to its own
limit (without the model-error allowance), and what alarmed. `verify/floor/tail.py` cites these figures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from verify.candidate import load, names
from verify.core import Measurement
from verify.floor.tail import ALPHA, limit
from verify.gating import examine
from verify.policy import REQUIRED, Policy
from verify.reports.progress import progress
from verify.store import Store
from verify.verdict import Verdict

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VARIANTS = ("cpu-fused", "fp16", "int8")


def closest(held: list[Measurement]) -> float:
    """The allowance that the build would have needed: the largest ratio over its limit without one."""
    needed = [m.value / (limit({**m.null, "allowance": 1.0}, ALPHA) or float("nan")) for m in held]
    return max(needed, default=float("nan"))


def row(verdict: Verdict, seconds: float) -> str:
    held = [m for m in verdict.measurements if m.metric == "over_floor"]
    whole = np.array([m.value for m in held if not m.where.part] or [float("nan")])
    alarms = [f for f in verdict.findings if f.metric == "over_floor" and f.severity == "fail"]
    absent = sum(int(m.value) for m in verdict.measurements if m.metric == "no_floor")
    middle, high = np.percentile(whole, [50, 95])
    name = f"{verdict.candidate['model']} | {verdict.candidate['variant']}"
    figures = f"{len(whole)} | {middle:.2f} | {high:.2f} | {whole.max():.2f} | {len(held)} | {closest(held):.2f}"
    return f"| {name} | {figures} | {len(alarms)} | {absent} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="*", default=sorted(p.parent.name for p in FIXTURES.glob("*/candidate.toml")))
    parser.add_argument("--variant", action="append")
    parser.add_argument("--cache", type=Path, default=Path(".npu-verify"))
    options = parser.parse_args()
    policy = Policy("floor only", tuple(name for name in REQUIRED if name not in ("accuracy", "agreement")))
    print("| fixture | variant | tensors | median | 95 % | max | grains | of the limit | alarms | no floor | s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for fixture in options.fixtures:
        path = FIXTURES / fixture / "candidate.toml"
        for variant in options.variant or [name for name in names(path) if name in VARIANTS]:
            candidate, start = load(path, variant), time.perf_counter()
            with progress(candidate.name, quiet=True) as shown:
                verdict = examine(candidate, policy, store=Store(options.cache), progress=shown)
            print(row(verdict, time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
