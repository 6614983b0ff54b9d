"""The usual gates, on the very tensors that this tool judged."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verify.metrics import difference

POLYGRAPHY = "polygraphy==0.53.6"
Gate = Callable[[Any, Any], bool]


def cosine(wanted: Any, got: Any) -> bool:
    """Cosine of at least 0.99; NaN fails, as with every gate here."""
    return difference(wanted, got).cosine >= 0.99


def snr(wanted: Any, got: Any) -> bool:
    return difference(wanted, got).sqnr_db >= 20


def close(tolerance: float) -> Gate:
    return lambda wanted, got: bool(np.allclose(got, wanted, rtol=tolerance, atol=tolerance))


def polygraphy(cache: Path) -> Gate | None:
    """Polygraphy's CompareFunc.simple() as it comes (rtol = atol = 1e-5, elementwise), None if it cannot be had.

    Installed into a folder of its own: nothing else may come to depend on it.
    """
    folder = cache / "polygraphy"
    if not (folder / "polygraphy").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), POLYGRAPHY]
        if subprocess.run(command, capture_output=True, cwd=tempfile.gettempdir()).returncode:
            return None
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        comparator = importlib.import_module("polygraphy.comparator")
        logger = importlib.import_module("polygraphy.logger").G_LOGGER
    except ImportError:
        return None
    logger.module_severity = logger.CRITICAL
    simple = comparator.CompareFunc.simple()

    def gate(wanted: Any, got: Any) -> bool:
        one, two = ({"t": np.asarray(value, np.float32)} for value in (wanted, got))
        try:
            return all(bool(found) for found in simple(comparator_result(one), comparator_result(two)).values())
        except Exception:  # it raises for what it will not compare
            return False

    def comparator_result(outputs: Mapping[str, Any]) -> Any:
        return comparator.IterationResult(outputs)

    return gate


def gates(cache: Path) -> dict[str, Gate]:
    found: dict[str, Gate] = {
        "cosine 0.99": cosine,
        "SNR 20 dB": snr,
        "allclose 1e-2": close(1e-2),
        "allclose 1e-3": close(1e-3),
    }
    other = polygraphy(cache)
    return {**found, "Polygraphy": other} if other else found


def ask(held: Mapping[str, Gate], tensors: Iterable[tuple[str, Any, Any]]) -> dict[str, str]:
    """Per gate the first tensor that it fails, "" if none; `tensors` come in the graph's order."""
    first: dict[str, str] = dict.fromkeys(held, "")
    for name, wanted, got in tensors:
        for gate, passes in held.items():
            if not first[gate] and not passes(wanted, got):
                first[gate] = name
    return first
