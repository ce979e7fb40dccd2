"""Values of parameters of which `make test` takes some, and `make soak` the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def few(values: Iterable[Any], count: int) -> Sequence[Any]:
    """Return the values, those after the first ``count`` marked as slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (number >= count))
        for number, value in enumerate(values)
    ]


def chosen(values: Iterable[Any], *quick: Any) -> Sequence[Any]:
    """Return the values, those that are not named as quick marked as slow."""
    listed = list(values)
    assert all(value in listed for value in quick), f"{quick}: not all of these are in {listed}"
    return [pytest.param(value, marks=[pytest.mark.slow] * (value not in quick)) for value in listed]


def each_once(ids: Callable[[Any], object] | None = None, /, **values: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by all combinations of the values of its arguments.

    Those that are not marked as slow are as few as have each value: the first of all arguments, the second of all, and
    so on; where an argument has no more values, its first ones again.
    """
    listed = [list(some) for some in values.values()]
    quick = {tuple(number % len(some) for some in listed) for number in range(max(map(len, listed)))}
    combined = [
        pytest.param(
            *(some[place] for some, place in zip(listed, places, strict=True)),
            marks=[pytest.mark.slow] * (places not in quick),
        )
        for places in itertools.product(*map(range, map(len, listed)))
    ]
    return pytest.mark.parametrize(list(values), combined, ids=ids)
