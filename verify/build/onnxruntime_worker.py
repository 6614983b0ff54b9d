"""The child that fuses or quantises with onnxruntime. Run by path; frames as in verify/process.py.

Standard output and error are the log, because the quantiser prints and warns there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

_here = os.path.dirname(os.path.realpath(__file__))
# onnxruntime.py beside this would hide the package of that name
sys.path[:] = [p for p in sys.path if os.path.realpath(p or ".") != _here]
sys.path.append(os.path.dirname(os.path.dirname(_here)))


class Reader:
    """The calibration cases from their .npz files, one by one, as quantize_static wants them."""

    def __init__(self, files: list[str]) -> None:
        self.files, self.left = files, iter(files)

    def get_next(self) -> dict[str, Any] | None:
        file = next(self.left, None)
        return None if file is None else self.read(file)

    def rewind(self) -> None:
        self.left = iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.read, self.files)

    def read(self, file: str) -> dict[str, Any]:
        import numpy as np

        with np.load(file, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}


def fuse(request: dict[str, Any], step: Any) -> None:
    """Have onnxruntime write the graph as it optimises it for this machine."""
    from verify.backends import _ort

    step("loading and fusing")
    held = _ort.options(request["level"], request["threads"])
    held.log_severity_level = 2  # warnings: this is the log that somebody reads when it fails
    held.optimized_model_filepath = request["result"]
    import onnxruntime

    onnxruntime.InferenceSession(request["graph"], held, providers=["CPUExecutionProvider"])
    _whole(request["result"], os.path.dirname(request["graph"]))


def _whole(path: str, folder: str) -> None:
    """Take weights that the model at `path` leaves in files of `folder` into it, so that it is one file.

    Raises ValueError where it would grow beyond protobuf's limit.
    """
    import onnx
    from onnx.external_data_helper import _get_all_tensors, load_external_data_for_tensor, uses_external_data

    model = onnx.load(path, load_external_data=False)
    apart = [tensor for tensor in _get_all_tensors(model) if uses_external_data(tensor)]
    if not apart:
        return
    size = sum(int(entry.value) for tensor in apart for entry in tensor.external_data if entry.key == "length")
    if size + model.ByteSize() >= 2**31:
        raise ValueError("its weights are over 2 GB, which one ONNX file cannot hold")
    for tensor in apart:
        load_external_data_for_tensor(tensor, folder)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    onnx.save(model, path)


def quantise(request: dict[str, Any], step: Any) -> None:
    """Static QDQ quantisation; options are quantize_static's own, enumerations by their names."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared, options = request["result"] + ".prepared.onnx", dict(request["options"])
    for key, value in options.items():
        kinds: Any = CalibrationMethod if key == "calibrate_method" else QuantType if key.endswith("_type") else None
        options[key] = kinds[value] if kinds else value
    step("preparing the graph")
    try:
        quant_pre_process(request["graph"], prepared, skip_symbolic_shape=False)
    except Exception as error:  # symbolic inference knows fewer operators than the rest; it is a help only
        print(f"without symbolic shapes: {error!r}")
        quant_pre_process(request["graph"], prepared, skip_symbolic_shape=True)
    step("calibrating and quantising")
    reader = Reader(request["calibration"])
    quantize_static(prepared, request["result"], reader, quant_format=QuantFormat.QDQ, **options)


def main(requests: int, answers: int) -> None:
    import traceback

    from verify.build.rknn_worker import Pipe

    pipe = Pipe(requests, answers)
    while True:
        header, _ = pipe.receive()
        if header is None:
            return
        answer: dict[str, Any] = {}
        try:
            if header["do"] != "close":
                {"fuse": fuse, "quantise": quantise}[header["do"]](header, lambda name: pipe.send({"step": name}))
        except Exception as error:  # whatever onnxruntime's own bugs raise
            traceback.print_exc()
            text = " ".join(str(error).split())
            answer = {"refused": f"{type(error).__name__}: {text[:300]}"}
        pipe.send(answer)
        if header["do"] == "close":
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
