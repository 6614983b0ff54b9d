"""`npu-verify pack`: everything that a verdict rests on, in a folder that runs and judges without toolkit or torch."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from verify import bundle, schemas
from verify.core import Accuracy, Artifact, Candidate, Case, UsageError
from verify.store import Store, file_digest

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def pack(candidate: Candidate, out: Path | None, store: Store, progress: Any) -> str:
    """Check the candidate (from the cache where nothing changed) and lay a bundle out; returns what to tell the user.

    `out` appears complete or not at all. Raises UsageError when it exists, or for a variant with the user's own runner.
    """
    from verify.gating import examine

    out = out or Path(f"{candidate.model}-{candidate.variant.name}.bundle")
    if out.exists():
        raise UsageError("already exists", str(out), "name a new folder with --out")
    if candidate.variant.run:
        do = "pack another variant; the runs of this one can still be judged again from their run folder"
        raise UsageError("a runner of your own cannot be packed: it is code", candidate.name, do)
    with store.work() as work, _beside(out) as folder:
        run = work / "run"
        examine(candidate, run=run, store=store, progress=progress, command=_command(candidate))
        with progress.step("packing"):
            verdict = _evidence(run, folder)
            counts, notes = _inputs(candidate, run, folder, progress)
            _declaration(candidate, folder, counts)
            facts = {"candidate": candidate.name, "outcome": verdict, "holds": counts, "notes": notes}
            bundle.seal(folder, facts)
        folder.rename(out)
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    held = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    lines = [f"{out}: {len(files)} files, {size:.1f} MB: {held}; verdict {verdict}"]
    lines += [f"Not in it: {note}" for note in notes]
    lines += [f"Elsewhere: npu-verify judge {out.name}   (or: npu-verify check {out.name}/candidate.toml)"]
    return "\n".join(lines)


def _command(candidate: Candidate) -> str:
    return f"npu-verify check candidate.toml --variant {candidate.variant.name}"


@contextlib.contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder next to `out`, so that the last step is a rename; gone if that is not reached, however it ends."""
    from verify.process import sweeping

    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", str(out), "name another with --out") from None
    with sweeping(folder):
        try:
            folder.chmod(0o755)  # mkdtemp's own 0700 would go along with the bundle
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _evidence(run: Path, folder: Path) -> str:
    """The run folder as it is, with paths that hold anywhere; returns the verdict's outcome."""
    from verify.judge import judge
    from verify.policy import Policy
    from verify.stored import from_document
    from verify.verdict import _plain

    shutil.copytree(run, folder, dirs_exist_ok=True)
    document = schemas.read(run / "run.json", "run")
    for leg in document["legs"]:
        leg["log"] = os.path.basename(leg["log"])
    document["folder"] = ""
    (folder / "run.json").write_text(json.dumps(document))
    verdict = judge(from_document(document), Policy())
    (folder / "verdict.json").write_text(verdict.to_json())
    held: dict[str, Any] = _plain({"outcome": verdict.outcome})
    return str(held["outcome"])


def _inputs(candidate: Candidate, run: Path, folder: Path, progress: Any) -> tuple[dict[str, int], list[str]]:
    """Cases, calibration, scored samples and the source's outputs for them; how many of each, and what is not there."""
    from verify.backends.source import SourceBackend
    from verify.cases import load_calibration, load_cases, score_cases

    graph = Artifact("graph", run / "graph.onnx", file_digest(run / "graph.onnx"))
    cases, calibration = load_cases(candidate, graph), load_calibration(candidate, graph)
    scored = schemas.read(run / "run.json", "run")["scored"]
    wanted = max(
        (len(a) + held.get("repeated", 0) for held in scored.values() for a, _ in held["pairs"].values()), default=0
    )
    own = candidate.accuracy is None or not candidate.accuracy.cases
    samples = islice(() if own else score_cases(candidate, graph.path), wanted)
    foreign, notes = _foreign(candidate), []
    if foreign:
        notes.append(
            f"the score {foreign}, which is code of yours: the outputs' agreement with the source is scored there"
        )
    if candidate.variant.builder not in ("", "onnxruntime"):
        notes.append(
            f"{candidate.variant.builder}: a check elsewhere measures only what it can run; judge has all of it"
        )
    if candidate.python:
        notes.append(f"the interpreter {candidate.python}: name one there with [toolkit] python")
    with SourceBackend().open(candidate, graph) as source:
        run_source = _recorder(candidate, source, folder / "source", _recorded(run))
        counts = {"cases": _write(folder / "cases", map(run_source, cases), keep_expected=not (foreign and own))}
        counts["scored samples"] = _write(folder / "scored", map(run_source, samples), keep_expected=not foreign)
    counts["calibration samples"] = _write(folder / "calibration", calibration, keep_expected=False)
    return counts, notes


