"""The child that holds the vendor's toolkit. Run by path, under any interpreter that has it.

Needs the standard library, numpy and rknn-toolkit2, nothing of npu-verify. Frames as in verify/process.py come in on
one descriptor and go out on another; standard output and error are the log, because the toolkit prints there.
"""

from __future__ import annotations

import ctypes
import difflib
import importlib
import inspect
import io
import json
import os
import struct
import sys
import time
from typing import Any

_here = os.path.dirname(os.path.realpath(__file__))
sys.path[:] = [p for p in sys.path if os.path.realpath(p or ".") != _here]  # rknn.py beside this would hide the toolkit


class Refusal(Exception):
    """The toolkit said no; `kind` is "usage" (of `where`, else of the settings), "install" or "missing"."""

    def __init__(self, what: str, kind: str = "missing", do: str = "", where: str = "") -> None:
        super().__init__(what)
        self.kind, self.do, self.where = kind, do, where


class Pipe:
    """Frames of a JSON header and blobs; both ends are closed in whatever this process starts."""

    def __init__(self, requests: int, answers: int) -> None:
        for fd in (requests, answers):
            os.set_inheritable(fd, False)
        self.source, self.sink = os.fdopen(requests, "rb"), os.fdopen(answers, "wb")

    def receive(self) -> tuple[Any, list[bytes]]:
        head = self.source.read(8)
        if len(head) < 8:
            return None, []
        size, count = struct.unpack("<II", head)
        header = json.loads(self.source.read(size))
        return header, [self.source.read(*struct.unpack("<Q", self.source.read(8))) for _ in range(count)]

    def send(self, header: dict[str, Any], blobs: list[bytes] | tuple[()] = ()) -> None:
        text = json.dumps(header).encode()
        self.sink.write(struct.pack("<II", len(text), len(blobs)) + text)
        for blob in blobs:
            self.sink.write(struct.pack("<Q", len(blob)) + blob)
        self.sink.flush()


def last_line(error: Exception) -> str:
    """The toolkit raises ValueError holding a whole traceback: its last line that is not one of the source's."""
    lines = [line.strip() for line in str(error).replace("\\n", "\n").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("File ", "^", "~"))]
    return lines[-1][:300] if lines else type(error).__name__


