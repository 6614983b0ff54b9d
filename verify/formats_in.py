"""Tensor files as others write them: .npz, .npy, .safetensors, ONNX .pb, folders of these, toolkit snapshots."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verify.core import Array, UsageError

FORMATS = ".npz, .npy, .safetensors, .pb, a folder of those, test_data_set_* folders, or a toolkit's snapshot folder"
DO = f"give {FORMATS}"
#: What `accuracy_analysis` writes beside its folders `golden` and `simulator` (rknn-toolkit2, documented output).
MAP = "map_name_to_file.txt"
#: The safetensors format's dtypes, little endian; bf16 is widened below.
SAFE = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
HEADER = 100 << 20  # the format's own bound of the header, in bytes


@dataclass(frozen=True)
class Loaded:
    """`tensors` by name. `named`: whether the names mean something; `ordered`: whether their order does."""

    path: Path
    tensors: dict[str, Array] = field(default_factory=dict)
    named: bool = True
    ordered: bool = True


def is_snapshot(path: Path) -> bool:
    """Whether this is a folder that the toolkit's accuracy analysis wrote."""
    return (path / "golden").is_dir() and (path / "simulator").is_dir()


def load(path: Path, role: str = "output", part: str = "simulator") -> Loaded:
    """Read every tensor; raises UsageError for what is not there or cannot be read.

    `role` says which files of a test_data_set folder are meant ("input" or "output"), `part` which half of a snapshot
    ("golden" or "simulator"). Sub-folders (cases) become prefixes of the names. Pickled objects are never loaded.
    """
    if not path.exists():
        raise UsageError("no such file or folder", str(path), DO)
    if path.is_dir():
        return _folder(path, role, part)
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".pb": _pb}
    if path.suffix not in readers:
        raise UsageError(f"{path.suffix or 'no suffix'}: not a known kind of tensor file", str(path), DO)
    try:
        return readers[path.suffix](path)
    except UsageError:
        raise
    except Exception as error:  # zip, header and protobuf parsers raise kinds of their own for a damaged file
        text = " ".join(str(error).split())[:120]
        raise UsageError(f"not a readable {path.suffix} file ({text or type(error).__name__})", str(path), DO) from None


def _npz(path: Path) -> Loaded:
    with np.load(path, allow_pickle=False) as held:
        tensors = {name: np.asarray(held[name]) for name in held.files}
    # numpy's own names for arrays that were saved without one
    return Loaded(path, tensors, named=list(tensors) != [f"arr_{i}" for i in range(len(tensors))])


def _npy(path: Path) -> Loaded:
    value = np.load(path, allow_pickle=False)
    if not isinstance(value, np.ndarray):
        raise UsageError("holds several arrays", str(path), "name it .npz")
    return Loaded(path, {path.stem: value}, named=False)


def _safetensors(path: Path) -> Loaded:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(HEADER, len(data) - 8):
        raise ValueError("truncated")
    body, tensors = memoryview(data)[8 + size :], {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = SAFE.get(entry["dtype"])
        if dtype is None:
            raise UsageError(f"tensor {name} is {entry['dtype']}, which is not read", str(path), "store it as F32")
        shape = tuple(entry["shape"])
        if not 0 <= start <= end <= len(body) or end - start != math.prod(shape) * np.dtype(dtype).itemsize:
            raise ValueError(f"tensor {name} is truncated")
        value = np.frombuffer(body[start:end], dtype).reshape(shape)
        if entry["dtype"] == "BF16":
            value = _widened(value)
        tensors[name] = value
    return Loaded(path, tensors, ordered=False)  # writers sort by alignment


def _widened(bits: Array) -> Array:
    """bfloat16, as uint16, in float32: it is the upper half of a binary32 number."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _pb(path: Path) -> Loaded:
    import onnx
    from onnx import numpy_helper

    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    if not tensor.data_type:
        raise UsageError("holds no ONNX tensor (sequences and optionals are not read)", str(path), DO)
    value = numpy_helper.to_array(tensor)
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind == "BFLOAT16":  # onnx gives its bits, under one dtype or another
        value = _widened(value.view(np.uint16))
    elif kind.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4")):
        raise UsageError(f"holds {kind}, which is not read", str(path), "store it as FLOAT")
    return Loaded(path, {tensor.name or path.stem: value}, named=bool(tensor.name))


def _folder(path: Path, role: str, part: str) -> Loaded:
    if is_snapshot(path):
        return _snapshot(path / part, path / MAP)
    if (path.parent / MAP).exists() and path.name in ("golden", "simulator"):
        return _snapshot(path, path.parent / MAP)
    pieces = sorted(path.glob(f"{role}_*.pb"), key=_number)
    if pieces:
        loaded = [load(piece) for piece in pieces]
        named = all(one.named for one in loaded) and len({n for one in loaded for n in one.tensors}) == len(loaded)
        tensors = [value for one in loaded for value in one.tensors.values()]
        names = [n for one in loaded for n in one.tensors] if named else [p.stem for p in pieces]
        return Loaded(path, dict(zip(names, tensors, strict=True)), named)
    files = sorted(f for f in path.iterdir() if f.suffix in (".npy", ".npz", ".safetensors"))
    folders = sorted((f for f in path.iterdir() if f.is_dir()), key=_number)
    found: dict[str, Array] = {}
    for inner in (*files, *folders):
        if inner.is_dir() and not any(inner.iterdir()):
            continue
        for name, value in load(inner, role, part).tensors.items():
            found[name if inner.suffix == ".npy" else f"{inner.stem}/{name}"] = value
    if not found:
        raise UsageError("no tensor files in this folder", str(path), DO)
    return Loaded(path, found, ordered=False)


def _number(path: Path) -> tuple[int, str]:
    """Files numbered at the end in the order of their numbers: output_10 after output_9."""
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdigit() else -1, path.name)


def _snapshot(folder: Path, index: Path) -> Loaded:
    inner = folder / "npy" if (folder / "npy").is_dir() else folder
    tensors = {}
    for layer, name in _layers(index, inner):
        file = inner / name
        if not file.exists():
            raise UsageError(f"layer {layer} has no {file.name}", str(inner), "run the accuracy analysis again")
        tensors[layer] = next(iter(load(file).tensors.values()))
    if not tensors:
        raise UsageError("the snapshot lists no layers", str(index), "run the accuracy analysis again")
    return Loaded(folder, tensors)


def _layers(index: Path, inner: Path) -> Iterator[tuple[str, str]]:
    """(layer, file name) in the order that the layers run; without the table, the files by name."""
    if not index.exists():
        yield from ((file.stem, file.name) for file in sorted(inner.glob("*.npy")))
        return
    for line in index.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].endswith((".txt", ".npy")):
            yield words[0], words[1][:-4] + ".npy"
