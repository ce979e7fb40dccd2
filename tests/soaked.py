"""Values of a parameter of which `make test` takes the first, and `make soak` the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def few(values: Iterable[Any], count: int) -> Sequence[Any]:
    """Return the values, those after the first ``count`` marked as slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (number >= count))
        for number, value in enumerate(values)
    ]
