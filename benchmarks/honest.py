"""What honest builds of the fixtures measure, beside the limits that claim to leave them room.

    python benchmarks/honest.py [FIXTURE ...] [--variant NAME ...]

Runs `check` on every variant of every fixture (from the cache where nothing changed) and prints, per checker, metric
and precision, the worst value with its place and the limit in force. `verify/limits.py` cites these figures.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from verify.candidate import load, names
from verify.gating import examine
from verify.limits import limit
from verify.reports.progress import progress
from verify.store import Store

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="*", default=sorted(p.parent.name for p in FIXTURES.glob("*/candidate.toml")))
    parser.add_argument("--variant", action="append")
    parser.add_argument("--cache", type=Path, default=Path(".npu-verify"))
    options = parser.parse_args()
    worst: dict[tuple[str, str, str], tuple[float, str]] = {}
    for fixture in options.fixtures:
        path = FIXTURES / fixture / "candidate.toml"
        for variant in options.variant or names(path):
            candidate = load(path, variant)
            with progress(candidate.name, quiet=False) as shown:
                verdict = examine(candidate, store=Store(options.cache), progress=shown)
            print(f"{candidate.name}: {verdict.outcome.value}", flush=True)
            for m in verdict.measurements:
                precision = candidate.variant.precision
                metric = f"{m.metric} ({m.grain})" if m.checker == "layers" else m.metric
                key = (m.checker, metric, precision)
                size = math.inf if math.isnan(m.value) else m.value
                if size > worst.get(key, (-math.inf, ""))[0]:
                    worst[key] = (size, f"{candidate.name} {m.where} {m.where.leg}")
    print(f"\n{'checker':10} {'metric':28} {'precision':12} {'worst':>10} {'limit':>8}  where")
    for (checker, metric, precision), (value, where) in sorted(worst.items()):
        held = limit(checker, metric.partition(" ")[0], precision)
        stated = f"{held.value:.3g}" if held else "none"
        print(f"{checker:10} {metric:28} {precision:12} {value:10.3g} {stated:>8}  {where}")


if __name__ == "__main__":
    main()
