"""One variant's table of candidate.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verify.core import UsageError, Variant
from verify.targets import BUILDERS, PRECISIONS, builder_of, integer
from verify.toml import nearest, only, texts, value

VARIANT = ("target", "precision", "builder", "graph", "artifact", "run", "calibration", "keep_float")


def read_variant(name: str, document: Mapping[str, Any], path: str) -> Variant:
    """The variant `name` of a candidate's document; raises UsageError for what it does not understand."""
    table, where = document["variant"][name], f"{path}, [variant.{name}]"
    only(table, (*VARIANT, *BUILDERS, *([table["builder"]] if isinstance(table.get("builder"), str) else [])), where)
    text = {key: value(table, key, str, "", where) for key in VARIANT if key != "keep_float"}
    target = text["target"] or value(document, "target", str, "", path)
    if not target:
        raise UsageError("has no target", where, 'write target = "rk3588" here, or at the top for every variant')
    if target not in PRECISIONS:
        raise UsageError(f"unknown target {target!r}", where, nearest(target, PRECISIONS))
    precision, known = text["precision"] or ("fp32" if target == "cpu" else ""), PRECISIONS[target]
    if not precision:
        raise UsageError("has no precision", where, f"known for {target}: {', '.join(known)}")
    if precision not in known:
        raise UsageError(f"unknown precision {precision!r} for {target}", where, nearest(precision, known))
    given = [key for key in ("builder", "artifact", "run") if text[key]]
    if text["run"] and len(given) > 1:
        raise UsageError(f"has both run and {given[0]}", where, "keep one: a runner is neither built nor handed over")
    builder = "" if text["run"] else text["builder"] or builder_of(target)
    settings = {key: dict(value(table, key, dict, {}, where)) for key in table if key not in VARIANT}
    for key in settings:
        if key != builder:
            do = f"remove it or set builder = {key!r}" if not text["run"] else "remove it: a runner is not built here"
            raise UsageError(f"settings of {key}, which does not build this variant", where, do)
    if builder and not text["artifact"] and integer(precision) and not text["calibration"]:
        do = 'write calibration = "calib/*.npz", "build.py:calibration" or the toolkit\'s dataset.txt'
        raise UsageError(f"{precision} without calibration", where, do)
    kept = tuple(dict.fromkeys(texts(table, "keep_float", where)))
    if kept and (builder != "rknn" or not integer(precision)):
        do = "remove it: layers are kept in float in the integer builds of the builder rknn only"
        raise UsageError(f"keep_float in a {precision} build by {builder or 'a runner of your own'}", where, do)
    return Variant(
        name=name, target=target, precision=precision, builder=builder, graph=text["graph"],
        artifact=text["artifact"], run=text["run"], calibration=text["calibration"], settings=settings,
        keep_float=kept,
    )  # fmt: skip
