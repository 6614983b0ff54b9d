"""Candidate -> Plan -> Build -> Recordings -> Trial: everything that runs a model happens here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from verify.backends.source import SourceBackend
from verify.cases import (
    digest_cases,
    laid_out,
    load_calibration,
    load_cases,
    prepare,
    rknn_input_settings,
    same_file,
    score_cases,
)
from verify.core import Artifact, Build, Candidate, Case, Missing, NotComparable, Tensors
from verify.environs import watching_environment
from verify.floor.kept import floor
from verify.frozen import frozen
from verify.graphs import info
from verify.keys import capture_key
from verify.plan import LAYER_CASES, Plan
from verify.protocols import LiveBuild, Session, load
from verify.references import references
from verify.scoring import score
from verify.settled import settling
from verify.stage import Stage, given, graph_of, record
from verify.store import Store
from verify.trial import Trial
from verify.usercode import recording_files


def simulate(stage: Stage, live: LiveBuild, graph: info.GraphInfo) -> None:
    """The simulator's recordings, and the dumps of the layer cases laid against the reference's inner tensors."""
    from verify.floor.rewritten import moved
    from verify.graphs.align import align
    from verify.graphs.assume import assume

    goldens: list[Tensors] = []
    optimised: dict[str, dict[str, float]] = {}
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
            found, stage.facts["unmatched"] = align(goldens, inner, producers)
            stage.facts["alignment"] = found
            assumed = assume(graph, found, inner, [dumped for dumped, _ in simulated.values()])
            stage.facts["assumed"] = assumed
            pairs = zip(simulated, inner, goldens, strict=True)
            optimised = {case: moved({**found, **assumed}, held, golden) for case, held, golden in pairs}
        if len(goldens) < 2:
            stage.notes.append("one case only: layers are matched on it alone, so a match may be by chance")
    with stage.progress.step(f"simulating {len(stage.cases)} cases"):

        def run(case: Case) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
            layers, isolated = simulated.get(case.name, ({}, {}))
            told = {"isolated": isolated, "optimised": optimised.get(case.name, {})}
            return Fed(stage.candidate, live).run(case.inputs), layers, told

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


def capture(
    candidate: Candidate, plan: Plan, store: Store, progress: Any, work: Path, started: float | None = None
) -> tuple[Trial, Stage]:
    """Run what `plan` asks for, from the cache where nothing changed; raises UsageError for unusable input.

    `started` is the time (seconds since 1970) since when user code may have read its files; the default is now.
    """
    from verify import cached

    stage = Stage(candidate, plan, store, progress, work, started=started or time.time())
    with recording_files() as opened, watching_environment(), ExitStack() as stack:
        with progress.step("loading the model and its cases", expected_seconds=6):
            graph = graph_of(stage)
            stage.cases = load_cases(candidate, graph)
            calibration = load_calibration(candidate, graph)
            stage.facts["calibration"] = digest_cases(calibration)
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
        if stage.plan.floor:
            stage.facts["floor"] = floor(stage, graph, build, key)
    if build is not None:
        stage.files[build.artifact.path.name] = build.artifact.path
        if build.log is not None:
            stage.files["build.log"] = build.log
    return trial_of(stage, graph, build, key), stage


def trial_of(stage: Stage, graph: Artifact, build: Build | None, key: str) -> Trial:
    """What the checkers measure; of the graph's inner tensors only those that something is compared with are kept."""
    alignment = stage.facts.get("alignment", {})
    assumed = stage.facts.get("assumed", {})
    held = {match.tensor for match in (*alignment.values(), *assumed.values())} | {
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
        assumed=assumed,
        scored=stage.facts.get("scored", {}),
        notes=tuple(stage.notes),
        facts={k: v for k, v in stage.facts.items() if k in ("not_comparable", "hit", "unsteady", "floor")}
        | {"graph": graph, "key": key, "frozen": frozen(stage.sites, stage.taken)},
    )
