"""What is written is what any TOML reader reads back."""

from __future__ import annotations

import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.toml import read_toml
from verify.toml_out import string, table, value

#: TOML holds Unicode scalar values only.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
HELD = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, HELD, max_size=4))
def test_any_table_comes_back(tmp_path_factory, held) -> None:
    path = tmp_path_factory.mktemp("toml") / "x.toml"
    path.write_text(table("", {"top": held}) + table('a."b c"', held), encoding="utf-8")
    assert read_toml(path) == {"top": held, "a": {"b c": held}}


def test_odd_values() -> None:
    assert (value(math.inf), value(True), value(0.1), value({})) == ("inf", "true", "0.1", "{}")
    assert value(datetime.date(2027, 1, 31)) == "2027-01-31"
    assert string('a"\x7f\n') == '"a\\"\\u007f\\n"'
    assert table("t", {"a": None, "b": 1}) == "[t]\nb = 1\n"
    with pytest.raises(TypeError):
        value(None)
