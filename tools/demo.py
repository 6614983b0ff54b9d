"""`make demo`: a real transformer, all-MiniLM-L6-v2, through every variant, run as a user would; ends with a table.

Exits 0 when every command exited as it must, 1 naming those that did not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CANDIDATE = "fixtures/minilm/candidate.toml"

#: Variant, what it is, and the exit code that each command must give (None: whatever it honestly earns).
STORY: tuple[tuple[str, str, dict[str, int | None]], ...] = (
    ("cpu-fused", "onnxruntime with every optimisation, on this CPU: this machine is the hardware", {"gate": 0}),
    ("cpu-int8", "onnxruntime, static int8 quantisation, on this CPU: what it earns on the score", {"gate": None}),
    (
        "fp16",
        "Rockchip RK3588, float16, in the vendor's simulator: nothing may fail, no board",
        {"check": 0, "gate": 3},
    ),
    (
        "int8",
        "RK3588, int8 with the usual large attention mask: the quantiser's range is eaten",
        {"check": 1, "gate": 1},
    ),
    ("int16", "RK3588, 16-bit fixed point: the toolkit itself dies of it", {"check": 3}),
)
MEANING = {
    0: {"check": "nothing failed", "gate": "passed"},
    1: {"check": "something failed", "gate": "failed: refused"},
    2: {"check": "unusable input", "gate": "unusable input"},
    3: {"check": "nothing could be measured", "gate": "inconclusive: refused"},
}
NEXT = """\
What to do next
  a board     run it on an RK3588 through a runner of your own (docs/candidate.md): only hardware proves the device tier
  the guard   let the board's loader enable only what a gate has proven; whatever is not runs as the reference
  the repair  int8 fails at a named layer: keep that layer in float, or take a smaller mask, and gate again
Your own model
  .venv/bin/npu-verify init model.onnx --out mymodel
  .venv/bin/npu-verify check mymodel/candidate.toml"""


@dataclass(frozen=True)
class Ran:
    """One command: its exit code, the one that it must have, seconds, and its report."""

    variant: str
    command: str
    code: int
    wanted: int | None
    seconds: float
    report: dict[str, Any]

    @property
    def right(self) -> bool:
        return self.code in (0, 1, 3) if self.wanted is None else self.code == self.wanted


def run(variant: str, command: str, wanted: int | None, report: Path, brief: bool) -> Ran:
    """Run one command. Its output goes where ours goes; of a `brief` one (shown before by check) only the head."""
    shown = ["npu-verify", command, CANDIDATE, "--variant", variant]
    print(f"$ {' '.join(shown)}", flush=True)
    argv = [sys.executable, "-m", "verify.cli", *shown[1:], "--json", str(report)]
    report.unlink(missing_ok=True)
    start = time.monotonic()
    held = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE if brief else None, text=True, check=False)
    seconds = time.monotonic() - start
    if brief:
        first, *rest = held.stdout.splitlines() or [""]
        print("\n".join([first, *(line for line in rest if line.startswith("NOT PROVEN"))]))
    print(f"exit code {held.returncode}: {MEANING.get(held.returncode, {}).get(command, 'broken')} ({seconds:.0f} s)\n")
    document = json.loads(report.read_text()) if report.exists() else {}
    return Ran(variant, command, held.returncode, wanted, seconds, document)


def table(held: list[Ran]) -> str:
    """One line a variant: its tiers, and the exit codes of the commands."""
    lines = [f"{'variant':10} {'graph':13} {'device':13} {'end to end':13} {'exit codes':22} seconds"]
    for variant in dict.fromkeys(ran.variant for ran in held):
        mine = [ran for ran in held if ran.variant == variant]
        tiers = mine[0].report.get("tiers", {})
        words = [tiers.get(name, {}).get("outcome", "-") for name in ("graph", "device", "end_to_end")]
        codes = ", ".join(f"{ran.command} {ran.code}" for ran in mine)
        cells = " ".join(f"{word:13}" for word in words)
        lines.append(f"{variant:10} {cells} {codes:22} {sum(ran.seconds for ran in mine):7.0f}")
    return "\n".join(lines)


def wrong(held: list[Ran]) -> list[str]:
    """What did not come out as it must, one line each."""
    out = [
        f"{ran.command} {ran.variant}: exit code {ran.code}, wanted {'0, 1 or 3' if ran.wanted is None else ran.wanted}"
        for ran in held
        if not ran.right
    ]
    by_name = {(ran.variant, ran.command): ran.report for ran in held}
    blame = by_name["int8", "check"].get("blame", [])
    if not {"quantiser", "precision"} & set(blame):
        out.append(f"check int8: blames {blame}, wanted the quantiser or the precision")
    if not by_name["int8", "check"].get("first_divergent"):
        out.append("check int8: names no layer where the signal is lost first")
    legs = by_name["fp16", "check"].get("tiers", {}).get("device", {}).get("legs", [])
    if {leg["name"]: leg["outcome"] for leg in legs}.get("graph~simulator") != "passed":
        out.append("check fp16: the leg graph~simulator did not pass")
    return out


def main() -> int:
    start = time.monotonic()
    held: list[Ran] = []
    print("all-MiniLM-L6-v2, a sentence encoder of 6 layers, from its source model to each optimised variant.\n")
    with tempfile.TemporaryDirectory() as folder:
        for number, (variant, what, commands) in enumerate(STORY, 1):
            print(f"== {number} of {len(STORY)}: {variant}: {what}")
            for command, wanted in commands.items():
                brief = any(ran.variant == variant for ran in held)
                held.append(run(variant, command, wanted, Path(folder) / "report.json", brief))
    print(table(held))
    print(f"\n{NEXT}\n")
    differs = wrong(held)
    for line in differs:
        print(f"DIFFERS: {line}")
    print(f"The demo came out {'otherwise than' if differs else 'as'} it must, in {time.monotonic() - start:.0f} s.")
    return int(bool(differs))


if __name__ == "__main__":
    sys.exit(main())
