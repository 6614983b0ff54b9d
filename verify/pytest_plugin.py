"""pytest: the fixture `trial` and the marker `tier(n)`."""

from __future__ import annotations
