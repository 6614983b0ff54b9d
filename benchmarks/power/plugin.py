"""The builder and the checker through which faults get in and tensors get out: plug-ins like anybody's.

`offered` writes the entry points of a distribution that lies behind every other on the import path, so that its
`rknn` is the one that is loaded. The builder compiles the file `compiled.onnx` of the candidate's folder where there is
one, with the vendor's toolkit and as the real builder does; the engine knows only the right graph.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from verify.build.rknn import RknnBuilder, RknnDump
from verify.cases import digest_cases, digest_tensors
from verify.core import Artifact, Build, Candidate, Case, Measurement, Missing, RunSpec, Tensors, Tier, Where
from verify.store import file_digest, key_of
from verify.trial import Trial

FAULTY = "compiled.onnx"
ROOT = Path(__file__).resolve().parents[2]


def offered() -> Path:
    """A folder with this checkout's own entry points and the two of this module, put on the import path."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    groups = {name: dict(held) for name, held in declared.items() if name.startswith("verify.")}
    groups["verify.builders"]["rknn"] = f"{__name__}:Compiler"
    groups["verify.checkers"]["observed"] = f"{__name__}:Observed"
    folder = Path(tempfile.mkdtemp(prefix="npu-verify-power-"))
    info = folder / "npu_verify_power-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-verify-power\nVersion: 0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in held.items()) for group, held in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.append(str(folder))
    return folder


#: Where the builds of this benchmark are kept: a changed tool measures them again without the toolkit.
BUILDS = Path(".npu-verify/power/builds")


@dataclass
class Kept:
    """What one build returned, given back as often as it is asked for; `text` is its log."""

    build: Build
    outputs: dict[str, Tensors]
    dumps: dict[str, RknnDump]
    text: str
    simulates: bool = True

    def layers(self, case: Case, into: Path) -> RknnDump:
        return self.dumps[case.name]

    def run(self, feeds: Tensors) -> Tensors:
        return self.outputs[digest_tensors(feeds).hex()]

    def handed(self, work: Path) -> Kept:
        """With files that the engine may move away. The exported one is a stand-in: nothing runs it."""
        folder = Path(tempfile.mkdtemp(prefix="kept-", dir=work))
        artefact, log = folder / self.build.artifact.path.name, folder / "build.log"
        artefact.write_text(self.build.artifact.sha256)
        log.write_text(self.text)
        build = replace(self.build, artifact=replace(self.build.artifact, path=artefact), log=log)
        return replace(self, build=build)


@dataclass
class Recorder:
    """A live build that keeps what it returns."""

    live: Any
    folder: Path
    build: Build
    outputs: dict[str, Tensors] = field(default_factory=dict)
    dumps: dict[str, RknnDump] = field(default_factory=dict)
    simulates: bool = True

    def layers(self, case: Case, into: Path) -> RknnDump:
        self.dumps[case.name] = self.live.layers(case, self.folder / f"layers{len(self.dumps)}")
        return self.dumps[case.name]

    def run(self, feeds: Tensors) -> Tensors:
        self.outputs[digest_tensors(feeds).hex()] = found = dict(self.live.run(feeds))
        return found

    def keep(self) -> Kept:
        text = self.build.log.read_text(errors="replace") if self.build.log and self.build.log.is_file() else ""
        kept = Kept(self.build, self.outputs, self.dumps, text)
        (self.folder / "kept.pkl").write_bytes(pickle.dumps(kept))
        return kept


#: What a candidate of this folder is "built" into, instead of a build: set by the benchmark around one trial.
GIVEN: dict[Path, Any] = {}
#: The build that was opened last, as it is kept.
LAST: list[Any] = [None]
#: What the checker is to do with each trial: set by the benchmark around one trial.
WATCHERS: dict[Path, Callable[[Trial], None]] = {}


class Compiler:
    """The vendor's toolkit, given another file than the engine believes."""

    @contextlib.contextmanager
    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path, /
    ) -> Iterator[Any]:
        if candidate.folder in GIVEN:
            yield GIVEN[candidate.folder].handed(work)
            return
        other = candidate.folder / FAULTY
        compiled = Artifact("graph", other, file_digest(other)) if other.is_file() else graph
        fed = [file_digest(path) for path in sorted((candidate.folder / "cases").iterdir())]
        versions = dict(RknnBuilder().environment(candidate))
        stated = [compiled.sha256, asdict(candidate.variant), digest_cases(calibration), fed, versions]
        folder = BUILDS.absolute() / key_of({"build": stated})
        if (folder / "kept.pkl").is_file():
            LAST[0] = pickle.loads((folder / "kept.pkl").read_bytes())
            yield LAST[0].handed(work)
            return
        if (folder / "refused").is_file():
            raise Missing((folder / "refused").read_text(), candidate.name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with RknnBuilder().open(candidate, compiled, calibration, work) as live:
                recorder = Recorder(live, folder, live.build)
                yield recorder
                LAST[0] = recorder.keep()
        except Missing as error:
            (folder / "refused").write_text(error.what)
            raise

    def environment(self, candidate: Candidate, /) -> Mapping[str, str]:
        """With the digest of what is really compiled: a cache never gives one fault's build for another's."""
        other = candidate.folder / FAULTY
        told = {"compiled": file_digest(other)} if other.is_file() else {}
        if candidate.folder in GIVEN:
            told["given"] = str(id(GIVEN[candidate.folder]))
        return {**RknnBuilder().environment(candidate), **told}


class Observed:
    """Hands the trial to the benchmark, and says that it did."""

    name, tier = "observed", Tier.DEVICE

    def plan(self, candidate: Candidate) -> Collection[RunSpec]:
        return ()

    def check(self, trial: Trial) -> Iterator[Measurement]:
        WATCHERS[trial.candidate.folder](trial)
        for leg in trial.legs(self.tier):
            yield Measurement(Where("tensors", "", leg.name), "seen", 0.0)


@dataclass
class Seen:
    """What a watcher keeps of a trial."""

    trial: Trial | None = None

    def __call__(self, trial: Trial) -> None:
        self.trial = trial
