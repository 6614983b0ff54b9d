"""`doctor`: what is installed, what is missing or the wrong version, one line each with the command that mends it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.core import Missing
from verify.process import output

#: A capture of MiniLM writes 185 MB a case before the text dumps are dropped; two cases and a build stay below this.
FREE = 1000  # MB
LIMIT = 120.0  # seconds for RKNN(): 2 s warm, 30 s seen from a cold disk
#: What the end of RKNN()'s error says, and the requirement that mends it.
CURES = {
    "pkg_resources": "setuptools<82",
    "libGL": "opencv-python-headless",
    "_ARRAY_API": "numpy<=1.26.4",
    "cv2": "opencv-python-headless",
    "ruamel": "ruamel.yaml",
    "fast_histogram": "fast-histogram",
    "rknn": "rknn-toolkit2==2.5.0",
}


@dataclass(frozen=True)
class Line:
    """One thing looked at. `status` is "ok", "note" (works, but should be known), "wrong" or "missing"."""

    name: str
    status: str
    found: str
    wanted: str = ""
    fix: str = ""


def diagnose(python: str = "") -> list[Line]:
    """Look at an interpreter ("" is this one): Python, packages, RKNN(), temporary folder, disk."""
    interpreter = python or sys.executable
    try:
        # as text: run as a file, this folder would come first on the other interpreter's path
        probe = Path(__file__).with_name("doctor_probe.py").read_text()
        seen = json.loads(output([interpreter, "-c", probe]).splitlines()[-1])
    except (Missing, ValueError, IndexError) as error:
        what = error.what if isinstance(error, Missing) else "did not answer"
        return [Line("python", "missing", what, "Python 3.10 to 3.12", "name an interpreter that runs")]
    return [
        _python(seen),
        *([] if python else _name(seen, interpreter)),
        *_packages(seen, interpreter),
        _toolkit(seen, interpreter),
        *_disk(seen),
        *([] if python else _pins(seen)),
    ]


def _python(seen: Mapping[str, Any]) -> Line:
    found, wanted = f"{seen['python']} on {seen['platform']}", "Python 3.10 to 3.12 on Linux x86_64"
    fits = (3, 10) <= _release(seen["python"])[:2] <= (3, 12) and seen["platform"] == "Linux x86_64"
    return Line("python", "ok" if fits else "wrong", found, wanted, "" if fits else "use such an interpreter")


def _name(seen: Mapping[str, Any], interpreter: str) -> Iterator[Line]:
    """Another distribution on PyPI is called `verify`: whichever was installed last is the one that is imported."""
    import verify

    others = [name for name in seen["verify"] if name != "npu-verify"]
    ours = Path(verify.__file__).parent == Path(__file__).parent and hasattr(verify, "__version__")
    fix = f"{interpreter} -m pip uninstall {' '.join(others) or 'verify'}, then reinstall npu-verify"
    if others or not ours:
        yield Line("import verify", "wrong", f"also shipped by {', '.join(others) or verify.__file__}", "ours", fix)
    elif "npu-verify" not in seen["packages"]:
        fix = f"{interpreter} -m pip install {Path(verify.__file__).parents[1]}"
        yield Line("npu-verify", "wrong", "imported from a folder, its checkers are not registered", "installed", fix)
    else:
        yield Line("npu-verify", "ok", seen["packages"]["npu-verify"])


def _requirements(seen: Mapping[str, Any]) -> dict[str, set[str]]:
    """Version conditions by distribution: those of our extra `host`, and those of the toolkit that is there."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        own = [text for text in requires("npu-verify") or [] if re.search(r"extra\s*==\s*['\"]host['\"]", text)]
    except PackageNotFoundError:
        own = []
    out: dict[str, set[str]] = {}
    for text in [*own, *(t for t in seen["requires"] if "extra" not in t)]:
        match = re.match(r"([A-Za-z0-9._-]+)\s*\(?([^;)]*)", text)
        if match:
            conditions = {part.strip() for part in match[2].split(",") if part.strip()}
            out.setdefault(match[1].lower().replace("_", "-"), set()).update(conditions)
    return out


def _packages(seen: Mapping[str, Any], interpreter: str) -> Iterator[Line]:
    packages: Mapping[str, str] = seen["packages"]
    for name, conditions in sorted(_requirements(seen).items()):
        if name == "opencv-python":  # its headless twin has the same cv2 and needs no graphics libraries
            yield _opencv(packages, interpreter)
            continue
        wanted = ",".join(sorted(conditions, reverse=True))
        fix, found = f"{interpreter} -m pip install '{name}{wanted}'", packages.get(name, "")
        if not found:
            yield Line(name, "missing", "not installed", wanted, fix)
        elif all(_meets(found, condition) for condition in conditions):
            yield Line(name, "ok", found, wanted)
        elif name == "torch" or (name == "rknn-toolkit2" and sys.executable != interpreter):
            # torch 2.13.0 built thousands of graphs; another toolkit is what one names another interpreter for
            yield Line(name, "note", found, f"{wanted} by the vendor's list; others are known to work")
        else:
            yield Line(name, "wrong", found, wanted, fix)