def _foreign(candidate: Candidate) -> str:
    """The score's reference where it is the user's code, else ""."""
    score = (candidate.accuracy or Accuracy()).score
    return score if ":" in score else ""


def _recorded(run: Path) -> Mapping[str, Any]:
    """What the source returned in the run that was judged, by case."""
    from verify import recording

    entries = schemas.read(run / "run.json", "run")["recordings"]
    return {e["case"]: recording.load(e, run / "recordings").outputs for e in entries if e["role"] == "source"}


def _recorder(candidate: Candidate, source: Any, folder: Path, known: Mapping[str, Any]) -> Any:
    from verify.backends import replay
    from verify.cases import prepare

    own = dict(known)

    def record(case: Case) -> Case:
        feeds = prepare(candidate, case.inputs)
        outputs = own.pop(
            case.name, None
        )  # the candidate's own cases come first; a scored sample may bear such a name too
        replay.store(folder, feeds, outputs if outputs is not None else source.run(feeds), "source")
        return case

    return record


def _write(folder: Path, cases: Iterable[Case], keep_expected: bool) -> int:
    """One .npz a case, in order: members are inputs, and "expected.NAME" what is expected."""
    from verify.case_files import EXPECTED

    count, taken = 0, set[str]()
    for case in cases:
        folder.mkdir(exist_ok=True)
        stem = case.name if PLAIN.fullmatch(case.name) and case.name.lower() not in taken else f"case-{count}"
        taken.add(stem.lower())
        expected = case.expected if keep_expected and case.expected is not None else {}
        _savez(folder / f"{stem}.npz", {**case.inputs, **{EXPECTED + name: v for name, v in expected.items()}})
        count += 1
    return count


def _savez(path: Path, arrays: Mapping[str, Any]) -> None:
    """numpy.savez takes names as keyword arguments, of which it needs some itself ("file"): so by hand."""
    import zipfile

    import numpy as np

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            held = np.asarray(array)
            held = held.astype(str) if held.dtype.kind == "O" else held  # text; pickles are never read back
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.save(stream, held, allow_pickle=False)


def _declaration(candidate: Candidate, folder: Path, counts: Mapping[str, int]) -> None:
    """The bundle's candidate.toml: the same, with files in place of code."""
    from verify.toml_out import key, table

    variant, declared = candidate.variant, candidate.accuracy or Accuracy()
    top = {"model": candidate.model, "target": variant.target, "source": "source", "graph": "graph.onnx"}
    held = {
        **top,
        "cases": "cases/*.npz",
        "time_limit": candidate.time_limit,
        "traits": sorted(candidate.traits) or None,
        "batch_axis": False if candidate.batch_axis == -1 else candidate.batch_axis,
    }
    parts = ["# Packed by npu-verify; bundle.json holds the digest of every file here.\n", table("", held)]
    for name, spec in candidate.inputs.items():
        shown = {k: v or None for k, v in dataclasses.asdict(spec).items() if k != "name"}
        parts.append(table(f"input.{key(name)}", shown))
    accuracy: dict[str, Any] = {"cases": "scored/*.npz" if counts["scored samples"] else None}
    margin = declared.margin
    if _foreign(candidate):
        parts.append(f"# The score was {_foreign(candidate)}: code, which is not in here. This is the default one.\n")
        margin = max(margin, Accuracy.margin)  # a narrower one would need more samples than were scored and packed
    accuracy |= {"score": "agreement" if _foreign(candidate) else declared.score, "margin": margin}
    parts.append(table("accuracy", {**accuracy, "batch": declared.batch, "alpha": declared.alpha}))
    if candidate.budgets:
        parts.append(table("budget", candidate.budgets))
    parts.append(table(f"variant.{key(variant.name)}", _variant(candidate, folder, counts)))
    (folder / "candidate.toml").write_text("\n".join(parts), encoding="utf-8")


def _variant(candidate: Candidate, folder: Path, counts: Mapping[str, int]) -> dict[str, Any]:
    variant, settings = candidate.variant, {name: dict(held) for name, held in candidate.variant.settings.items()}
    identity = schemas.read(folder / "run.json", "run")["candidate"]
    artifact = next((a["name"] for a in identity["artifacts"] if a["role"] == "device"), "")
    if variant.artifact:  # built elsewhere: it is what the device ran, whatever was built here beside it
        given = candidate.folder / variant.artifact
        artifact = given.name
        shutil.copy2(given, folder / artifact)
    elif variant.builder == "onnxruntime" and variant.precision == "fp32":
        # it was fused when it was built, and some fusions cannot be loaded when they are done twice
        settings["onnxruntime"] = {**settings.get("onnxruntime", {}), "optimization": "off"}
    return {
        "precision": variant.precision,
        "builder": variant.builder or None,
        "artifact": artifact if artifact and (folder / artifact).is_file() else None,
        "calibration": "calibration/*.npz" if counts["calibration samples"] else None,
        **settings,
    }
