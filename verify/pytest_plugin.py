"""pytest: the fixture `trial` judges a candidate, the marker `tier(n)` says which tiers a test needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verify.core import Candidate, Tensors, Tier
    from verify.policy import Policy
    from verify.verdict import Verdict

#: Where candidates are looked for when the project does not say: beside the tests, one folder a model, or ours.
PLACES = ("candidate.toml", "*/candidate.toml", "fixtures/*/candidate.toml")
JUDGED = pytest.StashKey[dict[Any, "tuple[Verdict, Path]"]]()
ASKED = pytest.StashKey[list["Trying"]]()


@dataclass
class Trying:
    """One candidate in a test. `judge` runs what is not in the cache; `outputs` are what one role returned."""

    candidate: Candidate
    tiers: frozenset[Tier]
    _session: pytest.Session
    _item: pytest.Item
    shown: list[Verdict] = field(default_factory=list)
    asked: bool = False  # for its verdict or for its outputs

    def __bool__(self) -> bool:
        """Raises: `assert trial(...)` would hold whatever the verdict is."""
        raise TypeError("a trial is no verdict: assert trial(...).judge().passed")

    def judge(self, policy: Policy | None = None) -> Verdict:
        """The verdict, judged once per process, so that running a test again cannot turn it around.

        With the marker `tier`, it holds only those tiers. Unusable input fails the test in one line.
        """
        verdict, _ = self._judged(policy)
        verdict = only(verdict, self.tiers) if self.tiers else verdict
        if verdict not in self.shown:
            self.shown.append(verdict)
            self._item.user_properties += properties(verdict)
        return verdict

    def outputs(self, role: str) -> dict[str, Tensors]:
        """Output tensors by case, as `role` ("source", "graph", "simulator", "device") returned them.

        Raises Missing, with the reason, when that role was not run.
        """
        from verify import recording, schemas
        from verify.core import Missing

        verdict, folder = self._judged(None)
        entries = schemas.read(folder / "run.json", "run")["recordings"]
        held = [recording.load(entry, folder / "recordings") for entry in entries if entry["role"] == role]
        if not held:
            raise Missing(f"{role} was not run", verdict.name, "; ".join(verdict.not_proven))
        return {one.case: dict(one.outputs) for one in held}

    def _judged(self, policy: Policy | None) -> tuple[Verdict, Path]:
        from verify.core import UsageError
        from verify.gating import examine
        from verify.store import Store

        self.asked = True
        cache, root = self._session.config.stash[JUDGED], self._session.config.rootpath
        key = self.candidate.folder.resolve(), self.candidate.name, repr(policy)
        if key not in cache:
            command = f"pytest {self._item.nodeid!r}"
            try:
                verdict = examine(self.candidate, policy, store=Store(root / ".npu-verify"), command=command)
            except UsageError as error:
                raise pytest.fail.Exception(str(error), pytrace=False) from None
            cache[key] = verdict, Path(verdict.run).absolute()
        return cache[key]


def only(verdict: Verdict, tiers: frozenset[Tier]) -> Verdict:
    """The verdict on these tiers alone: `passed` if each of them was run and passed."""
    from dataclasses import replace

    from verify.core import Outcome

    kept = {tier: judged for tier, judged in verdict.tiers.items() if tier in tiers}
    outcomes = {judged.outcome for judged in kept.values()}
    worst = Outcome.INCONCLUSIVE if Outcome.INCONCLUSIVE in outcomes or len(kept) < len(tiers) else Outcome.PASSED
    worst = Outcome.FAILED if Outcome.FAILED in outcomes else worst
    passed = worst is Outcome.PASSED
    return replace(
        verdict,
        outcome=worst,
        tiers=kept,
        findings=tuple(f for f in verdict.findings if f.tier in {tier.value for tier in tiers}),
        blame=() if passed else verdict.blame,
        first_divergent=None if passed else verdict.first_divergent,
        next_steps=() if passed else verdict.next_steps,
    )


def properties(verdict: Verdict) -> list[tuple[str, object]]:
    """What JUnit reports carry of a verdict."""
    named = {"outcome": verdict.outcome.value, "candidate": verdict.name, "variant": verdict.candidate["variant"]}
    tiers = {f"tier.{tier.value}": judged.outcome.value for tier, judged in verdict.tiers.items()}
    return [(f"verify.{name}", value) for name, value in {**named, **tiers}.items()]


def find(model: str, root: Path, places: list[str]) -> Path:
    """The candidate.toml of a model, by its `model` key or the name of its folder; raises UsageError."""
    from verify.core import UsageError
    from verify.toml import nearest, read_toml

    files = sorted(
        {f for place in places for p in root.glob(place) for f in ([p] if p.is_file() else p.rglob("candidate.toml"))}
    )
    named = {str(read_toml(file).get("model")): file for file in files}
    named = {**{file.parent.name: file for file in files}, **named}
    if model not in named:
        do = f"{nearest(model, named)} (looked for {', '.join(places)}; the option verify_candidates names others)"
        raise UsageError(f"no candidate for model {model!r}", str(root), do)
    return named[model]


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Callable[..., Trying]:
    """`trial("ppocr_det", "fp16")`, or a path of a candidate.toml in place of the model's name, or a Candidate."""

    def open(model: str | Path | Candidate, variant: str | None = None) -> Trying:
        from verify.core import Candidate, UsageError

        root, places = request.config.rootpath, request.config.getini("verify_candidates")
        try:
            if not isinstance(model, Candidate):
                path = root / model if str(model).endswith(".toml") else find(str(model), root, places)
                model = Candidate.load(path, variant)
        except UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        tried = Trying(model, _tiers(request.node), request.session, request.node)
        request.node.stash.setdefault(ASKED, []).append(tried)
        return tried

    return open


