"""The output that a score reads, and the reference it is held against."""

from __future__ import annotations

from verify.core import Array, NotComparable, Tensors


def pick(expected: Tensors, outputs: Tensors, score: str) -> list[tuple[Array, Array]]:
    """(expected, output) for every name in `expected`; raises NotComparable when one is missing, empty or misshapen."""
    if not outputs:
        raise NotComparable("no outputs came back", f"score {score}")
    missing = [name for name in expected if name not in outputs]
    if missing:
        raise NotComparable(f"output {missing[0]} did not come back", f"score {score}", f"got: {', '.join(outputs)}")
    if not expected:
        raise NotComparable("nothing is expected", f"score {score}", "give the cases labels, or run the source model")
    pairs = [(expected[name], outputs[name]) for name in expected]
    for name, (wanted, got) in zip(expected, pairs, strict=True):
        if wanted.shape != got.shape:
            raise NotComparable(f"shape {got.shape}, expected {wanted.shape}", f"score {score}, output {name}")
        if not wanted.size or not got.size:
            raise NotComparable("empty: nothing can be scored", f"score {score}, output {name}")
    return pairs
