"""Keeps the layers that cause the error in float, builds that, and lets the score decide."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.core import Candidate, Outcome, UsageError
from verify.diagnose.ranking import Ranked
from verify.diagnose.search import search
from verify.policy import Policy

if TYPE_CHECKING:
    from verify.store import Store
    from verify.stored import Run
    from verify.verdict import Verdict

LEG = "source~simulator"
#: What a build is tried by: the score decides, and the outputs must be there and finite for it to mean anything.
TRIED = ("structure", "finite", "coverage", "accuracy")
BUILDS = 6


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One build with `kept` in float: the score's outcome with its numbers in words, and what it costs.

    `size` in bytes of the built file, `floats` of `operators` in the compiler's own layer table are float16; 0 where
    nothing was built. `run` is its run folder.
    """

    kept: tuple[str, ...]
    outcome: Outcome
    score: str
    size: int
    floats: int
    operators: int
    run: str


@dataclasses.dataclass(frozen=True)
class Repair:
    """`before` is the stored run, `tried` every build in order, `after` the smallest that passes, gated in full.

    `layers` is the number of compiled layers that were ranked; `verdict` is of `after` under the whole policy.
    """

    variant: str
    before: Attempt
    tried: tuple[Attempt, ...]
    after: Attempt | None
    layers: int
    verdict: Verdict | None

    @property
    def repaired(self) -> bool:
        return self.after is not None and self.after.outcome is Outcome.PASSED

    def toml(self) -> str:
        """What to add to candidate.toml; "" where nothing was repaired."""
        from verify.toml_out import key, string

        if self.after is None or not self.repaired:
            return ""
        names = "".join(f"    {string(name)},\n" for name in self.after.kept)
        return f"[variant.{key(self.variant)}]\nkeep_float = [\n{names}]\n"


def candidate_of(run: Run, given: Path | None) -> Candidate:
    """The candidate that a stored run was made of; raises UsageError where it cannot be found or cannot be repaired."""
    from verify.candidate import load
    from verify.targets import integer

    words = shlex.split(run.command)
    if given is None and (len(words) < 3 or not Path(words[2]).exists()):
        what = f"the run's command names no candidate that is here: {run.command or 'none'}"
        raise UsageError(what, run.folder, "name it: --candidate path/to/candidate.toml")
    candidate = load(given or words[2], str(run.candidate["variant"]))
    if candidate.model != run.candidate["model"] or candidate.target != run.candidate["target"]:
        raise UsageError(f"is {candidate.name}, the run is of another", str(given or words[2]), "name the run's own")
    variant = candidate.variant
    if variant.builder != "rknn" or not integer(variant.precision) or variant.artifact:
        do = "repair works on integer builds that the builder rknn makes here"
        raise UsageError(f"{candidate.name} has no layers to keep in float", run.folder, do)
    return candidate


def repair(
    candidate: Candidate,
    ranked: Sequence[Ranked],
    before: tuple[Verdict, Path],
    policy: Policy,
    store: Store,
    *,
    progress: Any = None,
    say: Callable[[Attempt], None] = lambda _: None,
    builds: int = BUILDS,
) -> Repair:
    """Find a small set of layers to keep in float with at most `builds` builds, then one more under the whole policy.

    Raises UsageError for a candidate that cannot be used. A set whose build crashes does not pass.
    """
    from verify.gating import examine

    already, tried = candidate.variant.keep_float, []
    short = dataclasses.replace(policy, require=TRIED)

    def build(kept: Sequence[Ranked], rules: Policy) -> tuple[Attempt, Verdict]:
        names = tuple(dict.fromkeys((*already, *(layer for group in kept for layer in group.layers))))
        changed = dataclasses.replace(candidate, variant=dataclasses.replace(candidate.variant, keep_float=names))
        verdict = examine(changed, rules, store=store, progress=progress)
        return _attempt(names, verdict, Path(verdict.run)), verdict

    def passes(kept: Sequence[Ranked]) -> bool:
        try:
            tried.append(build(kept, short)[0])
        except UsageError as error:
            if "keep_float" not in error.where:
                raise
            # the names are ours, not the user's: one that the toolkit does not take is a set that cannot be built
            names = tuple(layer for group in kept for layer in group.layers)
            tried.append(Attempt(names, Outcome.FAILED, error.what, 0, 0, 0, ""))
        say(tried[-1])
        return tried[-1].outcome is Outcome.PASSED

    found = search(ranked, passes, builds)
    after, verdict = build(found, policy) if found else (None, None)
    count = sum(len(group.layers) for group in ranked)
    return Repair(candidate.variant.name, _attempt(already, *before), tuple(tried), after, count, verdict)


def _attempt(kept: tuple[str, ...], verdict: Verdict, folder: Path) -> Attempt:
    """What a run says of the score, and what its build costs."""
    from verify.build.rknn_log import layer_table

    mine = [m for m in verdict.measurements if m.checker == "accuracy" and m.where.leg == LEG]
    denied = {f.severity for f in verdict.findings if f.checker == "accuracy" and f.leg == LEG} - {"warn"}
    legs = [leg for tier in verdict.tiers.values() for leg in tier.legs if leg.name in (LEG, "graph~simulator")]
    outcome = Outcome.PASSED if mine and not denied else Outcome.INCONCLUSIVE
    if "fail" in denied or any(f.checker in TRIED[:3] and f.severity == "fail" for f in verdict.findings):
        outcome = Outcome.FAILED
    said = "; ".join(
        f"{m.where.tensor} loses {m.value:.4f} of {m.n}"
        + (f" (between {m.interval[0]:.4f} and {m.interval[1]:.4f})" if m.interval else "")
        for m in mine
    )
    said = said or "; ".join(dict.fromkeys(leg.reason for leg in legs if leg.reason)) or "no score"
    log, files = folder / "build.log", sorted(folder.glob("*.rknn"))
    table = layer_table(log.read_text(errors="replace")) if files and log.is_file() else ()
    computed = [row for row in table if row.op not in ("InputOperator", "OutputOperator", "exDataConvert")]
    floats = sum(row.dtype == "FLOAT16" for row in computed)
    size = files[0].stat().st_size if files else 0
    return Attempt(kept, outcome, said, size, floats, len(computed), str(folder))
