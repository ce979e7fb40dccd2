"""Another clock for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed import clock


def skip_sleeps(patch: pytest.MonkeyPatch) -> None:
    """Let time pass at once in place of sleeping: limits of seconds are met without waiting for them."""
    monotonic_s, skipped_s = clock.monotonic_s, [0.0]

    def skip(seconds: float) -> None:
        skipped_s[0] += seconds

    set_clock(patch, sleep=skip, monotonic_s=lambda: monotonic_s() + skipped_s[0])


def set_clock(patch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """Replace functions of :mod:`lakebed.clock`, by their names, for as long as the patch lasts."""
    for name, function in functions.items():
        patch.setattr(clock, name, function)