def _opencv(packages: Mapping[str, str], interpreter: str) -> Line:
    held = {name: packages[name] for name in ("opencv-python", "opencv-python-headless") if name in packages}
    if not held:
        return Line("opencv", "missing", "not installed", "", f"{interpreter} -m pip install opencv-python-headless")
    found = ", ".join(f"{name} {version}" for name, version in held.items())
    if len(set(held.values())) > 1:
        fix = f"{interpreter} -m pip uninstall {' '.join(held)}, then install opencv-python-headless"
        return Line("opencv", "wrong", f"two of them share one cv2: {found}", "one", fix)
    return Line("opencv", "ok", found)


def _wanted(seen: Mapping[str, Any]) -> str:
    return "rknn-toolkit2" + ",".join(sorted(_requirements(seen).get("rknn-toolkit2", ())))


def _toolkit(seen: Mapping[str, Any], interpreter: str) -> Line:
    """Whether RKNN() can be made: importing it succeeds where making it does not."""
    if "rknn-toolkit2" not in seen["packages"]:
        return Line("RKNN()", "missing", "no rknn-toolkit2", "", f"{interpreter} -m pip install {_wanted(seen)}")
    try:
        output([interpreter, "-c", "from rknn.api import RKNN; RKNN().release()"], LIMIT)
    except Missing as error:
        found = " ".join(error.what.split()).replace(f"{interpreter} failed with ", "")
        cure = next((need for sign, need in CURES.items() if sign in found), "")
        if not cure and (module := re.search(r"No module named '([\w]+)", found)):
            cure = module[1].replace("_", "-")
        by_hand = f'{interpreter} -c "from rknn.api import RKNN; RKNN()" shows all of it'
        return Line("RKNN()", "wrong", found[-200:], "", f"{interpreter} -m pip install '{cure}'" if cure else by_hand)
    return Line("RKNN()", "ok", "can be made")


def _disk(seen: Mapping[str, Any]) -> Iterator[Line]:
    if not seen["tmpdir"]:
        yield Line("temporary folder", "wrong", "cannot be written", "", "make it writable, or set TMPDIR to another")
    elif seen["free"] < FREE:
        yield Line("temporary folder", "wrong", f"{seen['free']} MB free", f"{FREE} MB", "set TMPDIR to a larger disk")
    else:
        yield Line("temporary folder", "ok", f"{seen['tmpdir']}, {seen['free']} MB free")
    free = shutil.disk_usage(".").free >> 20
    enough = free >= FREE
    fix = "" if enough else "make room, or name another folder with --cache"
    yield Line("disk here", "ok" if enough else "wrong", f"{free} MB free", "" if enough else f"{FREE} MB", fix)


def _pins(seen: Mapping[str, Any]) -> Iterator[Line]:
    """In a checkout: where this installation departs from the pinned one."""
    pins = Path(__file__).parents[1] / "tools" / "pins.txt"
    if not pins.is_file():
        return
    for text in pins.read_text().splitlines():
        match = re.match(r"([\w.-]+)==([\w.]+)\s*(;\s*python_version < \"3\.11\")?", text)
        if not match or (match[3] and _release(seen["python"])[:2] >= (3, 11)):
            continue
        found = seen["packages"].get(match[1], "")
        if not found:
            yield Line(match[1], "missing", "not installed", f"=={match[2]}", "make install")
        elif found.partition("+")[0] != match[2]:
            yield Line(match[1], "note", found, f"=={match[2]}, as pinned in tools/pins.txt")


def _release(version: str) -> tuple[int, ...]:
    """The numbers in front of any suffix: "2.13.0+cpu" -> (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _meets(version: str, condition: str) -> bool:
    sign, limit = re.match(r"(<=|>=|==|!=|<|>|~=)?\s*(.*)", condition).groups()  # type: ignore[union-attr]
    have, want = _release(version), _release(limit)
    width = max(len(have), len(want))
    have, want = (part + (0,) * (width - len(part)) for part in (have, want))
    answers = {"<=": have <= want, ">=": have >= want, "==": have == want, "!=": have != want, "<": have < want}
    return answers.get(sign, have >= want)


def render(lines: list[Line]) -> str:
    """One line each: status, name, what was found, what was wanted, the command that mends it; then how it stands."""
    out = []
    for line in lines:
        wanted = f" (wanted: {line.wanted})" if line.wanted and line.status != "ok" else ""
        fix = f"  ->  {line.fix}" if line.fix else ""
        out.append(f"{line.status:8} {line.name:24} {line.found}{wanted}{fix}")
    bad = sum(line.status in ("missing", "wrong") for line in lines)
    out.append(f"{bad} to mend: run what stands behind ->" if bad else "Everything that the toolkit needs is here.")
    return "\n".join(out)
