"""The content key of a build with its recordings and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from verify.cases import digest_cases, digest_depends, digest_scored
from verify.core import Artifact, Case, Recording
from verify.graphs.signature import signature
from verify.protocols import load
from verify.stage import Stage, given
from verify.store import code_version, file_digest, key_of, packages


def fingerprint(recordings: Sequence[Recording]) -> str:
    """What a role computed, as a digest: changed weights change it, however they were read."""
    return digest_cases([Case(r.case, r.outputs) for r in recordings])


def capture_key(stage: Stage, graph: Artifact, calibration: Sequence[Case]) -> str:
    """The content key of a build with its recordings and scores (design, section 10).

    What user code opens is not in it, as some of it is opened only later: the entry itself is held against that.
    """
    from verify.host import host

    candidate = stage.candidate
    builder = load("verify.builders", candidate.variant.builder)() if candidate.variant.builder else None
    return key_of(
        {
            "code": code_version(),
            "graph": graph.sha256,
            "external": {path.name: file_digest(path) for path in signature(graph.path).external},
            "variant": asdict(candidate.variant),
            "artifact": elsewhere.sha256 if (elsewhere := given(candidate)) else "",
            "inputs": {name: asdict(spec) for name, spec in candidate.inputs.items()},
            "accuracy": asdict(candidate.accuracy) if candidate.accuracy else None,
            "calibration": digest_cases(calibration) if calibration else "",
            "cases": digest_cases(stage.cases),
            "scored": digest_scored(candidate),
            "depends": digest_depends(candidate),
            "source": fingerprint(stage.recordings["source"]),
            "layers": stage.plan.layers,
            "toolkit": builder.environment(candidate) if builder else {},
            "packages": packages(),
            "host": host(),
        }
    )
