"""Where cases come from: a function, .npz and .npy files, ONNX test data sets, images, the toolkit's dataset.txt.

* "build.py:cases": a function that returns an iterable of `Case`, or of dicts of arrays by input name.
* "cases/*.npz" (or a folder of them): members are input names; a member "expected.NAME" is a label or expected output.
* "data/test_data_set_*" (or the folder that holds them): input_N.pb in the graph's input order, output_N.pb likewise.
* "images/*.png" (or a folder of them): one image a case, for a model with one input that has a layout and a fixed
  shape; resized to it, in the declared colour order, as uint8 (where mean and std are declared) or float32, 0 to 255.
* "dataset.txt": one case a line, a file (.npy or an image) per input in the graph's order, relative to dataset.txt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from verify.case_images import SUFFIXES, image
from verify.case_protos import data_set, natural
from verify.core import Array, Candidate, Case, UsageError
from verify.graphs.signature import Port, Signature
from verify.npz import read_npz
from verify.usercode import is_reference

EXPECTED = "expected."


def read(candidate: Candidate, source: str, graph: Signature | None) -> Iterator[Case]:
    """The cases of `source` one by one, unchecked; `graph` is needed where files carry no input names."""
    if is_reference(source):
        yield from _function(candidate, source)
        return
    files = _files(candidate.folder, source)
    names = [path.stem if path.is_file() else path.name for path in files]
    if len(set(names)) < len(names):
        names = [os.path.relpath(path, candidate.folder) for path in files]
    for name, path in zip(names, files, strict=True):
        if path.is_dir():
            yield data_set(name, path, graph)
        elif path.suffix == ".npz":
            yield _npz(name, path)
        elif path.suffix == ".txt":
            yield from _dataset(path, candidate, graph)
        elif path.suffix.lower() in (*SUFFIXES, ".npy"):
            ports = _ports(graph, candidate, path)
            if len(ports) != 1:
                do = "use .npz files (members are input names) or a dataset.txt (a file per input)"
                raise UsageError(f"is one array, but the model has {len(ports)} inputs", str(path), do)
            yield Case(name, {ports[0].name: _array(path, candidate, ports[0])})
        else:
            raise UsageError("is no file of cases", str(path), "use .npz, .npy, images, dataset.txt, test_data_set_*")


def _function(candidate: Candidate, source: str) -> Iterator[Case]:
    from verify.usercode import resolve

    found = resolve(source, candidate.folder)()
    if isinstance(found, Mapping | str | bytes | Case) or not hasattr(found, "__iter__"):
        raise UsageError(f"returned a {type(found).__name__}", source, "return Cases, or dicts of arrays")
    for index, item in enumerate(found):
        if isinstance(item, Mapping):
            item = Case(f"case{index}", item)
        if not isinstance(item, Case) or not isinstance(item.inputs, Mapping):
            raise UsageError(f"gave a {type(item).__name__}", source, "give Case(name, inputs) or a dict of arrays")
        yield item


def _files(folder: Path, source: str) -> list[Path]:
    """The files (or test_data_set folders) that a path or glob names, in natural order; UsageError if none."""
    import glob

    found = sorted(map(Path, glob.glob(os.path.join(glob.escape(str(folder)), source), recursive=True)), key=natural)
    if not found:
        raise UsageError("no such file or folder", str(folder / source), "name existing cases, or put them there")
    files: list[Path] = []
    for path in found:
        if path.is_file() or _is_test_data(path):
            files.append(path)
            continue
        inside = sorted(path.iterdir(), key=natural)
        wanted = [p for p in inside if _is_test_data(p)] or [p for p in inside if p.suffix == ".npz"]
        wanted = wanted or [p for p in inside if p.suffix.lower() in (*SUFFIXES, ".npy")]
        if not wanted:
            raise UsageError("holds no cases", str(path), "put .npz files, images or test_data_set folders there")
        files += wanted
    return files


def files_of(candidate: Candidate, source: str) -> list[Path]:
    """Every file that the cases of `source` are read from, [] for a function; raises UsageError if there is none."""
    if is_reference(source):
        return []
    found: list[Path] = []
    for path in _files(candidate.folder, source):
        found += sorted(path.glob("*.pb")) if path.is_dir() else [path]
        if path.suffix == ".txt":
            named = (path.parent / word for word in path.read_text(encoding="utf-8", errors="replace").split())
            found += [file for file in named if file.is_file()]
    return found


def _is_test_data(path: Path) -> bool:
    return path.is_dir() and any(path.glob("input_*.pb"))


def _npz(name: str, path: Path) -> Case:
    members = read_npz(path)
    inputs = {key: value for key, value in members.items() if not key.startswith(EXPECTED)}
    expected = {key[len(EXPECTED) :]: value for key, value in members.items() if key.startswith(EXPECTED)}
    return Case(name, inputs, expected or None)


def _ports(graph: Signature | None, candidate: Candidate, path: Path) -> Sequence[Port]:
    if graph is not None:
        return graph.inputs
    if len(candidate.inputs) == 1:
        spec = next(iter(candidate.inputs.values()))
        return [Port(spec.name, "float32", None)]
    raise UsageError("the model's inputs are not known here", str(path), 'use "file.py:function" or .npz files')


def _array(path: Path, candidate: Candidate, port: Port) -> Array:
    import numpy as np

    if path.suffix != ".npy":
        return image(path, candidate.inputs.get(port.name), port)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except Exception as error:  # numpy raises several kinds for broken files
        raise UsageError(f"not a readable .npy file ({error})", str(path), "write it again with numpy.save") from None


def _dataset(path: Path, candidate: Candidate, graph: Signature | None) -> Iterator[Case]:
    ports = _ports(graph, candidate, path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not (words := line.split()):
            continue
        if len(words) != len(ports):
            do = f"name one file per input: {' '.join(p.name for p in ports)}"
            raise UsageError(f"{len(words)} files in one line, {len(ports)} inputs", f"{path}, line {number}", do)
        inputs = {}
        for word, port in zip(words, ports, strict=True):
            file = path.parent / word
            if not file.is_file():
                raise UsageError(f"no such file: {word}", f"{path}, line {number}", "paths are relative to that file")
            inputs[port.name] = _array(file, candidate, port)
        yield Case(f"line{number}", inputs)
