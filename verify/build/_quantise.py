"""onnxruntime's static quantisation, with its warnings kept in a log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from verify.core import Candidate, Case, Missing, UsageError
from verify.inputs import prepare
from verify.toml import nearest


def quantise(candidate: Candidate, graph: Path, calibration: Collection[Case], folder: Path, log: Path) -> Path:
    """`folder`/quantised.onnx: weights and activations int8 as QDQ pairs, ranges from the calibration cases.

    Signed on both sides and per channel unless the settings say otherwise, as onnxruntime's documentation advises for
    this format. Raises UsageError for unknown options, Missing (with the log) when the quantiser fails.
    """
    from onnxruntime.quantization import QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, result = folder / "prepared.onnx", folder / "quantised.onnx"
    options = _options(candidate)
    with _logged(log):
        try:
            try:
                quant_pre_process(str(graph), str(prepared), skip_symbolic_shape=False)
            except Exception as error:  # symbolic inference knows fewer operators than the rest; it is a help only
                logging.getLogger().warning("without symbolic shapes: %r", error)
                quant_pre_process(str(graph), str(prepared), skip_symbolic_shape=True)
            reader = _Reader(candidate, calibration)
            quantize_static(str(prepared), str(result), reader, quant_format=QuantFormat.QDQ, **options)
        except Exception as error:  # the quantiser raises whatever its own bugs raise
            logging.getLogger().exception("the quantiser failed")
            text = " ".join(str(error).split())[:200]
            what = f"onnxruntime's quantiser failed: {type(error).__name__}: {text}"
            raise Missing(what, candidate.name, "read the log", log=str(log)) from None
    return result


class _Reader:
    """The calibration cases one by one, as quantize_static wants them."""

    def __init__(self, candidate: Candidate, calibration: Collection[Case]) -> None:
        self.candidate, self.calibration = candidate, list(calibration)
        self.left = iter(self.calibration)

    def get_next(self) -> Any:
        case = next(self.left, None)
        return None if case is None else dict(prepare(self.candidate, case.inputs))

    def rewind(self) -> None:
        self.left = iter(self.calibration)

    def __len__(self) -> int:
        return len(self.calibration)

    def __iter__(self) -> Iterator[Any]:
        return (dict(prepare(self.candidate, case.inputs)) for case in self.calibration)


def _options(candidate: Candidate) -> dict[str, Any]:
    from onnxruntime.quantization import CalibrationMethod, QuantType

    given = candidate.variant.settings.get("onnxruntime", {})
    where = f"[variant.{candidate.variant.name}.onnxruntime]"
    options: dict[str, Any] = {"per_channel": True, "activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    for key, value in given.items():
        if key in ("optimization", "threads"):
            continue
        kinds: Any = CalibrationMethod if key == "calibrate_method" else QuantType if key.endswith("_type") else None
        if kinds is None:
            options[key] = value
            continue
        if value not in kinds.__members__:
            raise UsageError(f"unknown {key} {value!r}", where, nearest(str(value), kinds.__members__))
        options[key] = kinds[value]
    return options


@contextlib.contextmanager
def _logged(log: Path) -> Iterator[None]:
    """The quantiser reports through the root logger and print; both go to the log, and neither to the terminal."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with log.open("a") as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        handler = logging.StreamHandler(stream)
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = before
            root.setLevel(level)
