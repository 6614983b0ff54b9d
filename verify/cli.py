"""`npu-verify`: argument parsing and exit codes; what the commands do lives elsewhere and is imported when needed."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.core import UsageError
from verify.streams import abandon, apart, open_all

if TYPE_CHECKING:
    from verify.verdict import Verdict

USAGE, NOTHING = 2, 3
#: Packages that commands beyond compare and judge need.
HEAVY = ("onnx", "onnxruntime", "torch")


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
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
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

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
    compare = add("compare", "compare two files of tensors", "compare reference.npz candidate.npz --precision fp16")
    compare.add_argument("reference", type=Path, help=".npz, .npy, .safetensors, ONNX test_data_set, snapshot folder")
    compare.add_argument("candidate", type=Path, help="the same, of what is judged")
    compare.add_argument("--graph", type=Path, help="the ONNX graph that the outputs came from")
    compare.add_argument(
        "--inputs", type=Path, help="the inputs that were fed (with --graph: ties of indices are seen)"
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
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (design, section 5)."""
    open_all()
    parser = _parser()
    options = parser.parse_args(argv)
    if options.version:
        from verify import __version__

        print(f"npu-verify {__version__}")
        return 0
    if options.command is None:
        parser.print_usage(sys.stderr)
        print("npu-verify: no command; npu-verify --help lists them", file=sys.stderr)
        return USAGE
    try:
        code = COMMANDS[options.command](options)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print("npu-verify: " + " ".join(str(error).split()), file=sys.stderr)
        return USAGE
    except ModuleNotFoundError as error:
        if error.name not in HEAVY:
            raise
        do = f"npu-verify doctor shows how to install it; {options.command} needs more than numpy"
        print(f"npu-verify: {sys.executable}: the package {error.name} is not installed; {do}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("npu-verify: interrupted; nothing was left behind", file=sys.stderr)
        return 130  # the shell's own code for SIGINT
    except BrokenPipeError:  # the reader of a pipe went away; nothing more to say, but a refusal must not become a 0
        abandon(1)
        sys.stderr.close()
        return 141  # the shell's own code for SIGPIPE
    except OSError as error:  # a full disk, a limit, a file that went away: no verdict, and no other word for it
        where = f"{error.filename}: " if error.filename else ""
        try:
            sys.stdout.flush()
        except OSError:
            abandon(1)
        do = "free some space, or name another place with --cache, --run or --out"
        print(f"npu-verify: {where}{error.strerror or error}; {do}", file=sys.stderr)
        return USAGE
    except SystemExit as error:  # of a plugin: its 0 is no verdict
        print(
            f"npu-verify: something asked to exit ({error.code}) before there was a verdict; mend it", file=sys.stderr
        )
        return USAGE


def _write(text: str, to: str | Path) -> None:
    if str(to) == "-":
        print(text)
        return
    try:
        Path(to).write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", str(to), "name another file") from None


def _writable(to: str | Path | None) -> None:
    """Refuse an unwritable report before minutes of work, not after."""
    if to is not None and str(to) != "-" and not Path(to).absolute().parent.is_dir():
        raise UsageError("its folder does not exist", str(to), "make the folder or name another file")


def _show(verdicts: Sequence[Verdict], options: argparse.Namespace) -> None:
    from verify.reports.junit import junit
    from verify.reports.terminal import render, summary

    quiet = options.json == "-"
    if not quiet:
        for index, verdict in enumerate(verdicts):
            text = render(verdict, colour=sys.stdout.isatty(), verbose=options.verbose)
            print("\n" * (index > 0) + text)
        if len(verdicts) > 1:
            print("\n" + summary(verdicts, colour=sys.stdout.isatty()))
    if options.json:
        _write("\n".join(verdict.to_json() for verdict in verdicts), options.json)
    if options.junit:
        _write(junit(verdicts), options.junit)


def _examine(options: argparse.Namespace) -> int:
    from verify.candidate import load, names
    from verify.gating import examine
    from verify.policy import Policy
    from verify.reports.progress import progress
    from verify.store import Store

    for target in (options.json, options.junit):
        _writable(target)
    policy = Policy.load(options.policy) if options.policy else Policy()
    wanted = list(dict.fromkeys(options.variant or names(options.candidate)))
    candidates = [load(options.candidate, name) for name in wanted]
    if options.run and options.run.exists():
        raise UsageError("already exists", str(options.run), "name a new folder: evidence is never overwritten")
    verdicts, folder = [], options.run.absolute() if options.run else None
    for candidate in candidates:
        run = folder / candidate.variant.name if folder and len(candidates) > 1 else folder
        words = ["npu-verify", options.command, options.candidate, "--variant", candidate.variant.name]
        command = shlex.join(map(str, words + (["--policy", options.policy] if options.policy else [])))
        store = Store(options.cache.absolute())
        with progress(candidate.name, quiet=options.quiet) as shown, apart():
            verdicts.append(examine(candidate, policy, run=run, store=store, progress=shown, command=command))
    _show(verdicts, options)
    return exit_code(verdicts, gate=options.command == "gate")


def exit_code(verdicts: Sequence[Verdict], gate: bool) -> int:
    """check: 1 if anything failed, 3 if nothing could be measured, else 0. gate: 1 failed, 3 inconclusive, 0 passed."""
    from verify.core import Outcome

    if any(verdict.outcome is Outcome.FAILED for verdict in verdicts):
        return 1
    if gate:
        return 0 if verdicts and all(verdict.passed for verdict in verdicts) else NOTHING
    return 0 if verdicts and not any(_nothing(verdict) for verdict in verdicts) else NOTHING


def _nothing(verdict: Verdict) -> bool:
    """Whether the optimised variant itself was never run: the graph tier alone says nothing about it."""
    from verify.core import Outcome, Tier

    legs = [leg for tier in (Tier.DEVICE, Tier.END_TO_END) for leg in verdict.tiers[tier].legs]
    return all(leg.outcome is Outcome.INCONCLUSIVE and leg.worst is None for leg in legs)


def _judge(options: argparse.Namespace) -> int:
    from verify.bundle import checked
    from verify.judge import from_document, judge
    from verify.policy import Policy
    from verify.schemas import read

    _writable(options.json)
    checked(options.run)
    run = from_document(read(options.run / "run.json", "run"))
    verdict = judge(run, Policy.load(options.policy) if options.policy else Policy())
    _show([verdict], options)
    return exit_code([verdict], gate=True)  # what is missing in the run stays missing: never 0


def _compare(options: argparse.Namespace) -> int:
    from verify.compare import compare_files

    _writable(options.json)
    result = compare_files(options.reference, options.candidate, options.precision, options.graph, options.inputs)
    if options.json != "-":
        print(result)
    if options.json:
        _write(result.to_json(), options.json)
    return 0 if result.within else 1


def _diff(options: argparse.Namespace) -> int:
    import json

    from verify.diff import diff
    from verify.schemas import read

    old, new = (read(path / "verdict.json" if path.is_dir() else path, "report") for path in (options.old, options.new))
    text, document = diff(old, new)
    print(text)
    if options.json:
        _write(json.dumps(document), options.json)
    return 1 if document["outcome_changed"] else 0


def _waive(options: argparse.Namespace) -> int:
    from verify.schemas import read
    from verify.waive import waive

    report = read(options.run / "verdict.json", "report")
    print(waive(options.policy, report, options.finding, options.until, options.reason))
    return 0


def _init(options: argparse.Namespace) -> int:
    from verify.init import init

    print(init(options.model, options.out, options.target))
    return 0


def _pack(options: argparse.Namespace) -> int:
    from verify.candidate import load
    from verify.pack import pack
    from verify.reports.progress import progress
    from verify.store import Store

    candidate = load(options.candidate, options.variant)
    with progress(candidate.name, quiet=options.quiet) as shown, apart():
        told = pack(candidate, options.out, Store(options.cache.absolute()), shown)
    print(told)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    import json

    from verify.doctor import diagnose, render

    lines = diagnose(options.python)
    print(render(lines))
    if options.json:
        from dataclasses import asdict

        _write(json.dumps([asdict(line) for line in lines]), options.json)
    return int(any(line.status in ("missing", "wrong") for line in lines))


COMMANDS: dict[str, Callable[[Any], int]] = {
    "init": _init,
    "check": _examine,
    "gate": _examine,
    "compare": _compare,
    "judge": _judge,
    "diff": _diff,
    "waive": _waive,
    "pack": _pack,
    "doctor": _doctor,
}

if __name__ == "__main__":
    sys.exit(main())
