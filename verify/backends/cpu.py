"""This machine's CPU as the target: the artefact that the onnxruntime builder left, as an application would run it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from verify.backends import _ort
from verify.core import Artifact, Candidate
from verify.protocols import Session
from verify.toml import only, value


class CpuBackend:
    """onnxruntime with a fixed number of threads. A fused artefact runs as it is, a quantised one fully optimised."""

    role = "device"

    @contextmanager
    def open(self, candidate: Candidate, artifact: Artifact) -> Iterator[Session]:
        """Raises UsageError when the artefact cannot be loaded or the settings hold an unknown key."""
        variant = candidate.variant
        level, count = run_settings(candidate, QUANTISING)
        if variant.precision == "fp32" and not variant.artifact:
            level = "off"  # it was fused when it was built; some fusions cannot be loaded when they are done twice
        yield _ort.session(artifact.path, _ort.options(level, count), f"{candidate.name}, {artifact.path.name}")


#: What [variant.NAME.onnxruntime] may hold: for every precision, and for w8a8 alone.
RUN = ("optimization", "threads")
QUANTISING = (
    "per_channel",
    "reduce_range",
    "activation_type",
    "weight_type",
    "calibrate_method",
    "op_types_to_quantize",
    "nodes_to_quantize",
    "nodes_to_exclude",
    "extra_options",
)


def run_settings(candidate: Candidate, further: tuple[str, ...] = ()) -> tuple[str, int | None]:
    """Optimisation level and threads from the variant's onnxruntime table; raises UsageError for what is not known."""
    from verify.core import UsageError
    from verify.toml import nearest

    table = candidate.variant.settings.get("onnxruntime", {})
    where = f"[variant.{candidate.variant.name}.onnxruntime]"
    only(table, (*RUN, *further), where)
    level, count = value(table, "optimization", str, "all", where), value(table, "threads", int, 0, where)
    if level not in _ort.LEVELS:
        raise UsageError(f"unknown optimization {level!r}", where, nearest(level, _ort.LEVELS))
    if count < 0:
        raise UsageError(f"threads = {count}", where, "write a positive number, or leave it out for every core")
    return level, count or None
