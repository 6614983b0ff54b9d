"""Candidate -> Plan -> Build -> Recordings -> Trial: everything that runs a model happens here."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from verify.backends.graph import GraphBackend
from verify.backends.source import SourceBackend
from verify.bundle import left_out
from verify.cases import (
    digest_cases,
    digest_depends,
    digest_scored,
    laid_out,
    load_calibration,
    load_cases,
    prepare,
    rknn_input_settings,
    same_file,
    score_cases,
)
from verify.core import Artifact, Build, Candidate, Case, Missing, NotComparable, Recording, Tensors, UsageError
from verify.environs import watching_environment
from verify.frozen import Site, Watch, decided, frozen, of_export, taking, watching
from verify.graphs import info
from verify.graphs.signature import signature
from verify.plan import LAYER_CASES, Plan
from verify.protocols import LiveBuild, Session, load
from verify.scoring import score
from verify.settled import settling
from verify.steady import contradicted, unsteady
from verify.store import Store, code_version, file_digest, key_of, packages
from verify.trial import Trial
from verify.usercode import is_reference, recording_files


@dataclass
class Stage:
    """What one capture gathers on its way to a Trial.

    `files` are what the run folder should hold, `opened` what user code read, `sites` where the exporter took values
    out of its trace, `taken` the values that the source took there, case by case.
    """

    candidate: Candidate
    plan: Plan
    store: Store
    progress: Any
    work: Path
    cases: list[Case] = field(default_factory=list)
    recordings: dict[str, tuple[Recording, ...]] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    opened: set[Path] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    taken: list[Watch] = field(default_factory=list)
    started: float = field(default_factory=time.time)


def graph_of(stage: Stage) -> Artifact:
    """The ONNX graph of the candidate: a file, or exported now; what the exporter froze or warned of is kept."""
    from verify.cases import export_graph

    declared = stage.candidate.variant.graph or stage.candidate.graph
    with watching(stage.candidate, declared) as watch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = export_graph(stage.candidate, stage.work)
    sites, told = of_export(watch, caught)
    stage.sites += sites
    stage.notes += told
    stage.files["graph.onnx"] = path
    for weights in signature(path).external:
        stage.files[str(weights.relative_to(path.parent))] = weights
    return Artifact("graph", path, file_digest(path))


def record(
    stage: Stage, role: str, run: Callable[[Case], tuple[Tensors, Tensors, Mapping[str, Any]]], evidence: str
) -> tuple[Recording, ...]:
    """Run every case once in one role; `run` returns outputs, inner tensors and the integrity record."""
    done = []
    for case in stage.cases:
        start = time.perf_counter()
        outputs, layers, integrity = run(case)
        seconds = time.perf_counter() - start
        done.append(Recording(role, case.name, outputs, layers, integrity, {}, seconds, evidence))
    return tuple(done)


def references(stage: Stage, graph: Artifact, source: Session) -> None:
    """The source's and the graph's own recordings; the graph's inner tensors for the cases that need them."""
    candidate, wanted = stage.candidate, info.read(graph.path)
    indexed = any(wanted.indexed(name) for name in wanted.outputs)
    with (
        stage.progress.step("running source and graph"),
        GraphBackend(instrument=False).open(candidate, graph) as plain,
    ):

        def of_source(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            stage.taken.append(Watch())
            with taking(stage.taken[-1]):
                return source.run(prepare(candidate, case.inputs)), {}, {}

        def of_graph(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            fed = prepare(candidate, case.inputs)
            return plain.run(fed), {}, {"inputs": fed, "given": case.inputs}

        evidence = getattr(source, "evidence", "reference")
        if evidence == "replay":
            stage.notes.append("the source model is not here: its outputs are those that were recorded with the bundle")
            stage.notes += [f"not in the bundle: {note}" for note in left_out(candidate.folder)]
        stage.recordings["source"] = record(stage, "source", of_source, evidence)
        if not is_reference(candidate.variant.graph or candidate.graph):
            stage.notes += decided(stage.taken)
        axes = max((v.ndim for r in stage.recordings["source"] for v in r.outputs.values()), default=0)
        if candidate.batch_axis and candidate.batch_axis >= axes:  # no slot would be looked at
            what = f"batch_axis = {candidate.batch_axis}, and no output has more than {axes} axes"
            raise UsageError(what, str(candidate.folder / "candidate.toml"), "count from 0, or leave it out")
        stage.notes += contradicted(stage.cases, stage.recordings["source"])
        stage.recordings["graph"] = record(stage, "graph", of_graph, "reference")
        for role, session in (("source", source), ("graph", plain)):
            again = session.run(prepare(candidate, stage.cases[0].inputs))
            changed = unsteady(stage.recordings[role][0].outputs, again)
            if changed:
                stage.facts["unsteady"] = role
                what = f"gives another answer when it is asked again ({changed}), so nothing can be held against it"
                do = "seed it, keep no state between calls, and switch dropout off"
                raise NotComparable(what, f"{candidate.name}, {role}, case {stage.cases[0].name}", do)
    if indexed or (stage.plan.layers and candidate.variant.builder == "rknn"):
        some = len(stage.cases) if indexed else LAYER_CASES
        held = list(stage.recordings["graph"])
        with GraphBackend(instrument=True).open(candidate, graph) as opened:
            for i, case in enumerate(stage.cases[:some]):
                _, layers = opened.run_all(prepare(candidate, case.inputs))
                held[i] = replace(held[i], layers=layers)
        stage.recordings["graph"] = tuple(held)


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


def simulate(stage: Stage, live: LiveBuild, graph: info.GraphInfo) -> None:
    """The simulator's recordings, and the dumps of the layer cases laid against the reference's inner tensors."""
    from verify.graphs.align import align

    goldens: list[Tensors] = []
    simulated: dict[str, tuple[Tensors, Mapping[str, float]]] = {}
    if stage.plan.layers:
        for case in stage.cases[:LAYER_CASES]:
            with stage.progress.step(f"dumping the layers of case {case.name}", expected_seconds=4):
                fed = replace(case, inputs=laid_out(stage.candidate, case.inputs))
                dump = live.layers(fed, stage.work / f"layers-{len(goldens)}")
            goldens.append(dump.golden)
            simulated[case.name] = (dump.simulated, _isolated(dump))
        with stage.progress.step("matching layer dumps to the reference by value"):
            inner = [{**r.layers, **r.outputs} for r in stage.recordings["graph"][: len(goldens)]]
            producers = {tensor: node.op for tensor, node in graph.producer.items()}
            stage.facts["alignment"], stage.facts["unmatched"] = align(goldens, inner, producers)
        if len(goldens) < 2:
            stage.notes.append("one case only: layers are matched on it alone, so a match may be by chance")
    with stage.progress.step(f"simulating {len(stage.cases)} cases"):

        def run(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            layers, isolated = simulated.get(case.name, ({}, {}))
            return Fed(stage.candidate, live).run(case.inputs), layers, {"isolated": isolated}

        stage.recordings["simulator"] = record(stage, "simulator", run, "simulator")


def _isolated(dump: Any) -> dict[str, float]:
    """Each layer's own relative error from the vendor's Euclid distance and the golden tensor's norm, where stated."""
    out = {}
    for name, (_, _, _, distance) in getattr(dump, "vendor", {}).items():
        if distance is not None and name in dump.golden:
            size = float(np.linalg.norm(np.asarray(dump.golden[name], np.float64).ravel()))
            if size > 0:
                out[name] = float(distance) / size
    return out


def given(candidate: Candidate) -> Artifact | None:
    """The file built elsewhere that the variant names, if it names one; raises UsageError when it is not there."""
    if not candidate.variant.artifact:
        return None
    path = candidate.folder / candidate.variant.artifact
    if not path.is_file():
        raise UsageError("no such file", str(path), "give the path of the built file, relative to candidate.toml")
    return Artifact("device", path, file_digest(path))


@contextmanager
def device(stage: Stage, build: Build | None) -> Iterator[tuple[Session, str]]:
    """The session that has the final say, and what kind of evidence it gives; raises Missing where there is none."""
    candidate = stage.candidate
    name = "user" if candidate.variant.run else {"cpu": "cpu", "gpu": "gpu"}.get(candidate.target, "npu")
    backend = load("verify.backends", name)()
    if build is None and name != "user" and not candidate.variant.artifact:
        raise Missing("nothing was built, so nothing can run on the device", candidate.name)
    runner = Artifact("device", candidate.folder / candidate.variant.run.split(":")[0], "")
    artifact = given(candidate) or (build.artifact if build else runner)
    with backend.open(candidate, artifact) as session:
        yield session, str(getattr(session, "evidence", "hardware"))


@dataclass(frozen=True)
class Source:
    """The source model, each scored sample run once however many roles are scored against it."""

    candidate: Candidate
    session: Session
    seen: dict[str, Tensors] = field(default_factory=dict)

    def __call__(self, case: Case) -> Tensors:
        if case.name not in self.seen:
            self.seen[case.name] = self.session.run(prepare(self.candidate, case.inputs))
        return self.seen[case.name]


def scored(stage: Stage, source: Source, session: Session, role: str, evidence: str) -> None:
    """Score one role against the source, if a checker asked for it; outputs that do not pair break that leg alone."""
    if stage.plan.score:
        with stage.progress.step(f"scoring {role} against the source"):
            graph = stage.files["graph.onnx"]
            samples = score_cases(stage.candidate, graph)
            try:
                with settling(stage.candidate, graph) as settle:
                    result = score(stage.candidate, samples, source, session, role, evidence, stage.progress, settle)
            except NotComparable as error:
                stage.facts.setdefault("not_comparable", {})[f"source~{role}"] = str(error)
                return
            stage.facts.setdefault("scored", {})[role] = result


def run_build(stage: Stage, graph: Artifact, calibration: Sequence[Case], source: Source) -> Build | None:
    """Build, dump, simulate and score in one child; a crash, a hang or a refusal is noted as missing evidence."""
    candidate, build = stage.candidate, None
    builder = load("verify.builders", candidate.variant.builder)()
    if candidate.variant.builder == "rknn":  # its mean and std are compiled in, the layout is not
        calibration = [replace(case, inputs=laid_out(candidate, case.inputs)) for case in calibration]
        for name, value in stage.cases[0].inputs.items():
            if value.ndim == 4 and not (name in candidate.inputs and candidate.inputs[name].layout):
                as_is = "taken as nchw, like the graph's; the toolkit's own default is nhwc"
                stage.notes.append(f"input {name} has 4 axes and no declared layout: {as_is}")
    title = f"building {candidate.variant.name} for {candidate.target} with {candidate.variant.builder}"
    try:
        with ExitStack() as stack:
            with stage.progress.step(title, expected_seconds=20):
                live = stack.enter_context(builder.open(_settings(candidate, graph), graph, calibration, stage.work))
            build = live.build
            if live.simulates:
                simulate(stage, live, info.read(graph.path))
                scored(stage, source, Fed(candidate, live), "simulator", "simulator")
    except Missing as error:
        stage.missing["simulator"] = error
        stage.recordings.pop("simulator", None)
        return None
    except NotComparable as error:
        stage.facts.setdefault("not_comparable", {})["graph~simulator"] = str(error)
    return build


def run_device(stage: Stage, build: Build | None, source: Source) -> None:
    """Run and score what has the final say: this machine's CPU, a board, or the user's own runner."""
    try:
        with device(stage, build) as (opened, evidence):
            session = Fed(stage.candidate, opened)
            with stage.progress.step(f"running {len(stage.cases)} cases on {stage.candidate.target}"):
                held = record(stage, "device", lambda c: (session.run(c.inputs), {}, {}), evidence)
                stage.recordings["device"] = held
            scored(stage, source, session, "device", evidence)
    except Missing as error:
        built = build is not None or not stage.candidate.variant.builder or bool(stage.candidate.variant.artifact)
        stage.missing["device"] = error if built else stage.missing.get("simulator", error)
    except NotComparable as error:
        stage.facts.setdefault("not_comparable", {})["graph~device"] = str(error)


@dataclass(frozen=True)
class Fed:
    """A session fed as the application feeds it: layout, mean and std are applied unless it does so by itself."""

    candidate: Candidate
    session: Session

    def run(self, feeds: Tensors) -> Tensors:
        variant = self.candidate.variant
        if variant.run:  # the user's runner stands where the application does
            return self.session.run(feeds)
        applied = laid_out if variant.builder == "rknn" else prepare  # there mean and std are compiled in
        return self.session.run(applied(self.candidate, feeds))


def _settings(candidate: Candidate, graph: Artifact) -> Candidate:
    extra = rknn_input_settings(candidate, graph.path) if candidate.variant.builder == "rknn" else {}
    if not extra:
        return candidate
    settings = {**candidate.variant.settings, "rknn": {**candidate.variant.settings.get("rknn", {}), **extra}}
    return replace(candidate, variant=replace(candidate.variant, settings=settings))


def capture(candidate: Candidate, plan: Plan, store: Store, progress: Any, work: Path) -> tuple[Trial, Stage]:
    """Run what `plan` asks for, from the cache where nothing changed; raises UsageError for unusable input."""
    from verify import cached

    stage = Stage(candidate, plan, store, progress, work)
    with recording_files() as opened, watching_environment(), ExitStack() as stack:
        with progress.step("loading the model and its cases", expected_seconds=6):
            graph = graph_of(stage)
            stage.cases = load_cases(candidate, graph)
            calibration = load_calibration(candidate, graph)
            source = stack.enter_context(SourceBackend().open(candidate, graph))
        stage.opened = opened
        if same_file(candidate, graph):
            stage.notes.append("source and graph are the same file: tier 1 proves nothing about the export")
        builds = bool(candidate.variant.builder)
        if given(candidate) is not None:
            builds = candidate.target != "cpu"  # a rebuild is needed for its simulator only
            what = "; the simulator's legs are those of a rebuild with the declared settings" if builds else ""
            stage.notes.append(f"the device runs {candidate.variant.artifact}, built elsewhere{what}")
        if candidate.variant.run:
            stage.notes.append(f"the device is what {candidate.variant.run} runs on, which nothing here can tell")
        try:
            references(stage, graph, source)
        except NotComparable as error:
            stage.facts["not_comparable"] = {"source~graph": str(error)}
            why = Missing("source and graph could not be compared, so nothing further was run", candidate.name)
            stage.missing.update(
                {role: why for role in ("graph", "simulator", "device") if role not in stage.recordings}
            )
            return trial_of(stage, graph, None, ""), stage
        key = capture_key(stage, graph, calibration)
        reference, local = Source(candidate, source), candidate.target == "cpu"
        with store.lock(key):
            build = cached.load(stage, key)
            if build is None and builds:
                build = run_build(stage, graph, calibration, reference)
                if local:  # this machine is the hardware, and the key names it: its runs are kept with the build
                    run_device(stage, build, reference)
                build = cached.keep(stage, key, build)
        if "device" not in stage.recordings and "device" not in stage.missing:
            run_device(stage, build, reference)
    if build is not None:
        stage.files[build.artifact.path.name] = build.artifact.path
        if build.log is not None:
            stage.files["build.log"] = build.log
    return trial_of(stage, graph, build, key), stage


def trial_of(stage: Stage, graph: Artifact, build: Build | None, key: str) -> Trial:
    """What the checkers measure; of the graph's inner tensors only those that something is compared with are kept."""
    alignment = stage.facts.get("alignment", {})
    held = {match.tensor for match in alignment.values()} | {
        i for n in info.read(graph.path).nodes for i in n.inputs[:1]
    }
    graphs = stage.recordings.get("graph", ())
    if graphs:
        kept = [replace(r, layers={k: v for k, v in r.layers.items() if k in held}) for r in graphs]
        stage.recordings["graph"] = tuple(kept)
    return Trial(
        candidate=stage.candidate,
        graph=info.read(graph.path),
        recordings=stage.recordings,
        missing=stage.missing,
        build=build,
        alignment=alignment,
        unmatched=stage.facts.get("unmatched", {}),
        scored=stage.facts.get("scored", {}),
        notes=tuple(stage.notes),
        facts={k: v for k, v in stage.facts.items() if k in ("not_comparable", "hit", "unsteady")}
        | {"graph": graph, "key": key, "frozen": frozen(stage.sites, stage.taken)},
    )
