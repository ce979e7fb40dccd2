"""Another clock for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed import clock


def set_clock(patch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """Replace functions of :mod:`lakebed.clock`, by their names, for as long as the patch lasts."""
    for name, function in functions.items():
        patch.setattr(clock, name, function)
