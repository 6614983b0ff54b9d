"""The targets and precisions that a candidate may name, and the builder that each target has by default."""

from __future__ import annotations

from collections.abc import Mapping

# From the vendor's documentation of `RKNN.config` (toolkit 2.5.0) and, by target, from what its compiler accepted.
_COMMON = ("fp16", "w8a8")
_WIDE = (*_COMMON, "w16a16i_dfp")
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("fp32", "fp16", "w8a8"),
    "gpu": ("fp32", "fp16", "bf16", "w8a8"),
    "rk3562": (*_WIDE, "w8a16"),
    "rk3566": _COMMON,
    "rk3568": _COMMON,
    "rk3576": (*_WIDE, "w4a16"),
    "rk3588": _WIDE,
    "rv1103": ("w8a8",),
    "rv1103b": ("w8a8",),
    "rv1106": ("w8a8",),
    "rv1106b": ("w8a8",),
    "rv1126b": (*_WIDE, "w4a16"),
    "rk2118": _COMMON,
}
#: Builders whose settings have a table of their own in a variant.
BUILDERS = ("rknn", "onnxruntime", "ncnn")


def builder_of(target: str) -> str:
    """The builder that compiles for a target unless the variant names another."""
    return {"cpu": "onnxruntime", "gpu": "ncnn"}.get(target, "rknn")


def integer(precision: str) -> bool:
    """Whether a precision has integer weights, so that a build needs calibration data."""
    return precision.startswith("w")
