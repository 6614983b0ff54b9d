"""The source model: a torch module, a callable, an ONNX file, or a folder of what it once returned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.backends import _ort
from verify.core import Artifact, Candidate, Missing, NotComparable, Tensors, UsageError
from verify.graphs.signature import Signature, signature
from verify.protocols import Session


@dataclass(frozen=True)
class SourceBackend:
    """Opens `candidate.source` in the precision that it is written in, torch modules in float32 or "float64"."""

    dtype: str = "float32"
    role: str = "source"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """`artifact` is the graph: its inputs and outputs give the names. Raises UsageError for an unusable source."""
        graph = signature(artifact.path)
        found = source(candidate)
        where = f"{candidate.name}, source"
        if isinstance(found, Path) and found.is_dir():
            yield Recorded(found, where)
        elif isinstance(found, Path):
            yield _onnx(found, graph, where)
        elif is_module(found):
            from verify.backends._torch import TorchSession, one_thread

            with one_thread():
                yield TorchSession.of(found, graph, self.dtype, folder(candidate), where)
        elif callable(found):
            yield CallableSession(found, graph, folder(candidate), where)
        else:
            do = "return a torch module, a callable on dicts of arrays, or the Path of an .onnx file"
            raise UsageError(f"returned a {type(found).__name__}", candidate.source, do)


def source(candidate: Candidate) -> Any:
    """What the candidate declares: the Path of an ONNX file, a torch module, or a callable. Raises UsageError."""
    from verify.usercode import is_reference, resolve

    declared = candidate.source
    found = resolve(declared, candidate.folder)() if is_reference(declared) else candidate.folder / declared
    return candidate.folder / found if isinstance(found, str | Path) else found


def folder(candidate: Candidate) -> Path:
    """The user's file that is to be blamed for what the source raises."""
    return (candidate.folder / candidate.source.rpartition(":")[0]).resolve()


def is_module(found: Any) -> bool:
    """Whether this is a torch module; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(found, torch.nn.Module)


def named(values: list[Any], graph: Signature, where: str) -> Tensors:
    """Outputs that came in order, under the graph's names; raises NotComparable when their number differs."""
    names = [port.name for port in graph.outputs]
    if len(values) != len(names):
        what = f"the source returned {len(values)} outputs, the graph has {len(names)}"
        raise NotComparable(what, where, f"return {', '.join(names)}, in this order")
    return dict(zip(names, values, strict=True))


def flat(result: Any) -> list[Any]:
    """Tensors of nested tuples, lists and mappings, in order; None is left out."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [leaf for item in result for leaf in flat(item)]
    return [] if result is None else [result]


def by_name(result: Any, graph: Signature) -> Mapping[str, Any] | None:
    """The result itself, in its own order, where it is a mapping with just the graph's output names."""
    names = {port.name for port in graph.outputs}
    return result if isinstance(result, Mapping) and set(result) == names else None


@dataclass(frozen=True)
class CallableSession:
    """A function from a dict of arrays to a dict of arrays (or to arrays in the graph's order)."""

    function: Callable[[Tensors], Any]
    graph: Signature
    path: Path
    where: str

    def run(self, feeds: Tensors) -> Tensors:
        """Raises NotComparable when outputs are missing or too many, UsageError when the function raises."""
        import numpy as np

        from verify.usercode import blaming

        with blaming(self.path):
            result = self.function({name: np.array(value) for name, value in feeds.items()})
        held = by_name(result, self.graph) or named(flat(result), self.graph, self.where)
        return {name: np.array(value) for name, value in held.items()}


@dataclass(frozen=True)
class Recorded:
    """What the source once returned, as a bundle carries it (verify.pack)."""

    folder: Path
    where: str
    evidence: str = "replay"

    def run(self, feeds: Tensors) -> Tensors:
        """Raises UsageError for inputs that were never recorded, and for a damaged recording."""
        from verify.backends.replay import ReplaySession

        try:
            return ReplaySession(self.folder, self.where).run(feeds)
        except Missing as error:
            do = "a bundle can only be asked what it was packed with; pack it again with these inputs among its cases"
            raise UsageError(error.what, error.where, do) from None


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX file whose inputs may be named differently than the graph's: then they go by position."""

    held: _ort.OrtSession
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def run(self, feeds: Tensors) -> Tensors:
        out = self.held.run({self.inputs[name]: value for name, value in feeds.items()})
        return {self.outputs[name]: value for name, value in out.items()}


def _onnx(path: Path, graph: Signature, where: str) -> OnnxSource:
    own = signature(path)
    held = _ort.session(path, _ort.options("off"), f"{where} {path.name}")
    return OnnxSource(held, _matched(graph.inputs, own.inputs, where), _matched(own.outputs, graph.outputs, where))


def _matched(left: Any, right: Any, where: str) -> dict[str, str]:
    """Names of one side to names of the other: equal names where the sets agree, else by position."""
    ours, theirs = [port.name for port in left], [port.name for port in right]
    if set(ours) == set(theirs):
        return {name: name for name in ours}
    if len(ours) != len(theirs):
        what = f"source and graph do not match: {', '.join(ours)} against {', '.join(theirs)}"
        raise UsageError(what, where, "give both the same inputs and outputs")
    return dict(zip(ours, theirs, strict=True))