def _tiers(item: pytest.Item) -> frozenset[Tier]:
    """The tiers that a test's markers ask for; raises UsageError for what is none."""
    from verify.core import Tier

    by_number = dict(enumerate(Tier, 1))
    asked = [number for marker in item.iter_markers("tier") for number in marker.args or (None,)]
    for number in asked:
        if number not in by_number or isinstance(number, bool):
            raise pytest.UsageError(f"{item.nodeid}: tier({number!r}) is none: 1 graph, 2 device, 3 end to end")
    return frozenset(by_number[number] for number in asked)


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "where the fixture trial looks for candidates: files or folders, as globs below the root"
    parser.addini("verify_candidates", what, type="args", default=list(PLACES))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[JUDGED] = {}
    config.addinivalue_line("markers", "tier(n, ...): the test needs these tiers (1 graph, 2 device, 3 end to end)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _tiers(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test with the marker fails where a tier that it needs was not judged, or not passed, whatever it asserts.

    Without the marker too, it fails where a trial was opened and nothing was asked of it.
    """
    yield
    tiers, trials = _tiers(item), item.stash.get(ASKED, [])
    for tried in trials:
        if not tried.asked:
            pytest.fail(f"the trial {tried.candidate.name} was never judged: call judge() and assert on it", False)
    if not tiers:
        return
    verdicts = [verdict for tried in trials for verdict in tried.shown]
    if not trials or not all(tried.shown for tried in trials):
        names = ", ".join(sorted(tier.value for tier in tiers))
        pytest.fail(f"the marker asks for the tiers {names}, and nothing was judged: call trial(...).judge()", False)
    for verdict in verdicts:
        if not verdict.passed:
            pytest.fail(str(verdict), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """pytest shortens an asserted object to 240 characters: put the whole table where its short form stands."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, AssertionError) and error.args:
        text = str(error.args[0])
        for tried in item.stash.get(ASKED, []):
            for verdict in tried.shown:
                text = text.replace(repr(verdict), str(verdict), 1)
        error.args = (text, *error.args[1:])
    return (yield)
