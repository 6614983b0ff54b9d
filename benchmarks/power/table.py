"""The table: per class of fault and per gate, what was caught, what was named, and what alarmed for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TOOL = "npu-verify"
#: The tool without the toolkit's own float32 run, in which every fault that the graph was given shows.
SIMULATED = "by simulated values alone"
Rows = Sequence[Mapping[str, Any]]


def caught(row: Mapping[str, Any], right: Mapping[str, Any], gate: str, kind: str = "gates") -> bool:
    """Whether a gate fails on the faulty build and not on the right one of the same model and precision.

    This tool has several metrics: where a right build fails (int8 that destroys the signal), those that fail on it
    catch nothing, the others may.
    """
    if gate == SIMULATED:
        return caught(row["simulated"], right["simulated"], TOOL)
    if gate == TOOL and kind == "gates" and right["tool"] == "failed":
        return bool(set(row.get("metrics", ())) - set(right.get("metrics", ())))
    if gate == TOOL:
        key = "outputs" if kind == "final" else "tool"
        return row[key] == "failed" and right[key] != "failed"
    return bool(row[kind].get(gate)) and not right[kind].get(gate)


def named(row: Mapping[str, Any], gate: str) -> bool:
    ours = {TOOL: "named", SIMULATED: "simulated_named"}
    return bool(row[ours[gate]] if gate in ours else row["gate_named"].get(gate))


def share(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else "-"


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Everything that a run found, as markdown."""
    rights = {(r["model"], r["variant"]): r for r in rows.values() if r["kind"] == "right"}
    faults = [r for r in rows.values() if r["kind"] == "fault" and not r.get("void") and not r.get("error")]
    honest = [r for r in rows.values() if r["kind"] == "honest" and not r.get("error")]
    gates = [TOOL, *dict.fromkeys(g for r in [*rights.values(), *honest] for g in r.get("gates", {}))]
    parts = [_counts(rows, faults), "With recordings of layers (caught, of these at the right node):"]
    with_layers = [TOOL, SIMULATED, *gates[1:]]
    parts += [markdown(["fault", "", *with_layers], _classes(faults, rights, with_layers))]
    parts += ["From outputs alone, of the faults that move an output by more than the right build's own error:"]
    parts += [markdown(["fault", "", *gates], _outputs(faults, rights, gates))]
    if honest:
        parts += ["Honest candidates that alarm:"]
        parts += [markdown(["candidate", "", *gates], _alarms(honest, gates)), _bound(honest, rows)]
    parts += ["Missed, or caught at another node:", _missed(faults, rights)]
    return "\n\n".join(parts)


def _counts(rows: Mapping[str, Mapping[str, Any]], faults: Rows) -> str:
    every = [r for r in rows.values() if r["kind"] == "fault"]
    void = Counter(r["void"].partition(":")[0] for r in every if r.get("void"))
    refused = [r for r in every if r.get("error") and not r.get("void")]
    text = f"{len(faults)} faults of {len({r['fault'] for r in faults})} kinds in "
    text += ", ".join(sorted({f"{r['model']} {r['variant']}" for r in faults}))
    if void:
        text += ". Left out: " + ", ".join(f"{n} {what}" for what, n in sorted(void.items()))
    if refused:
        text += f". Not compiled by the toolkit: {len(refused)} ({', '.join(sorted({r['fault'] for r in refused}))})"
    return text + "."


def _classes(faults: Rows, rights: Mapping[Any, Any], gates: Sequence[str]) -> list[list[str]]:
    body = []
    for group in (*dict.fromkeys(r["group"] for r in faults), "all"):
        for variant in dict.fromkeys(r["variant"] for r in faults):
            mine = [r for r in faults if group in (r["group"], "all") and r["variant"] == variant]
            mine = [r for r in mine if r["depth"] != "output"]
            if mine:
                cells = []
                for gate in gates:
                    got = [r for r in mine if caught(r, rights[r["model"], variant], gate)]
                    cells.append(f"{share(len(got), len(mine))}, {sum(named(r, gate) for r in got)}")
                body.append([group, variant, *cells])
    return body


def moving(row: Mapping[str, Any]) -> bool:
    return bool(row.get("shift", 0) > row["floor"])


def _outputs(faults: Rows, rights: Mapping[Any, Any], gates: Sequence[str]) -> list[list[str]]:
    body = []
    for group in (*dict.fromkeys(r["group"] for r in faults), "all"):
        for variant in dict.fromkeys(r["variant"] for r in faults):
            mine = [r for r in faults if (group in (r["group"], "all")) and r["variant"] == variant and moving(r)]
            if mine:
                got = [[r for r in mine if caught(r, rights[r["model"], variant], g, "final")] for g in gates]
                body.append([group, variant, *(share(len(held), len(mine)) for held in got)])
    return body


def _alarms(honest: Rows, gates: Sequence[str]) -> list[list[str]]:
    body = []
    kinds = dict.fromkeys((r["honest"], r["variant"]) for r in honest)
    for kind, variant in (*kinds, ("all", "")):
        mine = [r for r in honest if kind == "all" or (r["honest"], r["variant"]) == (kind, variant)]
        cells = []
        for gate in gates:
            hit = [r for r in mine if (r["alarms"] if gate == TOOL else r.get("gates", {}).get(gate))]
            cells.append(share(len(hit), len(mine)))
        body.append([kind, variant, *cells])
    return body


def _bound(honest: Rows, rows: Mapping[str, Mapping[str, Any]]) -> str:
    hit, n = sum(bool(r["alarms"]) for r in honest), len(honest)
    lost = sum(1 for r in rows.values() if r["kind"] == "honest" and r.get("error"))
    rule = f"0 of {n}: with 95 % certainty fewer than 3/{n} = {3 / n:.2g} alarm." if not hit else f"{hit} of {n} alarm."
    return rule + (f" {lost} could not be measured." if lost else "")


def _missed(faults: Rows, rights: Mapping[Any, Any]) -> str:
    lines = []
    for r in faults:
        right = rights[r["model"], r["variant"]]
        key = "outputs" if r.get("depth") == "output" else "tool"
        if right[key] == "failed" and (key == "outputs" or not caught(r, right, TOOL)):
            why = "the right build fails too"
        elif r[key] != "failed":
            why = f"passed; moves the output by {r.get('shift', 0):.2g}, the right build errs by {r['floor']:.2g}"
            lost, usual = (held["layers"]["unmatched"] for held in (r, right))
            more = sorted(set(r.get("warned", ())) - set(right.get("warned", ())))
            why += f"; only warned: {', '.join(more[:2])}" if more else ""
            why += f"; {lost} layers matched nothing, of the right build {usual}" if lost > usual else ""
        elif not r["named"] and key == "tool":
            why = f"named {r['first'].get('node') or 'no node'} instead of {', '.join(r['nodes'][:3])}"
        else:
            continue
        lines.append(f"- {r['model']} {r['variant']}, {r['fault']}, {r['depth']}: {why}")
    return "\n".join(lines) or "none"
