"""`npu-verify localize RUN --repair`: from a localized run to a build that passes, printed as it goes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from verify.core import UsageError
from verify.diagnose.repair import Attempt, Repair, candidate_of, repair
from verify.policy import Policy
from verify.reports import repair as told
from verify.reports.progress import progress
from verify.schemas import read
from verify.store import Store
from verify.stored import from_document
from verify.streams import apart
from verify.verdict import _plain

if TYPE_CHECKING:
    from verify.localize import Localized


def repaired(found: Localized, options: argparse.Namespace) -> tuple[int, Mapping[str, Any]]:
    """The exit code (0 repaired, 1 not) and what `--json` says of it; raises UsageError where nothing can be repaired.

    With --json - the lines go to standard error.
    """
    if options.builds < 1:
        raise UsageError(f"--builds {options.builds}", str(options.run), "allow at least one build")
    if not found.ranked:
        suspects = ", ".join(found.verdict.blame) or "nobody"
        why = found.unranked or f"only a number format is repaired, and the suspect is {suspects}"
        raise UsageError(f"nothing to repair: {why}", str(options.run), "see its next steps: localize without --repair")
    run = from_document(read(options.run / "run.json", "run"))
    candidate = candidate_of(run, options.candidate)
    policy = Policy.load(options.policy) if options.policy else Policy()
    stream, made = sys.stderr if options.json == "-" else sys.stdout, 0

    def say(held: Attempt) -> None:
        nonlocal made
        made += 1
        print(told.attempt(held, made), file=stream, flush=True)

    print(f"\nRepair: at most {options.builds} builds, then one under the whole policy", file=stream, flush=True)
    before, store = (found.verdict, options.run), Store(options.cache.absolute())
    with progress(candidate.name, quiet=options.quiet) as shown, apart():
        result = repair(candidate, found.ranked, before, policy, store, progress=shown, say=say, builds=options.builds)
    print(told.repaired(result), file=stream)
    return (0 if result.repaired else 1), document(result)


def document(result: Repair) -> dict[str, Any]:
    """The document's part `repair`; NaN and infinities are text."""
    made: dict[str, Any] = _plain(
        {
            "repaired": result.repaired,
            "toml": result.toml(),
            "layers": result.layers,
            "outcome": result.verdict.outcome if result.verdict else None,
            "before": asdict(result.before),
            "tried": [asdict(held) for held in result.tried],
            "after": asdict(result.after) if result.after else None,
        }
    )
    return made
