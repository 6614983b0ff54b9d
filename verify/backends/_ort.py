"""onnxruntime sessions on this machine's CPU, and what its errors mean."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import Array, NotComparable, Tensors, UsageError

LEVELS = ("off", "basic", "extended", "all")


def threads() -> int:
    """The cores that this process may use; onnxruntime is told the number, so that it is known."""
    return len(os.sched_getaffinity(0))


def options(level: str = "off", count: int | None = None) -> Any:
    """Session options: an optimisation level ("off", "basic", "extended", "all") and a fixed number of threads."""
    import onnxruntime as ort

    levels = ort.GraphOptimizationLevel
    held = ort.SessionOptions()
    held.graph_optimization_level = {
        "off": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[level]
    held.intra_op_num_threads = count or threads()
    held.inter_op_num_threads = 1
    # idle threads spin for the next operator by default, which starves whatever else runs here (a simulator, a build)
    held.add_session_config_entry("session.intra_op.allow_spinning", "0")
    held.log_severity_level = 4  # fatal only: every error is raised as well
    return held


def load(model: Path | bytes, held: Any, where: str) -> Any:
    """An InferenceSession; raises UsageError when onnxruntime cannot load the model."""
    import onnxruntime as ort

    given = str(model) if isinstance(model, Path) else model
    try:
        return ort.InferenceSession(given, held, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base but Exception
        what = f"onnxruntime cannot load it ({short(error)})"
        raise UsageError(what, where, "check the file and its operators") from None


def short(error: BaseException) -> str:
    """An onnxruntime error in one line without its own prefixes and source paths."""
    import re

    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    return re.sub(r"/\S+\.(?:cc|h):\d+ \S* ?", "", text)[:300]


def tensors(names: Sequence[str], values: Sequence[Any]) -> dict[str, Array]:
    """Those of the values that are tensors, by name."""
    import numpy as np

    return {name: value for name, value in zip(names, values, strict=True) if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class OrtSession:
    """Named tensors through one InferenceSession; outputs in the graph's order."""

    held: Any
    where: str
    names: tuple[str, ...]

    def run(self, feeds: Tensors) -> Tensors:
        """Raises UsageError for feeds that do not fit, NotComparable when the model itself fails on them.

        Outputs that are sequences, maps or empty optionals are left out: they are not covered.
        """
        return tensors(self.names, self.fetch(feeds, self.names))

    def fetch(self, feeds: Tensors, names: tuple[str, ...]) -> list[Any]:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        try:
            values = self.held.run(list(names), dict(feeds))
        except (state.InvalidArgument, ValueError, TypeError) as error:
            raise UsageError(f"the inputs do not fit: {short(error)}", self.where, "see what was fed") from None
        except Exception as error:  # the rest: the model fails on inputs that fit, which is a finding
            what = f"onnxruntime fails on it: {short(error)}"
            raise NotComparable(what, self.where, "look at that operator") from None
        return list(values)


def session(model: Path | bytes, held: Any, where: str) -> OrtSession:
    """A loaded OrtSession; raises UsageError."""
    loaded = load(model, held, where)
    return OrtSession(loaded, where, tuple(output.name for output in loaded.get_outputs()))


def environment() -> Mapping[str, str]:
    """onnxruntime's version and the threads that it is given; cheap: it is not imported."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"threads": str(threads())}
    for name in ("onnxruntime", "onnx"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
