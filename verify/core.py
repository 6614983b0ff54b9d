"""The nouns of npu-verify: frozen, without I/O, importable without numpy."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Tensors = Mapping[str, Array]
    Dtype = np.dtype[Any]
else:  # the names exist at run time too, so that annotations can be evaluated without numpy
    Array = Any
    Tensors = Mapping[str, Any]

#: What a plugin was written against; a plugin that states another major number is refused.
PLUGIN_API = 1


class Tier(str, enum.Enum):
    """The three questions, asked apart."""

    GRAPH = "graph"
    DEVICE = "device"
    END_TO_END = "end_to_end"


class Outcome(str, enum.Enum):
    """`failed`: something is wrong. `inconclusive`: the evidence is missing. Both deny."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class VerifyError(Exception):
    """Base of the errors below: `what` happened, `where`, and what to `do` next."""

    def __init__(self, what: str, where: str = "", do: str = "") -> None:
        self.what, self.where, self.do = what, where, do
        parts = [f"{where}: {what}" if where else what, do]
        super().__init__("; ".join(part for part in parts if part))


class UsageError(VerifyError):
    """Usage or unreadable input: one line on stderr, exit 2."""


class NotComparable(VerifyError):
    """Names, shapes or dtypes differ, so no number is formed: counts as failed."""


class Missing(VerifyError):
    """Evidence that could not be had (no board, a toolkit that crashed): inconclusive.

    `log` is the path of the log that shows it, if there is one.
    """

    def __init__(self, what: str, where: str = "", do: str = "", log: str = "") -> None:
        super().__init__(what, where, do)
        self.log = log


@dataclass(frozen=True)
class Artifact:
    """A file with a role (`source`, `graph`, `device`) and its sha256 in hexadecimal."""

    role: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class InputSpec:
    """One model input as the application feeds it: declared once, applied once.

    `mean` and `std` are per channel, in the units of the fed values; `layout` is "nchw", "nhwc" or "" (no image).
    `shape` fixes symbolic axes, None keeps what the graph says.
    """

    name: str
    layout: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    color: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Accuracy:
    """The task's own score: `score` is "file.py:function" or a built-in name; `margin` is the loss that is tolerated.

    `cases` ("file.py:function") yields the scored cases lazily; empty means the candidate's own cases.
    """

    score: str = "agreement"
    margin: float = 0.05
    cases: str = ""
    batch: int = 50
    alpha: float = 0.05


@dataclass(frozen=True)
class Variant:
    """One optimised way to run a model on one target.

    `settings` maps a builder's name ("rknn", "onnxruntime", ...) to options handed over as they are.
    Exactly one of: compiled here (neither `artifact` nor `run`), `artifact` (built elsewhere), `run`
    ("file.py:function").
    `keep_float` names compiled layers that an integer build leaves in float16.
    """

    name: str
    target: str
    precision: str = "fp32"
    builder: str = ""
    graph: str = ""
    artifact: str = ""
    run: str = ""
    calibration: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keep_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """Model x variant x target, as declared in `folder`/candidate.toml.

    `source`, `graph` and `cases` are "file.py:function" references or paths relative to `folder`.
    `python` is the interpreter that has the vendor's toolkit ("" is this one). `budgets` maps a reported metric to the
    limit that makes it a gate. `depends` lists further files (globs) that the outcome depends on.
    """

    model: str
    variant: Variant
    folder: Path
    source: str
    graph: str
    cases: str
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    traits: frozenset[str] = frozenset()
    python: str = ""
    budgets: Mapping[str, float] = field(default_factory=dict)
    depends: tuple[str, ...] = ()
    batch_axis: int | None = None  # None: the first axis where an input has its extent; negative: there is no batch
    time_limit: float = 600.0  # seconds for one step of a build; the slowest honest one seen took 60 (rknn, 24 layers)

    @property
    def target(self) -> str:
        return self.variant.target

    @property
    def name(self) -> str:
        """For example "minilm:int8@rk3588"."""
        return f"{self.model}:{self.variant.name}@{self.variant.target}"

    @classmethod
    def load(cls, path: str | Path, variant: str | None = None) -> Candidate:
        """Read one variant of a candidate.toml; raises UsageError."""
        from verify.candidate import load

        return load(path, variant)


@dataclass(frozen=True)
class Case:
    """Named input tensors, maybe labels or expected outputs."""

    name: str
    inputs: Tensors
    expected: Tensors | None = None


@dataclass(frozen=True)
class RunSpec:
    """One run that a checker asks for: a role on a set of cases ("cases", "layers", "score"), plain or instrumented."""

    role: str
    cases: str = "cases"
    instrumented: bool = False
    repeat: int = 1
    bucket: str = ""
    context: str = ""


def runs(*roles: str, cases: str = "cases", instrumented: bool = False) -> frozenset[RunSpec]:
    """The RunSpecs of these roles: what a checker's `plan` returns."""
    return frozenset(RunSpec(role, cases, instrumented) for role in roles)


@dataclass(frozen=True)
class LayerRow:
    """One row of a build's layer table: `placed` is "NPU", "CPU" or "GPU"; shapes as the compiler prints them."""

    index: int
    op: str
    dtype: str
    placed: str
    name: str


@dataclass(frozen=True)
class Build:
    """What one build left: the exported file, layer table, scales, log.

    `scales` maps a compiled tensor's name to {"scale", "zero_point", "min", "max", "ori_min", "ori_max", "dtype"}.
    """

    builder: str
    artifact: Artifact
    table: tuple[LayerRow, ...] = ()
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    log: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Recording:
    """What one run returned. Immutable.

    `layers` holds inner tensors by name (a lazy mapping); `integrity` what went wrong on the way without an error code.
    `evidence` is "hardware", "simulator", "replay", "emulated" or "reference".
    """

    role: str
    case: str
    outputs: Tensors
    layers: Tensors = field(default_factory=dict)
    integrity: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    evidence: str = "reference"


@dataclass(frozen=True)
class Where:
    """The place a measurement speaks of: an output, layer, or part of one, in one case and leg."""

    tensor: str
    case: str = ""
    leg: str = ""
    part: str = ""  # for example "channel 4", "slot 1"
    op: str = ""
    node: str = ""

    def __str__(self) -> str:
        return f"{self.tensor}[{self.part}]" if self.part else self.tensor


@dataclass(frozen=True)
class Measurement:
    """One number. Checkers fill in the first three; the engine stamps `checker` and `tier`.

    `interval` is a confidence interval of `value`: passes when its upper end is within the limit, fails when its lower
    end is beyond it, and is inconclusive in between. `note` is what a person should read beside the number.
    """

    where: Where
    metric: str
    value: float
    unit: str = ""
    grain: str = "tensor"
    n: int = 0
    interval: tuple[float, float] | None = None
    note: str = ""
    null: Mapping[str, Any] = field(default_factory=dict)
    checker: str = ""
    tier: Tier | None = None
