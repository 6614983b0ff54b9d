"""A small set of layers that passes when kept in float, found with few builds: sets are built, not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from verify.diagnose.ranking import Ranked

#: The first set leaves this much of the predicted squared error, each further one GROW times as much (house choices).
START, GROW = 0.1, 0.2
#: Builds kept back for leaving members out again.
BACK = 2

Groups = tuple[Ranked, ...]


def search(ranked: Sequence[Ranked], passes: Callable[[Groups], bool], builds: int) -> Groups:
    """The smallest set found that `passes`, within `builds` calls of it; () where none did.

    Sets are the worst layers, more of them until one passes (before the last build: all that have any error), then
    fewer by bisection, then without the families (layers of one name but for its numbers) that matter least.
    A set that passes need not contain the smaller one that does: what is returned was itself built.
    """
    useful = tuple(r for r in ranked if not r.output <= 0)
    best: Groups = ()
    tried: set[str] = set()
    left, low, goal = builds, 0, START
    while left > 0 and not best and low < len(useful):
        count = len(useful) if left == 1 else max(low + 1, _enough(useful, goal))
        left, goal = left - 1, goal * GROW
        if passes(useful[:count]):
            best = useful[:count]
        else:
            low = count
    while left > BACK and len(best) - low > 1:
        count = (low + len(best)) // 2
        left -= 1
        if passes(useful[:count]):
            best = useful[:count]
        else:
            low = count
    while left > 0 and best:
        shares: dict[str, float] = {}
        for member in best:
            shares[_family(member)] = shares.get(_family(member), 0.0) + member.share
        open_ = [name for name in sorted(shares, key=lambda name: shares[name]) if name not in tried]
        if not open_ or len(shares) == 1:
            break
        tried.add(open_[0])
        fewer = tuple(r for r in best if _family(r) != open_[0])
        left -= 1
        if passes(fewer):
            best = fewer
    return best


def _enough(ranked: Groups, goal: float) -> int:
    """How many of the worst layers leave no more than `goal` of the predicted squared error."""
    rest = sum(r.share for r in ranked)
    for count, held in enumerate(ranked, 1):
        rest -= held.share
        if rest <= goal + 1e-9:  # shares are sums of rounded numbers
            return count
    return len(ranked)


def _family(held: Ranked) -> str:
    return re.sub(r"\d+", "#", held.layers[-1])
