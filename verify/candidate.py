"""candidate.toml -> Candidate, strictly: whatever is not understood is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify.bundle import checked
from verify.core import Accuracy, Candidate, InputSpec, UsageError
from verify.limits import LIMITS
from verify.toml import nearest, numbers, only, read_toml, texts, value
from verify.variants import VARIANT, read_variant

__all__ = ["ACCURACY", "INPUT", "TABLES", "TOP", "VARIANT", "load", "names"]

TOP = ("model", "target", "source", "graph", "cases", "traits", "depends", "batch_axis", "time_limit")
TABLES = ("input", "accuracy", "toolkit", "budget", "variant")
INPUT = ("layout", "mean", "std", "color", "shape")
ACCURACY = ("score", "margin", "cases", "batch", "alpha")
#: Names become parts of folder names and of signed properties, where "/", ":" and "@" separate.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def load(path: str | Path, variant: str | None = None) -> Candidate:
    """One variant of a candidate.toml; `variant` may be left out when there is only one. Raises UsageError."""
    path, document = _read(path)
    checked(path.parent)
    found = list(_variants(path, document))
    if variant is None:
        if len(found) > 1:
            raise UsageError(f"has {len(found)} variants", str(path), f"name one with --variant: {', '.join(found)}")
        variant = found[0]
    if variant not in found:
        raise UsageError(f"unknown variant {variant!r}", str(path), nearest(variant, found))
    where = str(path)
    toolkit = _table(document, "toolkit", where)
    only(toolkit, ("python",), f"{where}, [toolkit]")
    limit = value(document, "time_limit", float, Candidate.time_limit, where)
    if not 0 < limit < float("inf"):
        raise UsageError(f"time_limit = {limit:g} is not a number of seconds", where, "write a positive number")
    return Candidate(
        model=_name(_wanted(document, "model", where, 'for example model = "detector"'), "model", where),
        variant=read_variant(variant, document, where),
        folder=path.parent,
        source=_wanted(document, "source", where, 'source = "build.py:source", or the original .onnx file'),
        graph=_wanted(document, "graph", where, 'graph = "model.onnx", or "build.py:export"'),
        cases=_wanted(document, "cases", where, 'cases = "cases/*.npz", or "build.py:cases"'),
        inputs={name: _input(name, item, where) for name, item in _tables(document, "input", where).items()},
        accuracy=_accuracy(document["accuracy"], f"{where}, [accuracy]") if "accuracy" in document else None,
        traits=frozenset(texts(document, "traits", where)),
        python=_python(value(toolkit, "python", str, "", f"{where}, [toolkit]"), path.parent, f"{where}, [toolkit]"),
        budgets=_budget(_table(document, "budget", where), f"{where}, [budget]"),
        depends=texts(document, "depends", where),
        batch_axis=_batch_axis(document, where),
        time_limit=limit,
    )


def _batch_axis(document: Mapping[str, Any], where: str) -> int | None:
    if document.get("batch_axis") is False:
        return -1
    axis: int | None = value(document, "batch_axis", int, None, where)
    if axis is not None and axis < 0:
        raise UsageError(f"batch_axis = {axis}", where, "count from 0, or write false where there is no batch")
    return axis


def names(path: str | Path) -> list[str]:
    """The variants of a candidate.toml in the file's order; raises UsageError."""
    path, document = _read(path)
    return list(_variants(path, document))


def _read(path: str | Path) -> tuple[Path, dict[str, Any]]:
    path = Path(path)
    path = (path / "candidate.toml" if path.is_dir() else path).absolute()
    document = read_toml(path)
    only(document, (*TOP, *TABLES), str(path))
    return path, document


