"""The text of the candidate.toml that `init` writes."""

from __future__ import annotations

from collections.abc import Mapping

from verify.graphs.signature import Port, Signature
from verify.targets import PRECISIONS
from verify.toml_out import key, string


def document(
    model: str, path: str, target: str, graph: Signature, shapes: Mapping[str, tuple[int, ...]], trouble: str
) -> str:
    """A commented candidate.toml; `path` is the ONNX file relative to it, `trouble` what ails the random inputs."""
    quoted = string(path)
    lines = [
        "# Written by npu-verify init. Inputs and outputs, as the graph declares them:",
        *(f"#   input  {_comment(str(port))}" for port in graph.inputs),
        *(f"#   output {_comment(str(port))}" for port in graph.outputs),
        f"model = {string(model)}",
        f"target = {string(target)}",
        "# Source and graph are the same file, so tier 1 (does the graph match the source?) proves nothing yet.",
        '# Name what the graph was exported from: source = "build.py:source", a function that returns a torch module',
        "# (in eval mode), a callable on dicts of arrays, or the path of another .onnx file.",
        f"source = {quoted}",
        f"graph = {quoted}",
        "# RANDOM inputs, to make a start: they say little about real data. Put real ones there: .npz files, whose",
        '# members are the input names, ONNX test_data_set_* folders, or "build.py:cases".',
        'cases = "cases/*.npz"',
    ]
    if trouble:
        lines.append(f"# But {trouble}: real cases come first.")
    for port in graph.inputs:
        lines += ["", *_input(port, shapes[port.name])]
    lines += [
        "",
        "[accuracy]",
        "# Agreement with the source on random inputs, for a start. Better: the task's own score on labelled cases,",
        '# score = "build.py:score", a function score(expected, outputs) -> 0 to 1, higher is better.',
        'score = "agreement"',
        f'cases = "{SAMPLES}:samples"',
        "margin = 0.05                   # the loss that the product can bear",
        "",
        "[variant.cpu-fused]             # onnxruntime with every optimisation, on this machine",
        'target = "cpu"',
        'precision = "fp32"',
    ]
    for name, precision in (("fp16", "fp16"), ("int8", "w8a8")):
        if precision not in PRECISIONS[target] or (target == "cpu" and name == "fp16"):
            continue
        lines += ["", f"[variant.{name}]", f'precision = "{precision}"']
        if precision == "w8a8":
            lines.append('calibration = "calibration/*.npz"   # RANDOM too: ranges need real data')
    return "\n".join(lines) + "\n"


SAMPLES = "random_samples.py"


def samples(graph: Signature, shapes: Mapping[str, tuple[int, ...]], fill: str) -> str:
    """A Python file whose `samples` yields random inputs: nothing to keep on disk, whatever the model's size."""
    held = {port.name: (port.dtype, shapes[port.name]) for port in graph.inputs}
    integers = "random.integers(0, 2, shape)" if fill == "random" else "np.ones(shape)"
    return f'''"""RANDOM inputs for tier 3, written by npu-verify init: replace them by real ones."""

import numpy as np

INPUTS = {{
{"".join(f"    {name!r}: {value!r},{chr(10)}" for name, value in held.items())}}}


def samples():
    """A hundred dicts of arrays: with a margin of 0.05, about 64 are needed where nothing differs."""
    for seed in range(1000, 1100):
        random, feeds = np.random.default_rng(seed), {{}}
        for name, (dtype, shape) in INPUTS.items():
            if dtype == "str":
                feeds[name] = np.array(random.choice(["a", "b"], shape), dtype=str)
            elif dtype == "bool" or np.dtype(dtype).kind in "iu":
                feeds[name] = np.asarray({integers}).astype(dtype)
            else:
                feeds[name] = np.asarray(random.standard_normal(shape)).astype(dtype)
        yield feeds
'''


def _comment(text: str) -> str:
    """A name may hold what ends a line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _input(port: Port, shape: tuple[int, ...]) -> list[str]:
    lines = [f"[input.{key(port.name)}]"]
    symbols = [_comment(axis) for axis in port.shape or () if isinstance(axis, str)]
    if port.shape is None:
        lines.append("# The graph does not declare its shape; the cases hold a single number.")
    elif symbols:
        lines.append(
            f"# An NPU needs fixed shapes: {', '.join(symbols)} got a small size here, the graph leaves it open."
        )
        lines.append(f"shape = {list(shape)}")
    if len(shape) == 4 and port.dtype == "float32":
        lines += [
            "# An image? Say how the application feeds it, and it is normalised once, in the right place:",
            '# layout = "nchw"               # or "nhwc"',
            "# mean = [123.675, 116.28, 103.53]",
            "# std = [58.395, 57.12, 57.375]",
            '# color = "rgb"',
        ]
    return lines
