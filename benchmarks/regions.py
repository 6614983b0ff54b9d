"""What honest builds show beyond the roundings that are replayed: the origin of verify/floor/allowance.py.

    python benchmarks/regions.py [FIXTURE ...] [--cache DIR]

Builds every fixture in fp16 and int8 (from the cache where nothing changed), replays each region on the build's own
inputs, and prints, per unit and kind of region, elements, how many are beyond the allowance's width, the 99.99 %
quantile, the worst and the largest gain error, beside the allowance; then how far the toolkit's own float32 run of its
optimised graph is from the reference, over what float32 rounding makes (the origin of the limit of `rewritten`); and
the alarms, of which there must be none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from verify.candidate import load
from verify.capture import capture
from verify.core import Measurement, Where
from verify.floor.allowance import allowance
from verify.floor.kept import Floor
from verify.floor.measured import MANY, measured
from verify.floor.regions import Unreplayed, errors
from verify.floor.rewritten import rewritten, single
from verify.graphs.info import LAYOUT
from verify.limits import limit
from verify.plan import LAYER_CASES, Plan
from verify.protocols import load as entry
from verify.reports.progress import progress
from verify.store import Store
from verify.trial import Trial

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAMES = ("structure", "range")  # what asks for dumps and for nothing that is not needed here


def captured(path: Path, variant: str, cache: Path, work: Path) -> Trial:
    candidate = load(path, variant)
    checkers = tuple(entry("verify.checkers", name)() for name in NAMES)
    plan = Plan(frozenset(spec for checker in checkers for spec in checker.plan(candidate)), checkers)
    with progress(candidate.name, quiet=True) as shown:
        return capture(candidate, plan, Store(cache), shown, work)[0]


def rewrites(trial: Trial) -> list[Measurement]:
    """`rewritten` of every layer that was matched, in both cases."""
    shown, found = [], []
    for held in trial.recordings["graph"][:LAYER_CASES]:
        values = {**held.layers, **held.outputs}
        names = {m.tensor for m in (*trial.alignment.values(), *trial.assumed.values()) if m.tensor in values}
        shown.append((held.case, held.integrity["inputs"], {n: np.asarray(values[n]) for n in sorted(names)}))
    floor = Floor(single=single(trial.facts["graph"].path, shown))
    for recording in trial.recordings["simulator"]:
        for layer, match in {**trial.alignment, **trial.assumed}.items():
            if trial.graph.op(match.tensor) not in ("", *LAYOUT):
                where = Where(match.tensor, recording.case, "graph~simulator")
                found += rewritten(floor, recording.integrity.get("optimised", {}), where, layer)
    return found


def _alarms(m: Measurement) -> bool:
    held = limit("layers", m.metric)
    return held is None or not m.value <= held.value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="*", default=sorted(p.parent.name for p in FIXTURES.glob("*/candidate.toml")))
    parser.add_argument("--cache", type=Path, default=Path(".npu-verify"))
    options = parser.parse_args()
    sizes: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)  # elements and gain error of each region
    beyond: dict[tuple[str, str], list[float]] = defaultdict(list)
    apart: list[float] = []
    alarms, builds = 0, 0
    for fixture in options.fixtures:
        for variant in ("fp16", "int8"):
            with tempfile.TemporaryDirectory() as work:
                trial = captured(FIXTURES / fixture / "candidate.toml", variant, options.cache, Path(work))
                start, left, regions = time.perf_counter(), 0, 0
                for item in errors(trial):
                    if isinstance(item, Unreplayed) or item.foreign:
                        left += 1
                        continue
                    regions += 1
                    key = (item.found.unit, item.kind)
                    excess = item.found.excess.reshape(-1)
                    beyond[key] += [float(v) for v in excess[excess > 0]]
                    sizes[key].append((excess.size, abs(item.found.gain[0])))
                seconds = time.perf_counter() - start
                bad = [m for m in measured(trial) if m.grain == "region" and _alarms(m)]
                run = rewrites(trial)
                bad += [m for m in run if _alarms(m)]
                apart += [m.value for m in run]
            alarms, builds = alarms + len(bad), builds + 1
            furthest = max((m.value for m in run), default=float("nan"))
            print(f"{trial.candidate.name:32} {regions:5} regions, {left:3} not replayed, {seconds:5.1f} s, "
                  f"rewritten at most {furthest:5.2f}, {len(bad)} alarms", flush=True)  # fmt: skip
            for m in bad[:3]:
                print(f"    {m.where.tensor}: {m.metric} = {m.value:.3g}: {m.note}")
    print(f"\n{'unit':15} {'kind':10} {'regions':>7} {'elements':>10} {'beyond':>8} {'99.99 %':>8} {'worst':>6} "
          f"{'gain':>8}   width   rate  worst   gain")  # fmt: skip
    for key, items in sorted(sizes.items()):
        size, held = sum(n for n, _ in items), allowance(*key)
        values = np.sort(np.array(beyond[key]))
        share = float((values > held.width).sum()) / size
        rank = int(len(values) - 1e-4 * size)
        q = float(values[rank]) if 0 <= rank < len(values) else 0.0
        worst = float(values[-1]) if len(values) else 0.0
        gain = max((off for n, off in items if n >= MANY), default=0.0)
        print(f"{key[0]:15} {key[1]:10} {len(items):7} {size:10} {share:8.1e} {q:8.2g} {worst:6.2g} {gain:8.1e}   "
              f"{held.width:5.2g} {held.rate:6.0e} {held.worst:6.2g} {held.gain:6.0e}")  # fmt: skip
    median, high, worst = (float(np.quantile(apart, q)) for q in (0.5, 0.95, 1.0))
    print(f"\nrewritten: {len(apart)} layers, median {median:.2f}, 95 % {high:.2f}, worst {worst:.2f}")
    print(f"\n{alarms} alarms in {builds} honest builds")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
