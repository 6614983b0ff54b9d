"""Runs the scored samples in batches until the margin is decided, and keeps per-sample results only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from verify.cases import digest_cases
from verify.core import Accuracy, Candidate, Case, NotComparable, Tensors, UsageError
from verify.protocols import Score, Session
from verify.scores.sequential import decided
from verify.settled import Settle, as_they_are
from verify.trial import Scored


def scorer(candidate: Candidate) -> Score:
    """The declared score: "file.py:function" or a built-in; agreement with the source when none is declared."""
    from verify.protocols import load
    from verify.usercode import resolve

    name = (candidate.accuracy or Accuracy()).score
    found: Score = resolve(name, candidate.folder) if ":" in name else load("verify.scores", name)
    return found


#: By how much a score may be beyond [0, 1]: float32's rounding of a cosine, for one.
SLACK = 1e-6
#: Samples after which an undecided margin stays so: a generator may have no end (house choice; a margin of 0.001 needs
#: 3,000 where nothing differs).
MOST = 100_000


def rated(function: Score, name: str, case: Case, expected: Tensors, outputs: Tensors) -> dict[str, float]:
    """What the score `name` gives these outputs, by name; NaN and infinities are left for `losses` to count.

    It gets copies, as it may sort or normalise in place. Raises UsageError for what is no number, or beyond [0, 1].
    """
    result = function(*({k: np.array(v) for k, v in held.items()} for held in (expected, outputs)))
    where = f"score {name}, sample {case.name}"
    do = "return a number within [0, 1], higher is better, or several by name"
    try:
        held = result if isinstance(result, Mapping) else {"score": np.mean(result)}
        found = {str(key): float(value) for key, value in held.items()}
    except (TypeError, ValueError):
        raise UsageError(f"gave {result!r:.60}, which is no number", where, do) from None
    for key, value in found.items():
        if math.isfinite(value) and not -SLACK <= value <= 1 + SLACK:
            raise UsageError(f"{key} = {value:g} is beyond [0, 1]", where, do)
    if not found:
        raise UsageError("gave no number at all", where, do)
    return found


def losses(source: Sequence[float], candidate: Sequence[float]) -> list[float]:
    """Source's score minus candidate's, per sample, within [-1, 1]; what is not a number is the worst loss, 1."""
    pairs = zip(source, candidate, strict=True)
    return [min(1.0, max(-1.0, a - b)) if math.isfinite(a) and math.isfinite(b) else 1.0 for a, b in pairs]


#: Bytes of an integer that is a position or a label, which has no distance; narrower ones are codes of numbers.
WIDE = 4


def distances(wanted: Tensors, got: Tensors) -> dict[str, float]:
    """Relative L2 error, cosine distance and a changed top-1, each the worst output's; NaN where one is not finite.

    Of positions, labels, bool and text the relative error is the share that is not equal.
    """
    out = {"relative_error": 0.0, "cosine_distance": 0.0, "top1_flip": 0.0}
    for name, value in wanted.items():
        if name not in got:
            raise NotComparable(f"output {name} did not come back", "scored sample")
        if got[name].shape != value.shape:
            raise NotComparable(f"output {name}: shape {value.shape} vs {got[name].shape}", "scored sample")
        if value.dtype.kind not in "fiubOUS" or not value.size:
            continue
        if value.dtype.kind in "bOUS" or (value.dtype.kind in "iu" and value.dtype.itemsize >= WIDE):
            out["relative_error"] = max(out["relative_error"], float(np.mean(value != got[name])))
            continue
        a, b = value.astype(np.float64).ravel(), got[name].astype(np.float64).ravel()
        size, other = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        error = float(np.linalg.norm(a - b))
        relative = error / size if size else (0.0 if error == 0 else float("inf"))
        with np.errstate(invalid="ignore"):  # NaN comes out as NaN, which is what is wanted
            cosine = float(a @ b / (size * other)) if size and other else (1.0 if error == 0 else 0.0)
        flip = float(value.ndim > 0 and value.shape[-1] > 1 and (value.argmax(-1) != got[name].argmax(-1)).mean())
        for key, number in (("relative_error", relative), ("cosine_distance", 1 - cosine), ("top1_flip", flip)):
            out[key] = max(out[key], number) if number == number else number
    return out


def score(
    candidate: Candidate,
    samples: Iterable[Case],
    source: Callable[[Case], Tensors],
    session: Session,
    role: str,
    evidence: str,
    progress: Any,
    settle: Settle = as_they_are,
) -> Scored:
    """Score samples paired until every score's margin is decided either way, or the samples run out.

    Each sample is scored twice, source and candidate, against its labels (or the source's outputs where it has none).
    A sample that was there before tells nothing new, so it counts once: the bounds are for independent ones.
    `settle` makes indices of ties comparable; a score of the user's own gets what really came back.
    """
    declared, function = candidate.accuracy or Accuracy(), scorer(candidate)
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    distance: dict[str, list[float]] = {}
    exhausted, count, seen, repeated = True, 0, set[str](), 0
    for case in samples:
        content = digest_cases([Case("", case.inputs, case.expected)])
        if content in seen:
            repeated += 1
            if count + repeated >= MOST:
                break
            continue
        seen.add(content)
        wanted, got = source(case), session.run(case.inputs)
        fair = settle(case, wanted, got)
        for key, value in distances(wanted, fair).items():
            distance.setdefault(key, []).append(value)
        expected = case.expected if case.expected is not None else wanted
        ours, theirs = (
            rated(function, declared.score, case, expected, outputs)
            for outputs in (wanted, fair if declared.score == "agreement" else got)
        )
        for name in ours.keys() | theirs.keys():
            first, second = pairs.setdefault(name, ([], []))
            first.append(ours.get(name, float("nan")))
            second.append(theirs.get(name, float("nan")))
        count += 1
        progress.count(count, None, f"scoring {role}")
        if count % declared.batch == 0 and _settled(pairs, declared):
            exhausted = False
            break
        if count + repeated >= MOST:
            break
    frozen = {name: (tuple(a), tuple(b)) for name, (a, b) in pairs.items()}
    return Scored(role, frozen, {k: tuple(v) for k, v in distance.items()}, exhausted, evidence, repeated)


def _settled(pairs: Mapping[str, tuple[list[float], list[float]]], declared: Accuracy) -> bool:
    verdicts = []
    for source, candidate in pairs.values():
        verdicts.append(decided(losses(source, candidate), declared.margin, declared.alpha))
    return "fail" in verdicts or (bool(verdicts) and all(v == "pass" for v in verdicts))
