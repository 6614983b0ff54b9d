"""What is run, and in which order."""

from __future__ import annotations

import argparse
import atexit
import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from power import faults, honest, plugin
from power.bench import Bench, Results, compiled, remembered
from power.faults import DEPTHS, memory
from power.gates import gates
from power.models import subject
from power.table import render
from verify.store import code_version

#: The whole: models of which every depth is tried, and those (20 s a build) of which one depth a fault is.
WHOLE, LONG = ("encoder4", "outliers4", "cnn_detect", "ppocr_rec", "minilm"), ("encoder12", "encoder12_outliers")
#: The short run: a fault of each kind, on the models that build fastest.
SHORT = (
    ("encoder2b", "int8", "layer x 1.001", "middle"),
    ("encoder2b", "int8", "layer x 1.02", "late"),
    ("encoder2b", "int8", "channel x 1.1", "early"),
    ("encoder2b", "int8", "element to zero", "middle"),
    ("encoder2b", "int8", "two heads swapped", "late"),
    ("encoder2b", "int8", "scales off by one channel", "middle"),
    ("encoder2b", "int8", "8 rows stale", "early"),
    ("encoder2b", "int8", "bias lost", "late"),
    ("encoder2b", "int8", "epsilon 1e-3", "middle"),
    ("encoder2b", "int8", "relu for GELU", "early"),
    ("encoder2b", "int8", "saturated at 0.5", "middle"),
    ("encoder2b", "fp16", "layer x 1.003", "late"),
    ("encoder2b", "fp16", "channel x 1.01", "middle"),
    ("encoder2b", "fp16", "tanh for erf GELU", "late"),
    ("encoder2b", "fp16", "softmax over the wrong axis", "early"),
    ("encoder2b", "fp16", "residual lost", "middle"),
    ("encoder2b", "fp16", "rounded to 8 bits", "late"),
    ("encoder2b", "fp16", "offset 0.1 rms", "early"),
    ("cnn_detect", "int8", "channel to zero", "middle"),
    ("cnn_detect", "int8", "pad value", "early"),
    ("cnn_detect", "int8", "gain 1 %", "late"),
    ("cnn_detect", "fp16", "kernel flipped", "middle"),
    ("cnn_detect", "fp16", "truncated", "early"),
    ("cnn_detect", "fp16", "bias off by one channel", "late"),
)
PRECISIONS = ("fp16", "int8")
PARTS = 4


def whole() -> Iterator[tuple[str, str, str, str]]:
    """(model, variant, fault, depth) of the full run: three passes, each with every fault at one depth of a model.

    Every fourth fault of all models comes before the next ones, so that a run that is stopped is a fair sample.
    """
    depths, every = list(DEPTHS), list(enumerate(faults.compiled()))
    for turn in range(len(depths)):
        for part in range(PARTS):
            for name in (*WHOLE, *LONG) if turn == 0 else WHOLE:
                for variant in PRECISIONS:
                    for i, fault in every[part::PARTS]:
                        yield name, variant, fault.name, depths[(i // PARTS + turn) % len(depths)]
        for variant in PRECISIONS:
            yield "ppocr_det", variant, "resize mode", depths[turn]


def version() -> str:
    """A digest of the tool and of this benchmark: a changed one measures anew, from the builds that are kept."""
    digest = hashlib.sha256(code_version().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def go(options: argparse.Namespace) -> None:
    root = options.cache.absolute()
    plugin.BUILDS = root / "builds"
    lines = root / f"{'full' if options.full else 'short'}-{version()}.jsonl"
    if not options.full and options.only is None:
        lines.unlink(missing_ok=True)
    results = Results.open(options.results or lines)
    bench = Bench(root, gates(root), results, time.monotonic() + 60 * options.minutes)
    atexit.register(shutil.rmtree, bench.trial, ignore_errors=True)
    atexit.register(shutil.rmtree, bench.store, ignore_errors=True)
    by_name = {fault.name: fault for fault in faults.compiled()}
    chosen = [
        item
        for item in (whole() if options.full else SHORT)
        if (not options.model or item[0] in options.model)
        and (not options.variant or item[1] in options.variant)
        and (not options.fault or item[2] in options.fault)
    ]
    if options.only in (None, "faults"):
        for name, variant, fault, depth in chosen:
            if bench.late():
                break
            compiled(bench, subject(name, root / "models"), variant, by_name[fault], depth)
    if options.only in (None, "memory"):
        places = (*DEPTHS, "output") if options.full else ("middle", "output")
        for name in dict.fromkeys(item[0] for item in chosen if options.full or item[0] == "encoder2b"):
            for variant in PRECISIONS:
                for fault in memory.FAULTS:
                    for depth in places:
                        if not bench.late() and (not options.variant or variant in options.variant):
                            remembered(bench, subject(name, root / "models"), variant, fault, depth)
    if options.only in (None, "honest"):
        honest.run(bench, options.full)
    print("\n" + render(results.rows))
