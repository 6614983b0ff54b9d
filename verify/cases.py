"""Cases: read from where candidate.toml says, checked against the graph, digested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from verify.case_checks import checked, finite
from verify.case_files import files_of, read
from verify.core import Artifact, Candidate, Case, Tensors, UsageError
from verify.graphs.signature import signature
from verify.inputs import laid_out, prepare, rknn_input_settings
from verify.store import file_digest
from verify.usercode import ignore, is_reference, note, resolve

__all__ = [
    "digest_cases",
    "digest_depends",
    "digest_scored",
    "digest_tensors",
    "export_graph",
    "laid_out",
    "load_calibration",
    "load_cases",
    "prepare",
    "rknn_input_settings",
    "same_file",
    "score_cases",
]


#: Cases are held in memory, and so is what every role makes of each: a generator without end must not fill it (house
#: choice, far above the tens that the fixtures need).
MOST, LARGEST = 10_000, 4e9


def load_cases(candidate: Candidate, graph: Artifact) -> list[Case]:
    """The candidate's cases, each checked against the graph's inputs; raises UsageError, also when there are none."""
    return _load(candidate, candidate.cases, graph, "cases")


def load_calibration(candidate: Candidate, graph: Artifact) -> list[Case]:
    """The variant's calibration data, [] when none is declared; raises UsageError, also for NaN and Inf."""
    if not candidate.variant.calibration:
        return []
    cases = _load(candidate, candidate.variant.calibration, graph, "calibration")
    for case in cases:
        finite(case, candidate.variant.calibration)
    return cases


def _load(candidate: Candidate, source: str, graph: Artifact, what: str) -> list[Case]:
    ports = signature(graph.path)
    found: list[Case] = []
    size = 0
    for case in _named(read(candidate, source, ports), source, what):
        found.append(checked(case, candidate, ports, source))
        size += sum(value.nbytes for value in found[-1].inputs.values())
        if len(found) > MOST or size > LARGEST:
            do = "give fewer; samples to score go to [accuracy] cases, which are taken one at a time"
            raise UsageError(f"more than {MOST:,} {what} or {LARGEST / 1e9:g} GB of them", source, do)
    if not found:
        raise UsageError(f"no {what} there", source, "a verdict over nothing is no verdict; give at least one")
    return found


def _named(cases: Iterable[Case], source: str, what: str) -> Iterator[Case]:
    """The cases, each with a name that no other has: what was computed for one is found again by it."""
    seen: set[str] = set()
    for case in cases:
        if not isinstance(case.name, str) or not case.name:
            raise UsageError(f"a case has the name {case.name!r}", source, "name it with text")
        if case.name in seen:
            raise UsageError(f"two {what} are named {case.name!r}", source, "give each a name of its own")
        seen.add(case.name)
        yield case


def score_cases(candidate: Candidate, graph: Path | None = None) -> Iterator[Case]:
    """The scored samples, one at a time: [accuracy] cases, else the candidate's own. Raises UsageError.

    `graph` is the ONNX file that they are checked against; without it only what carries names can be read.
    """
    declared = candidate.accuracy.cases if candidate.accuracy else ""
    source = declared or candidate.cases
    if graph is None and not is_reference(candidate.variant.graph or candidate.graph):
        graph = candidate.folder / (candidate.variant.graph or candidate.graph)
    ports = signature(graph) if graph is not None else None
    empty = True
    for case in _named(read(candidate, source, ports), source, "scored samples"):
        empty = False
        yield checked(case, candidate, ports, source) if ports else case
    if empty:
        raise UsageError("no scored cases there", source, "give at least one; some hundreds decide a margin of 0.01")


def digest_scored(candidate: Candidate) -> dict[str, str]:
    """The sha256 of every file that scored samples of their own are read from, by its name relative to the candidate.

    {} for a function, whose files are seen when it opens them, and where the candidate's own cases are scored.
    """
    import os

    declared = candidate.accuracy.cases if candidate.accuracy else ""
    files = files_of(candidate, declared) if declared else []
    return {os.path.relpath(path, candidate.folder): file_digest(path) for path in files}


def digest_depends(candidate: Candidate) -> dict[str, str]:
    """The sha256 of every file that `depends` names now, by its name relative to the candidate."""
    import os

    return {os.path.relpath(path, candidate.folder): file_digest(path) for path in _depends(candidate)}


def digest_tensors(tensors: Tensors) -> bytes:
    """The sha256 of names, dtypes, shapes and values of some tensors, in order of their names."""
    import hashlib

    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = np.asarray(tensors[name])
        text = value.dtype.kind in "OUS"
        head = f"{len(name)}:{name}:{'str' if text else value.dtype.str}:{value.shape}:"
        digest.update(head.encode())
        if text:  # lengths too: ["ab", "c"] is not ["a", "bc"]
            for item in value.ravel():
                raw = item if isinstance(item, bytes) else str(item).encode()
                digest.update(f"{len(raw)}:".encode() + raw)
        else:
            digest.update(np.ascontiguousarray(value).data if value.size else b"")
    return digest.digest()


def digest_cases(cases: Iterable[Case]) -> str:
    """The sha256, in hexadecimal, over the cases' names, inputs and expected outputs, in order."""
    import hashlib

    digest = hashlib.sha256()
    for case in cases:
        digest.update(f"{len(case.name)}:{case.name}:".encode() + digest_tensors(case.inputs))
        digest.update(digest_tensors(case.expected) if case.expected is not None else b"-")
    return digest.hexdigest()


def export_graph(candidate: Candidate, work: Path) -> Path:
    """The ONNX graph of the variant: a file, or written into `work` now by the user's export(path).

    Raises UsageError when it is missing, truncated, or was not written.
    """
    declared = candidate.variant.graph or candidate.graph
    ignore(work)
    note(candidate.folder, _depends(candidate))
    if not is_reference(declared):
        path = candidate.folder / declared
        signature(path)
        return path
    folder = work / "graph"  # of its own: exporters may write weights beside the graph
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "graph.onnx"
    resolve(declared, candidate.folder)(path)
    if not path.is_file():
        raise UsageError("wrote no file", declared, "it is called as export(path) and must write the ONNX file there")
    try:
        signature(path)
    except UsageError as error:
        raise UsageError(f"wrote something unusable: {error.what}", declared, "write a complete ONNX file") from None
    return path


def _depends(candidate: Candidate) -> list[Path]:
    """The files that `depends` names; raises UsageError for a pattern that matches none."""
    import glob
    import os

    found = []
    for pattern in candidate.depends:
        names = glob.glob(os.path.join(glob.escape(str(candidate.folder)), pattern), recursive=True)
        if not names:
            raise UsageError(
                f"no file matches {pattern!r}", "candidate.toml, depends", "name existing files, or remove it"
            )
        found += [Path(name) for name in names]
    return [path for path in found if path.is_file()]


def same_file(candidate: Candidate, graph: Artifact) -> bool:
    """Whether source and graph are one file, so that the graph's tier says nothing about an export."""
    source = candidate.folder / candidate.source
    return source.is_file() and source.samefile(graph.path)
