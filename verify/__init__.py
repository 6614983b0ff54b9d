"""npu-verify: decides whether an optimised model may run. The public names, each loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.core import Accuracy as Accuracy
    from verify.core import Artifact as Artifact
    from verify.core import Build as Build
    from verify.core import Candidate as Candidate
    from verify.core import Case as Case
    from verify.core import InputSpec as InputSpec
    from verify.core import LayerRow as LayerRow
    from verify.core import Measurement as Measurement
    from verify.core import Missing as Missing
    from verify.core import NotComparable as NotComparable
    from verify.core import Outcome as Outcome
    from verify.core import Recording as Recording
    from verify.core import RunSpec as RunSpec
    from verify.core import Tier as Tier
    from verify.core import UsageError as UsageError
    from verify.core import Variant as Variant
    from verify.core import VerifyError as VerifyError
    from verify.core import Where as Where
    from verify.core import runs as runs
    from verify.gating import Rejected as Rejected
    from verify.gating import check as check
    from verify.gating import gate as gate
    from verify.policy import Policy as Policy
    from verify.protocols import Backend as Backend
    from verify.protocols import Builder as Builder
    from verify.protocols import Checker as Checker
    from verify.protocols import Score as Score
    from verify.protocols import Session as Session
    from verify.store import Store as Store
    from verify.trial import Trial as Trial
    from verify.verdict import Finding as Finding
    from verify.verdict import Verdict as Verdict

    __version__: str

#: Where each public name lives.
HOME = {
    "core": "Accuracy Artifact Build Candidate Case InputSpec LayerRow Measurement Missing NotComparable Outcome "
    "Recording RunSpec Tier UsageError Variant VerifyError Where runs",
    "gating": "Rejected check gate",
    "policy": "Policy",
    "protocols": "Backend Builder Checker Score Session",
    "store": "Store",
    "trial": "Trial",
    "verdict": "Finding Verdict",
}
_MODULE = {name: module for module, names in HOME.items() for name in names.split()}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("npu-verify")
    if name not in _MODULE:
        raise AttributeError(f"module 'verify' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"verify.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE, "__version__"})
