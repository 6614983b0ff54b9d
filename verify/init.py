"""`npu-verify init`: a candidate from a model's own inputs and outputs, that gates at once."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verify.core import Array, UsageError, VerifyError
from verify.graphs.signature import Port, Signature, signature
from verify.init_text import SAMPLES, document, samples
from verify.npz import write_npz
from verify.protocols import Session
from verify.targets import PRECISIONS
from verify.toml import nearest

CASES = 4  # of each kind: enough to differ from each other, and quick
#: Sizes tried for symbolic axes: (image height and width, any other axis). The batch axis is always 1. What
#: runs first is taken; 64 survives the five halvings of usual image networks, 8 makes an attention more than one token.
SIZES = ((64, 8), (64, 1), (1, 1), (32, 16), (224, 16), (320, 64), (640, 128))


def init(model: Path, out: Path | None, target: str) -> str:
    """Write OUT/candidate.toml, OUT/cases and OUT/calibration; returns what to tell the user.

    Raises UsageError for an unreadable model, an unknown target, inputs that are not tensors, or an OUT that exists.
    """
    if target not in PRECISIONS:
        raise UsageError(f"unknown target {target!r}", "--target", nearest(target, PRECISIONS))
    graph = signature(model)
    for port in graph.inputs:
        if not port.dtype:
            raise UsageError(f"input {port.name!r} is not a tensor", str(model), "only tensors can be fed yet")
    out = out or model.parent / model.stem
    if out.exists() or out.is_symlink():
        raise UsageError("already exists", str(out), "name a new folder with --out: nothing is overwritten")
    shapes, fill, trouble = _fit(model, graph)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", str(out), "name another folder with --out") from None
    try:
        for offset, kind in enumerate(("cases", "calibration")):
            (folder / kind).mkdir()
            for i in range(CASES):
                write_npz(folder / kind / f"random{i}.npz", feeds(graph.inputs, shapes, fill, offset * CASES + i))
        relative = os.path.relpath(model.resolve(), out.resolve())
        (folder / "candidate.toml").write_text(document(_plain(model.stem), relative, target, graph, shapes, trouble))
        (folder / SAMPLES).write_text(samples(graph, shapes, fill))
        folder.chmod(0o755)  # mkdtemp's own mode would lock out a colleague
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    lines = [f"wrote {out / 'candidate.toml'}: replace its random cases, and its source, by real ones"]
    if trouble:
        lines.append(f"{trouble}: write real cases first")
    return "\n".join([*lines, f"next: npu-verify check {out / 'candidate.toml'} --variant cpu-fused"])


def _plain(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", stem).lstrip("._+-") or "model"


def _fit(model: Path, graph: Signature) -> tuple[dict[str, tuple[int, ...]], str, str]:
    """Shapes by input, a way to fill integers, and what is wrong with that: "" where the model gives usable numbers."""
    from verify.backends import _ort

    session = _ort.session(model, _ort.options("off"), str(model))
    trouble = "the model did not run on random inputs of any size tried"
    symbolic = any(isinstance(axis, str) for port in graph.inputs for axis in port.shape or ())
    for image, other in SIZES if symbolic else SIZES[:1]:
        shapes = {port.name: fixed(port, image, other) for port in graph.inputs}
        for fill in ("random", "ones"):
            try:
                fed = [feeds(graph.inputs, shapes, fill, i) for i in range(2 * CASES)]
                if all(_finite(session.run(tensors).values()) for tensors in fed):
                    return shapes, fill, "" if all(_steady(session, tensors) for tensors in fed[:CASES]) else NOISE
                trouble = "the model gives NaN, Inf or nothing at all on random inputs"
            except VerifyError:
                break
    return {port.name: fixed(port, *SIZES[0]) for port in graph.inputs}, "random", trouble


NOISE = "on random inputs the model's outputs are hardly more than rounding noise"
#: float32's own half unit in the last place, and the parity checker's limit: where a change of the inputs by the former
#: moves the outputs beyond the latter, every honest float32 runtime fails.
NUDGE, MOVED = 6e-8, 1e-4


def _steady(session: Session, tensors: Mapping[str, Array]) -> bool:
    """Whether rounding the floating inputs anew leaves the outputs where they were."""
    import numpy as np

    from verify.graphs.referee import distance

    signs = np.random.default_rng(0)
    nudged = {
        name: (value * (1 + NUDGE * signs.choice([-1, 1], value.shape))).astype(value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in tensors.items()
    }
    return distance(session.run(tensors), session.run(nudged)) <= MOVED


def _finite(values: Iterable[Any]) -> bool:
    import numpy as np

    for value in values:
        if value.size == 0 or (value.dtype.kind == "f" and not np.isfinite(value).all()):
            return False
    return True


def fixed(port: Port, image: int, other: int) -> tuple[int, ...]:
    """The input's shape with its symbolic axes fixed; a first axis is taken for the batch."""
    axes = port.shape or ()
    picture = len(axes) == 4
    return tuple(
        axis if isinstance(axis, int) else 1 if i == 0 or (picture and i == 1) else image if picture else other
        for i, axis in enumerate(axes)
    )


def feeds(ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], fill: str, seed: int) -> dict[str, Array]:
    """Reproducible inputs: normal floats, integers 0 or 1 (which any vocabulary and mask holds), or all ones."""
    import numpy as np

    random, found = np.random.default_rng(seed), {}
    for port in ports:
        shape = shapes[port.name]
        if port.dtype == "str":
            found[port.name] = np.array(random.choice(["a", "b"], shape), dtype=str)
        elif port.dtype == "bool" or np.dtype(port.dtype).kind in "iu":
            value = random.integers(0, 2, shape) if fill == "random" else np.ones(shape)
            found[port.name] = np.asarray(value).astype(port.dtype)
        else:
            found[port.name] = np.asarray(random.standard_normal(shape)).astype(port.dtype)
    return found
