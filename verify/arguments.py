"""The arguments of every command, with an example each."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="npu-verify",
        formatter_class=raw,
        description="Decides whether an optimised model may run: graph, device, end to end.",
        epilog="first steps:\n"
        "  npu-verify init model.onnx --out mymodel     write mymodel/candidate.toml\n"
        "  npu-verify check mymodel/candidate.toml      whatever can run here; 0 if nothing failed\n"
        "  npu-verify gate mymodel/candidate.toml       every tier, or refused\n"
        "exit: 0 fine, 1 failed, 2 usage or unreadable input,\n"
        "      3 nothing could be measured (check) or inconclusive (gate, judge)",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, help: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=help, description=help, formatter_class=raw, epilog=f"example:\n  npu-verify {example}"
        )

    init = add("init", "write a candidate.toml from a model's own inputs and outputs", "init model.onnx --out mymodel")
    init.add_argument("model", type=Path, help="an ONNX file")
    init.add_argument("--out", type=Path, help="folder to write (default: beside the model, named after it)")
    init.add_argument("--target", default="rk3588", help="the NPU of the fp16 and int8 variants (default: rk3588)")
    for name, help in (
        ("check", "run whatever can run here; 0 if nothing failed, which proves nothing"),
        ("gate", "want every tier on hardware; 0 only if all passed"),
    ):
        run = add(name, help, f"{name} candidate.toml --variant int8 --json report.json")
        run.add_argument("candidate", type=Path, help="a candidate.toml, its folder, or a bundle")
        run.add_argument("--variant", action="append", help="only this variant (repeatable; default: every one)")
        run.add_argument("--policy", type=Path, help="a policy TOML (default: the strict built-in one)")
        run.add_argument("--run", type=Path, metavar="DIR", help="folder for this run's evidence (must not exist)")
        run.add_argument("--json", metavar="F", help="write the report, a line per variant ('-': standard output)")
        run.add_argument("--junit", type=Path, metavar="F", help="write a JUnit report")
        run.add_argument(
            "--cache", type=Path, default=Path(".npu-verify"), help="cache and runs (default: .npu-verify)"
        )
        run.add_argument("--verbose", action="store_true", help="every measurement's finding, nothing grouped")
        run.add_argument("--quiet", action="store_true", help="no progress")
    compare = add(
        "compare", "compare two files of tensors, or two graphs", "compare reference.npz candidate.npz --precision fp16"
    )
    compare.add_argument("reference", type=Path, help=".npz .npy .safetensors, test_data_set or snapshot folder, .onnx")
    compare.add_argument("candidate", type=Path, help="the same, of what is judged")
    compare.add_argument("--graph", type=Path, help="the ONNX graph that the outputs came from")
    compare.add_argument(
        "--inputs", type=Path, help="the inputs: two .onnx are run on them; with --graph, ties of indices are seen"
    )
    levels = ("off", "basic", "extended", "all")
    compare.add_argument(
        "--optimization", choices=levels, default="", help="onnxruntime's, of the candidate .onnx (default: all)"
    )
    compare.add_argument(
        "--precision", default="fp32", help="what the candidate computes in (default: fp32, the strictest)"
    )
    compare.add_argument("--json", metavar="F", help="write the comparison ('-': standard output)")
    again = add("judge", "judge a stored run again under a policy", "judge .npu-verify/runs/NAME --policy policy.toml")
    again.add_argument("run", type=Path, help="a run folder, as the last line of a report names it, or a bundle")
    again.add_argument("--policy", type=Path, help="a policy TOML (default: the strict built-in one)")
    again.add_argument("--json", metavar="F", help="write the report ('-': standard output)")
    again.add_argument("--junit", type=Path, metavar="F", help="write a JUnit report")
    again.add_argument("--verbose", action="store_true", help="every measurement's finding, nothing grouped")
    where = add(
        "localize", "where a stored run first diverges, layer by layer", "localize .npu-verify/runs/NAME --repair"
    )
    where.epilog = f"{where.epilog}\nexit: 0 nothing diverges, 1 something does, 2 usage, 3 no layers were compared"
    where.epilog += "\n      with --repair: 0 repaired, 1 not"
    where.add_argument("run", type=Path, help="a run folder, as the last line of a report names it, or a bundle")
    where.add_argument("--policy", type=Path, help="a policy TOML (default: the strict built-in one)")
    where.add_argument("--json", metavar="F", help="write node, reason and layers ('-': standard output)")
    where.add_argument("--verbose", action="store_true", help="every layer, no name cut")
    where.add_argument("--repair", action="store_true", help="find layers to keep in float so that the score passes")
    where.add_argument("--candidate", type=Path, help="the candidate.toml to repair (default: the run's own)")
    where.add_argument("--builds", type=int, default=6, help="builds that a repair may try (default: 6)")
    where.add_argument("--cache", type=Path, default=Path(".npu-verify"), help="cache and runs (default: .npu-verify)")
    where.add_argument("--quiet", action="store_true", help="no progress")
    diff = add("diff", "what changed between two runs; 1 if an outcome did", "diff runs/monday runs/tuesday")
    diff.add_argument("old", type=Path, help="a run folder, or a report's JSON")
    diff.add_argument("new", type=Path, help="the same")
    diff.add_argument("--json", metavar="F", help="write the changes ('-': standard output)")
    waive = add(
        "waive",
        "write a dated waiver into a policy",
        'waive RUN layers/graph~simulator/y/relative_l2 --until 2027-01-31 --reason "fixed in the next toolkit"',
    )
    waive.add_argument("run", type=Path, help="the run folder that holds the finding")
    waive.add_argument("finding", help="the finding's id, as the report's JSON and --verbose show it")
    waive.add_argument("--until", required=True, help="last day, YYYY-MM-DD")
    waive.add_argument("--reason", required=True, help="why it may be tolerated, and what will end it")
    waive.add_argument(
        "--policy", type=Path, default=Path("policy.toml"), help="the file to write (default: policy.toml)"
    )
    pack = add("pack", "a bundle that runs elsewhere without toolkit or torch", "pack candidate.toml --variant fp16")
    pack.add_argument("candidate", type=Path, help="a candidate.toml, or its folder")
    pack.add_argument("--variant", help="which one (default: the only one)")
    pack.add_argument("--out", type=Path, help="the bundle's folder (default: MODEL-VARIANT.bundle)")
    pack.add_argument("--cache", type=Path, default=Path(".npu-verify"), help="cache (default: .npu-verify)")
    pack.add_argument("--quiet", action="store_true", help="no progress")
    doctor = add("doctor", "what is installed, what is missing, one line each with the fix", "doctor")
    doctor.add_argument("--python", default="", help="look at this interpreter instead ([toolkit] python)")
    doctor.add_argument("--json", metavar="F", help="write the lines ('-': standard output)")
    return top