class Toolkit:
    """One RKNN object at a time and what it has been through."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.rknn: Any = None

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A toolkit call, announced first; return codes and exceptions become a Refusal."""
        self.pipe.send({"step": name})
        try:
            code = getattr(self.rknn, name)(*args, **kwargs)
        except Exception as error:
            raise Refusal(f"{name} raised {last_line(error)}") from error
        finally:
            flush()
        if isinstance(code, int) and code != 0:
            raise Refusal(f"{name} returned {code}")
        return code

    def new(self) -> None:
        self.pipe.send({"step": "import"})
        try:
            api = importlib.import_module("rknn.api")
        except Exception as error:
            raise Refusal(f"rknn-toolkit2 cannot be imported: {last_line(error)}", "install") from error
        self.pipe.send({"step": "RKNN()"})
        try:
            self.rknn = api.RKNN(verbose=True)
        except Exception as error:
            raise Refusal(f"RKNN() cannot be constructed: {last_line(error)}", "install") from error

    def config(self, options: dict[str, Any]) -> None:
        known = [name for name in inspect.signature(self.rknn.config).parameters if name != "self"]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, 3, 0.5) or known
                raise Refusal(f"this toolkit's config has no setting {name!r}", "usage", f"known: {', '.join(near)}")
        try:
            self.call("config", **options)
        except Refusal as error:
            raise Refusal(str(error), "usage", "see the settings of the variant's rknn table") from error

    def build(self, request: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        start = time.perf_counter()
        scales: dict[str, Any] = {}
        self.new()
        self.config(request["config"])
        self.call("load_onnx", model=request["model"], **request["load"])
        if request["dataset"]:
            self.call("hybrid_quantization_step1", dataset=request["dataset"])
            written: dict[str, str] = {}
            for ending in (".model", ".data", ".quantization.cfg"):
                found = [name for name in os.listdir(".") if name.endswith(ending)]
                if len(found) != 1:
                    raise Refusal(f"hybrid_quantization_step1 left {len(found)} files *{ending}")
                written[ending] = found[0]
            scales = read_yaml(written[".quantization.cfg"]).get("quantize_parameters") or {}
            if request["keep"]:
                keep_float(written[".quantization.cfg"], request["keep"], scales)
            self.rknn.release()
            self.new()  # step 2 wants an object of its own, on which config is all that was called
            self.config(request["config"])
            try:
                self.call(
                    "hybrid_quantization_step2",
                    model_input=written[".model"],
                    data_input=written[".data"],
                    model_quantization_cfg=written[".quantization.cfg"],
                )
            except Refusal as error:
                if "Invalid operands name" not in str(error):
                    raise
                do = "name compiled layers only; weights and constants follow the layer that uses them"
                raise Refusal(str(error), "usage", do, "keep_float") from error
        else:
            self.call("build", do_quantization=False)
        self.call("export_rknn", request["export"])
        self.call("init_runtime")
        for name in os.listdir("."):  # several files as large as the model; nothing reads them again
            if name.endswith((".npy", ".onnx", ".data", ".model", ".quantization.cfg")):
                os.unlink(name)
        return {"scales": scales, "seconds": time.perf_counter() - start}, []

    def run(self, _: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        import numpy as np

        feeds = [np.load(io.BytesIO(blob), allow_pickle=False) for blob in blobs]
        outputs = self.call("inference", inputs=feeds, data_format=["nchw"] * len(feeds))
        if outputs is None:
            raise Refusal("inference returned None")
        return {}, [dump(np.asarray(value)) for value in outputs]

    def layers(self, request: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        self.call("accuracy_analysis", inputs=request["inputs"], output_dir=request["into"])
        return {}, []

    def close(self, *_: Any) -> tuple[dict[str, Any], list[bytes]]:
        if self.rknn is not None:
            self.rknn.release()
        return {}, []


def dump(array: Any) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def read_yaml(path: str) -> Any:
    """The toolkit itself needs ruamel.yaml; an older one may bring PyYAML instead."""
    with open(path) as stream:
        try:
            from ruamel.yaml import YAML  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            import yaml  # type: ignore[import-untyped, import-not-found, unused-ignore]

            return yaml.safe_load(stream)
        return YAML(typ="safe", pure=True).load(stream)


def keep_float(path: str, wanted: list[str], known: dict[str, Any]) -> None:
    """Name the layers that step 2 leaves in float16; raises Refusal for one that is not in the cfg.

    The file begins with an empty table of them (2.5.0); JSON is YAML, so one line is all that changes.
    """
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5) or list(known)[:3]
            do = f"did you mean {', '.join(near)}? The report's layers name them as compiled layers"
            raise Refusal(f"no compiled layer {name!r}", "usage", do, "keep_float")
    with open(path) as stream:
        text = stream.read()
    empty, full = "custom_quantize_layers: {}", dict.fromkeys(wanted, "float16")
    if text.count(empty) != 1:
        raise Refusal("hybrid_quantization_step1 wrote a .quantization.cfg without an empty custom_quantize_layers")
    with open(path, "w") as stream:
        stream.write(text.replace(empty, f"custom_quantize_layers: {json.dumps(full)}"))


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)


def main(requests: int, answers: int) -> None:
    pipe = Pipe(requests, answers)
    toolkit = Toolkit(pipe)
    steps = {"build": toolkit.build, "run": toolkit.run, "layers": toolkit.layers, "close": toolkit.close}
    while True:
        header, blobs = pipe.receive()
        if header is None:
            return
        try:
            answer, found = steps[header["do"]](header, blobs)
        except Refusal as refusal:
            told = {"kind": refusal.kind, "help": refusal.do, "where": refusal.where}
            answer, found = {"refused": str(refusal), **told}, []
        except Exception as error:
            answer, found = {"refused": f"{header['do']} raised {last_line(error)}", "kind": "missing", "help": ""}, []
        flush()
        pipe.send(answer, found)
        if header["do"] == "close":
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
