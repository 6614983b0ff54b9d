"""Where a stored run goes wrong: the first divergent node, why it is that one, and every layer's own numbers."""

from __future__ import annotations

import datetime
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verify.core import Missing, Outcome, VerifyError
from verify.diagnose.ranking import Ranked, ranking
from verify.diagnose.rows import INNER, Row, rows
from verify.judge import judge, judge_one
from verify.policy import Policy
from verify.schemas import stamp
from verify.stored import Run
from verify.verdict import Verdict, _plain

#: The suspects of which a ranking of layers tells more.
FORMAT = frozenset({"precision", "quantiser"})


@dataclass(frozen=True)
class Localized:
    """`divergence` is "found", "none" or "unknown" (no layers were compared, nothing failed); `why` says it in words.

    `cases` is the number of cases that the rows are the worst of. `ranked` are the layers by how much of the final
    error their format causes, where that is suspected; `unranked` is why there are none.
    """

    verdict: Verdict
    divergence: str
    why: str
    rows: tuple[Row, ...]
    cases: int
    steps: tuple[str, ...]
    reproduce: str
    ranked: tuple[Ranked, ...] = ()
    unranked: str = ""

    @property
    def exit_code(self) -> int:
        """0 where nothing diverges, 1 where something does, 3 where nobody can tell."""
        return {"none": 0, "found": 1, "unknown": 3}[self.divergence]

    def to_document(self) -> dict[str, Any]:
        """The document of schema npu-verify/localize/1; NaN and infinities are text."""
        verdict = self.verdict
        document = {
            "schema": stamp("localize"),
            "candidate": verdict.name,
            "outcome": verdict.outcome,
            "divergence": self.divergence,
            "first_divergent": verdict.first_divergent,
            "why": self.why,
            "blame": verdict.blame,
            "cases": self.cases,
            "layers": [asdict(row) for row in self.rows],
            "ranking": [asdict(row) for row in self.ranked],
            "unranked": self.unranked,
            "coverage": verdict.coverage,
            "policy": verdict.policy,
            "next_steps": self.steps,
            "reproduce": self.reproduce,
            "run": verdict.run,
        }
        plain: dict[str, Any] = _plain(document)
        return plain


def of_folder(folder: Path, policy: Policy) -> Localized:
    """Localize the run stored in `folder`, or in a bundle; raises UsageError where there is none."""
    from verify.bundle import checked
    from verify.schemas import read
    from verify.stored import from_document

    checked(folder)
    document = read(folder / "run.json", "run")
    run = from_document(document)
    found = localize(run, policy)
    if not set(found.verdict.blame) & FORMAT:
        return found
    try:
        held = ranking(run, document.get("recordings", ()), folder)
        do = (
            f"npu-verify localize {shlex.quote(str(folder))} --repair looks for layers to keep in float and builds them"
        )
        return replace(found, ranked=held, steps=(*found.steps, do))
    except Missing as error:
        return replace(found, unranked=f"{error.what}; {error.do}" if error.do else error.what)
    except VerifyError as error:  # the reference itself cannot be run: the rest of the answer stands
        return replace(found, unranked=str(error))


def localize(run: Run, policy: Policy, today: datetime.date | None = None) -> Localized:
    """Judge a run again and say where it diverges. `today` decides which waivers are in force."""
    from verify.diagnose.first import origin, why_none
    from verify.reports.sections import why

    today = today or datetime.datetime.now(datetime.timezone.utc).date()
    verdict = judge(run, policy, today)
    judged = [judge_one(m, run, policy, today) for m in run.measurements]
    found = origin(judged, run)
    held = rows(judged, found[0]["leg"] if found else "", found[0]["tensor"] if found else "")
    if found:
        divergence, text = "found", found[1]
    elif verdict.outcome is Outcome.FAILED:
        divergence, text = "found", why_none(judged) or f"no tensor is beyond a limit of its own; {why(verdict)}"
    elif not held:
        divergence, text = "unknown", _unseen(run)
    else:
        text = f"none of {len(held)} inner tensors is beyond a limit that denies; the verdict, which asks for more, is "
        divergence, text = "none", text + verdict.outcome.value
    cases = {j.measurement.where.case for j in judged if j.measurement.grain in INNER}
    steps = _steps(verdict, run) if divergence == "found" else verdict.next_steps
    return Localized(verdict, divergence, text, held, len(cases), steps, run.command)


def _steps(verdict: Verdict, run: Run) -> tuple[str, ...]:
    """The verdict's own, without what would only add evidence, and without the one that says to look here."""
    more = {leg.do for leg in run.legs if leg.missing and not leg.log}
    rest = tuple(step for step in verdict.next_steps if step not in more and not step.startswith("look at "))
    return rest or verdict.next_steps


def _unseen(run: Run) -> str:
    """Why there is nothing to look at."""
    if "layers" not in run.ran:
        return "the policy of that run left out the checker layers"
    leg = next((leg for leg in run.legs if leg.name == "graph~simulator"), None)
    if leg is None:
        return "only outputs were compared: there is no simulator here that shows its layers"
    if leg.missing:
        return f"graph~simulator was not run: {leg.missing}"
    return "no layer of the compiled model could be matched to a tensor of the graph"