def _variants(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    found = _tables(document, "variant", str(path))
    for name in found:
        _name(name, "variant", str(path))
    if not found:
        raise UsageError("has no variant", str(path), 'add a table such as [variant.fp16] with precision = "fp16"')
    return found


def _table(document: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    return dict(value(document, key, dict, {}, where))


def _tables(document: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    tables = _table(document, key, where)
    for name, item in tables.items():
        if not isinstance(item, dict):
            raise UsageError(f"{name} = {item!r} is not a table", f"{where}, [{key}]", f"write [{key}.NAME] instead")
    return tables


def _wanted(document: Mapping[str, Any], key: str, where: str, do: str) -> str:
    found = value(document, key, str, "", where)
    if not found.strip():
        raise UsageError(f"has no {key}", where, do)
    return str(found)


def _name(name: str, what: str, where: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(f"{what} {name!r} is not a plain name", where, "use letters, digits and . _ + - only")
    return name


def _input(name: str, table: Mapping[str, Any], path: str) -> InputSpec:
    where = f"{path}, [input.{name}]"
    only(table, INPUT, where)
    layout, color = (value(table, key, str, "", where) for key in ("layout", "color"))
    for key, found, known in (("layout", layout, ("nchw", "nhwc")), ("color", color, ("rgb", "bgr", "gray"))):
        if found and found not in known:
            raise UsageError(f"unknown {key} {found!r}", where, nearest(found, known))
    mean, std = numbers(table, "mean", where), numbers(table, "std", where)
    mean, std = mean or (0.0,) * len(std), std or (1.0,) * len(mean)
    if len(mean) != len(std):
        raise UsageError(f"{len(mean)} means but {len(std)} deviations", where, "write one of each per channel")
    if any(s <= 0 for s in std):
        raise UsageError("std holds a number that is not positive", where, "write what the application divides by")
    if (mean or color) and not layout:
        raise UsageError("has no layout, so the channel axis is unknown", where, 'write layout = "nchw" or "nhwc"')
    shape = numbers(table, "shape", where, whole=True) if "shape" in table else None
    return InputSpec(name, layout, mean, std, color, shape)


def _accuracy(table: Any, where: str) -> Accuracy:
    if not isinstance(table, dict):
        raise UsageError("is not a table", where, 'write [accuracy], then score = "..."')
    only(table, ACCURACY, where)
    plain = Accuracy()
    margin, alpha = (value(table, key, float, getattr(plain, key), where) for key in ("margin", "alpha"))
    batch = value(table, "batch", int, plain.batch, where)
    for key, good, do in (
        ("margin", 0 <= margin < 1, "write a loss of 0 or more and less than 1, which nothing could exceed"),
        ("alpha", 0 < alpha <= 0.5, "write how often a wrong decision may happen, 0.5 at most, for example 0.05"),
        ("batch", batch >= 1, "write a positive whole number"),
    ):
        if not good:
            raise UsageError(f"{key} = {table[key]!r} is out of range", where, do)
    score = value(table, "score", str, plain.score, where)
    known = sorted(p.stem for p in (Path(__file__).parent / "scores").glob("[a-z]*.py") if p.stem != "sequential")
    if ":" not in score and score not in known and score not in _plugged():
        raise UsageError(f"unknown score {score!r}", where, f'{nearest(score, known)} or write "file.py:function"')
    return Accuracy(score, margin, value(table, "cases", str, "", where), batch, alpha)


def _plugged() -> set[str]:
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group="verify.scores")}


def _python(given: str, folder: Path, where: str) -> str:
    if not given:
        return ""
    path = Path(given).expanduser()
    found = shutil.which(str(folder / path) if "/" in str(path) else str(path))
    if found is None:
        raise UsageError(f"no interpreter {given!r}", where, "name the python that has the toolkit, or leave it out")
    return found


def _budget(table: Mapping[str, Any], where: str) -> dict[str, float]:
    """Limits by "checker.metric", or by metric alone for the checker `regions`; they only make gates of reports."""
    known = {f"{checker}.{metric}" for checker, metric in LIMITS}
    for metric in table:
        name = metric if "." in metric else f"regions.{metric}"
        if name == "accuracy.loss":
            raise UsageError("the loss has a margin", where, "write [accuracy] margin")
        if name not in known and name.partition(".")[0] in {held.partition(".")[0] for held in known}:
            raise UsageError(f"unknown metric {metric!r}", where, nearest(name, known))
    return {metric: value(table, metric, float, 0.0, where) for metric in table}
