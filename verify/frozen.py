"""What an export takes from a traced tensor into Python, where tracing forgets it: frozen branches, baked numbers."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verify.core import Candidate

#: Each hands a tensor's content to Python; after that a trace knows only the number.
TAKERS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist")
#: Where a trace asks for a shape: what is computed from shapes alone cannot differ while they are fixed.
SHAPES = frozenset({"aten::size", "aten::dim", "aten::numel", "aten::sym_size", "prim::Constant"})

SHOWN = 3  # places in one sentence


@dataclass(frozen=True)
class Site:
    """A line of user code that took a value: `data` unless shapes alone give it, `branch` where it was a bool."""

    path: str
    line: int
    branch: bool
    data: bool

    def __str__(self) -> str:
        text = linecache.getline(self.path, self.line).strip()
        return f"{Path(self.path).name}:{self.line}" + (f" ({text[:80]})" if text else "")


@dataclass
class Watch:
    """`sites` in order of their first sight in a trace; `seen` the values taken at a place, one tuple per run."""

    sites: dict[tuple[str, int], Site] = field(default_factory=dict)
    seen: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    active: bool = False  # whether torch could be watched at all

    def note(self, name: str, tensor: Any, value: Any) -> None:
        """Called whenever a tensor hands a value to Python."""
        place = _place()
        if place is None or linecache.getline(*place).lstrip().startswith("assert "):
            return  # after an assertion there is no other way: it ends the run
        import torch

        if torch._C._get_tracing_state() is None:
            self.seen.setdefault(place, []).append(value)
            return
        site = Site(*place, name == "__bool__", _of_data(tensor))
        known = self.sites.get(place)
        if known is None or (site.data and not known.data):
            self.sites[place] = site


@dataclass(frozen=True)
class Frozen:
    """A place and whether the cases, taken together, went more than one way there."""

    site: Site
    covered: bool


def frozen(sites: Sequence[Site], taken: Sequence[Watch]) -> tuple[Frozen, ...]:
    """What the source did, case by case, at each place where the exporter took a value."""
    ways = ({tuple(watch.seen.get((s.path, s.line), ())) for watch in taken} for s in sites)
    return tuple(Frozen(site, len(way) > 1) for site, way in zip(sites, ways, strict=True))


def decided(taken: Sequence[Watch]) -> list[str]:
    """A note on where the source itself, untraced, decides on data and all cases go one way: for a graph from a file.

    Only a note: whether the exporter froze it cannot be told from the file, and buffers decide like data here.
    """
    places = dict.fromkeys(place for watch in taken for place in watch.seen)
    alone = [p for p in places if len({tuple(watch.seen.get(p, ())) for watch in taken}) == 1]
    if not alone:
        return []
    named = [str(Site(*place, True, True)) for place in alone[:SHOWN]]
    more = f" and {len(alone) - SHOWN} more places" if len(alone) > SHOWN else ""
    what = "one branch covered: the source decides on values, and every case goes the same way"
    return [f"{what}, at {', '.join(named)}{more}; an exporter may have frozen that"]


def of_export(watch: Watch, caught: Sequence[Any]) -> tuple[list[Site], list[str]]:
    """The places, and what else the exporter warned of, in words; without a watch, its warnings give the places."""
    sites: list[Site] = list(watch.sites.values())
    notes: dict[str, None] = {}
    for warning in caught:
        if "Tracer" not in warning.category.__name__:
            continue
        text = " ".join(str(warning.message).split())
        if text.startswith("Converting a tensor to a Python"):
            if not watch.active:  # torch was not there yet, so nothing says what the value depends on
                sites.append(Site(warning.filename, warning.lineno, "boolean" in text, True))
            continue
        notes[f"the exporter warned at {Path(warning.filename).name}:{warning.lineno}: {text[:120]}"] = None
    for what, data in (
        ("froze what depends on data", True),
        ("baked what follows from shapes (no harm while they are fixed)", False),
    ):
        places = [str(site) for site in sites if site.data is data]
        if places:
            more = f" and {len(places) - SHOWN} more places" if len(places) > SHOWN else ""
            notes[f"the exporter {what}, at {', '.join(places[:SHOWN])}{more}"] = None
    return sites, list(notes)


@contextmanager
def watching(candidate: Candidate, declared: str) -> Iterator[Watch]:
    """Watch torch tensors while `declared` ("file.py:function") is called; without torch there, nothing is watched."""
    from verify.usercode import is_reference, resolve

    watch = Watch()
    if is_reference(declared):
        resolve(declared, candidate.folder)
        file = candidate.folder / declared.rpartition(":")[0]
        if "torch" not in sys.modules and b"torch" in file.read_bytes():
            with _quiet():
                import torch  # noqa: F401  it is about to be imported there, too late to be watched
    with taking(watch):
        yield watch


@contextmanager
def _quiet() -> Iterator[None]:
    try:
        yield
    except ImportError:  # the user's own code will say so
        return


@contextmanager
def taking(watch: Watch) -> Iterator[None]:
    """Tell `watch` of every value that a torch tensor hands to Python until the end."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    watch.active = True
    held = {name: torch.Tensor.__dict__.get(name) for name in TAKERS}
    for name in TAKERS:
        setattr(torch.Tensor, name, _told(name, getattr(torch.Tensor, name), watch))
    try:
        yield
    finally:
        for name, usual in held.items():
            if usual is None:  # inherited
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, usual)


def _told(name: str, usual: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    def take(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        value = usual(tensor, *args, **kwargs)
        watch.note(name, tensor, value)
        return value

    return take


def _place() -> tuple[str, int] | None:
    """The nearest line that is neither ours nor torch's; None while torch is at work for itself."""
    torch = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith((torch, "<")):
            return name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _of_data(tensor: Any) -> bool:
    """Whether the traced value depends on more than shapes and constants; also where the trace cannot be read."""
    import torch

    try:
        value = torch._C._get_value_trace(tensor)
        todo, done = [value.node()], set()
        while todo:
            node = todo.pop()
            if node.kind() == "prim::Param":
                return True
            if node.kind() in SHAPES or id(node) in done:
                continue
            for item in node.inputs():
                key = item.debugName()
                if key not in done:
                    done.add(key)
                    todo.append(item.node())
        return False
    except Exception:  # the tracer is no public interface: what it does not tell counts as data
        return True
