"""Every tensor of a 12-layer transformer (width 512, 128 tokens), compared over two onnxruntime runs, beside peers.

    python benchmarks/reach.py [--runs N]

Each is a process of its own, imports and both runs included: CPU seconds, peak memory (getrusage), wall seconds. The
reference is run without optimisation, the candidate with all of it; Polygraphy runs the same twice, as it has no such
switch beside its own defaults. Polygraphy is installed from PyPI into a temporary folder. A missed target exits 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LAYERS, WIDTH, HEADS, TOKENS, TENSORS = 12, 512, 8, 128, 597
CPU_S, MIB = 4.0, 700.0  # the design's targets
POLYGRAPHY = "polygraphy==0.53.6"


def make(folder: Path) -> None:
    """Write the transformer, seeded; at opset 16 a LayerNorm is nine nodes, which makes 597 tensors in all."""
    import numpy as np
    import onnx
    import torch

    sys.path.insert(0, str(ROOT / "fixtures"))
    from fixture_parts import encoder

    model = encoder.Encoder(LAYERS, WIDTH, HEADS).eval()
    encoder.seed(model, LAYERS)
    x = np.random.default_rng(0).standard_normal((1, TOKENS, WIDTH)).astype(np.float32)
    options: dict[str, Any] = {"opset_version": 16, "input_names": ["x"], "output_names": ["y"], "dynamo": False}
    torch.onnx.export(model, (torch.from_numpy(x),), str(folder / "m.onnx"), **options)
    np.savez(folder / "i.npz", x=x)
    nodes = onnx.load(str(folder / "m.onnx")).graph.node
    count = sum(len(node.output) for node in nodes if node.op_type != "Constant")
    if count != TENSORS:
        print(f"note: this exporter makes {count} tensors, not {TENSORS}")


def peer(kind: str, folder: Path) -> None:
    """What a user writes by hand: both runs with every tensor as an output, then one assertion for each."""
    import numpy as np
    import onnx
    import onnxruntime as ort

    model = onnx.load(str(folder / "m.onnx"))
    have = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in have)
    data, runs = model.SerializeToString(), []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        held = ort.SessionOptions()
        held.graph_optimization_level, held.log_severity_level = level, 4
        held.add_session_config_entry("session.intra_op.allow_spinning", "0")
        runs.append(ort.InferenceSession(data, held).run(names, dict(np.load(folder / "i.npz"))))
    if kind == "torch":
        import torch

        for a, b in zip(*runs, strict=True):
            torch.testing.assert_close(torch.as_tensor(b), torch.as_tensor(a), rtol=1e-3, atol=1e-3)
    else:
        for a, b in zip(*runs, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-3)


def polygraphy(folder: Path) -> str:
    """Its start script, installed now; "" where it cannot be had."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), POLYGRAPHY]
    done = subprocess.run(pip, check=False, capture_output=True, text=True)
    script = folder / "bin" / "polygraphy"
    if done.returncode or not script.exists():
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"{'Polygraphy, --onnx-outputs mark all':44} not installed: {last}")
        return ""
    return str(script)


def run(words: list[str], more: dict[str, str]) -> tuple[float, float, float]:
    """CPU seconds, peak MiB and wall seconds of one process with its children; raises where it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env={**os.environ, **more})
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            log.seek(0)
            raise SystemExit(f"{' '.join(words)} exits {child.returncode}: {log.read().decode()[-1000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, time.perf_counter() - start


def measure(count: int) -> bool:
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_it = [str(Path(__file__)), "--make", name]
        subprocess.run([sys.executable, *make_it], check=True, capture_output=True)
        model, inputs = str(folder / "m.onnx"), str(folder / "i.npz")
        ours = ["-m", "verify.cli", "compare", model, model, "--inputs", inputs]
        contenders: dict[str, tuple[list[str], dict[str, str]]] = {
            "npu-verify compare, every metric": (ours, {"PYTHONPATH": str(ROOT)})
        }
        script = polygraphy(folder / "polygraphy")
        if script:
            words = [script, "run", model, "--onnxrt", "--onnxrt", "--onnx-outputs", "mark", "all"]
            contenders["Polygraphy, --onnx-outputs mark all"] = (words, {"PYTHONPATH": str(folder / "polygraphy")})
        for kind, label in (("numpy", "numpy.testing.assert_allclose"), ("torch", "torch.testing.assert_close")):
            contenders[label] = ([str(Path(__file__)), "--peer", kind, name], {})
        found: dict[str, list[tuple[float, float, float]]] = {label: [] for label in contenders}
        for _ in range(count):  # in turns, so that a busy moment of the machine is everybody's
            for label, (words, more) in contenders.items():
                found[label].append(run(words, more))
    for label, taken in found.items():
        cells = []
        for values, unit, digits in zip(zip(*taken, strict=True), ("CPU-s", "MiB", "s"), (2, 0, 2), strict=True):
            middle, low, high = statistics.median(values), min(values), max(values)
            cells.append(f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})")
        goal = ""
        if label.startswith("npu-verify"):
            cpu, peak = (statistics.median(values) for values in list(zip(*taken, strict=True))[:2])
            late = not (cpu <= CPU_S and peak <= MIB)
            missed |= late
            goal = f"target {CPU_S:g} CPU-s, {MIB:g} MiB" + ("  MISSED" if late else "")
        print(f"{label:44} {cells[0]:26} {cells[1]:24} {cells[2]:24} {goal}".rstrip(), flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(options.make)
        return 0
    if options.peer:
        peer(options.peer[0], Path(options.peer[1]))
        return 0
    return int(measure(options.runs))


if __name__ == "__main__":
    sys.exit(main())
