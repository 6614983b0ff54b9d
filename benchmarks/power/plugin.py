"""The builder and the checker through which faults get in and tensors get out: plug-ins like anybody's.

`offered` writes the entry points of a distribution that lies behind every other on the import path, so that its
`rknn` is the one that is loaded. The builder compiles the file `compiled.onnx` of the candidate's folder where there is
one, with the vendor's toolkit and as the real builder does; the engine knows only the right graph.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.build.rknn import RknnBuilder
from verify.core import Artifact, Build, Candidate, Case, Measurement, RunSpec, Tensors, Tier, Where
from verify.store import file_digest
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


@dataclass
class Kept:
    """What one honest build returned, given back as often as it is asked for, changed by `change(case, dumps)`."""

    build: Build
    outputs: dict[str, Tensors]
    dumps: dict[str, Any]
    change: Callable[[str, Tensors, Any], tuple[Tensors, Any]] | None = None
    simulates: bool = True
    now: str = ""

    def layers(self, case: Case, into: Path) -> Any:
        dump = self.dumps[case.name]
        return self.change(case.name, {}, dump)[1] if self.change else dump

    def run(self, feeds: Tensors) -> Tensors:
        from verify.cases import digest_tensors

        case, held = self.outputs[digest_tensors(feeds).hex()]  # type: ignore[misc]
        return self.change(case, held, None)[0] if self.change else held


#: What a candidate of this folder is "built" into, instead of a build: set by the benchmark around one trial.
GIVEN: dict[Path, Any] = {}
#: What the checker is to do with each trial: set by the benchmark around one trial.
WATCHERS: dict[Path, Callable[[Trial], None]] = {}


class Compiler:
    """The vendor's toolkit, given another file than the engine believes."""

    @contextlib.contextmanager
    def open(
        self, candidate: Candidate, graph: Artifact, calibration: Collection[Case], work: Path, /
    ) -> Iterator[Any]:
        if candidate.folder in GIVEN:
            yield GIVEN[candidate.folder]
            return
        other = candidate.folder / FAULTY
        compiled = Artifact("graph", other, file_digest(other)) if other.is_file() else graph
        with RknnBuilder().open(candidate, compiled, calibration, work) as live:
            yield live

    def environment(self, candidate: Candidate, /) -> Mapping[str, str]:
        """With the digest of what is really compiled: a cache never gives one fault's build for another's."""
        other = candidate.folder / FAULTY
        told = {"compiled": file_digest(other)} if other.is_file() else {}
        if candidate.folder in GIVEN:
            told["given"] = str(candidate.folder)
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
    facts: dict[str, Any] = field(default_factory=dict)

    def __call__(self, trial: Trial) -> None:
        self.trial = trial


def dumped(value: Any) -> str:
    return json.dumps(value, default=float)
