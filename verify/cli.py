"""`npu-verify`: commands and exit codes; what the commands do lives elsewhere and is imported when needed."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from verify.arguments import parser
from verify.core import UsageError
from verify.streams import abandon, apart, open_all, writable, write

if TYPE_CHECKING:
    from verify.verdict import Verdict

USAGE, NOTHING = 2, 3
#: Packages that commands beyond compare and judge need.
HEAVY = ("onnx", "onnxruntime", "torch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (design, section 5)."""
    open_all()
    arguments = parser()
    options = arguments.parse_args(argv)
    if options.version:
        from verify import __version__

        print(f"npu-verify {__version__}")
        return 0
    if options.command is None:
        arguments.print_usage(sys.stderr)
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
        write("\n".join(verdict.to_json() for verdict in verdicts), options.json)
    if options.junit:
        write(junit(verdicts), options.junit)


def _examine(options: argparse.Namespace) -> int:
    from verify.candidate import load, names
    from verify.gating import examine
    from verify.policy import Policy
    from verify.reports.progress import progress
    from verify.store import Store

    for target in (options.json, options.junit):
        writable(target)
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
    from verify.judge import judge
    from verify.policy import Policy
    from verify.schemas import read
    from verify.stored import from_document

    writable(options.json)
    checked(options.run)
    run = from_document(read(options.run / "run.json", "run"))
    verdict = judge(run, Policy.load(options.policy) if options.policy else Policy())
    _show([verdict], options)
    return exit_code([verdict], gate=True)  # what is missing in the run stays missing: never 0


def _localize(options: argparse.Namespace) -> int:
    import json

    from verify.localize import of_folder
    from verify.policy import Policy
    from verify.reports.layers import render

    writable(options.json)
    found = of_folder(options.run, Policy.load(options.policy) if options.policy else Policy())
    if options.json != "-":
        print(render(found, colour=sys.stdout.isatty(), verbose=options.verbose))
    document = found.to_document()
    code = found.exit_code
    if options.repair:
        from verify.repairing import repaired

        code, document["repair"] = repaired(found, options)
    if options.json:
        write(json.dumps(document, allow_nan=False), options.json)
    return code


def _compare(options: argparse.Namespace) -> int:
    from verify.compare import compare_files

    writable(options.json)
    paths = options.reference, options.candidate
    result = compare_files(*paths, options.precision, options.graph, options.inputs, options.optimization)
    if options.json != "-":
        print(result)
    if options.json:
        write(result.to_json(), options.json)
    return 0 if result.within else 1


def _diff(options: argparse.Namespace) -> int:
    import json

    from verify.diff import diff
    from verify.schemas import read

    old, new = (read(path / "verdict.json" if path.is_dir() else path, "report") for path in (options.old, options.new))
    text, document = diff(old, new)
    print(text)
    if options.json:
        write(json.dumps(document), options.json)
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

        write(json.dumps([asdict(line) for line in lines]), options.json)
    return int(any(line.status in ("missing", "wrong") for line in lines))


COMMANDS: dict[str, Callable[[Any], int]] = {
    "init": _init,
    "check": _examine,
    "gate": _examine,
    "compare": _compare,
    "judge": _judge,
    "localize": _localize,
    "diff": _diff,
    "waive": _waive,
    "pack": _pack,
    "doctor": _doctor,
}

if __name__ == "__main__":
    sys.exit(main())
