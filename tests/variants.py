"""Known-bad variants: the code with a fault planted in it, which a test must find (docs/glossary.md).

A variant is a function that yields what it replaces, so that its one sentence and its fault stand together. Code is
replaced for nothing else: limits are values that are passed in, and stores fail by :mod:`lakebed.testing.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from lakebed.storage import LocalStorage
from lakebed.storage.contract import PutOutcome


class Planted(NamedTuple):
    """What stands in the place of the attribute ``name`` of a module or a class."""

    owner: Any
    name: str
    wrong: Any


Variant = Callable[[], Iterable[Planted]]


def instead(owner: Any, name: str, wrong: Any) -> Variant:
    """Return a variant of one fault."""
    return lambda: [Planted(owner, name, wrong)]


def creates_over() -> Iterator[Planted]:
    """A store puts over an object that is there, though asked to create it."""

    def create(self: LocalStorage, name: str, data: bytes) -> PutOutcome:
        self.replace(name, data)
        return PutOutcome.CREATED

    yield Planted(LocalStorage, "create", create)


@contextmanager
def planted(variant: Variant) -> Iterator[None]:
    """The code has the faults of the variant during the block."""
    with pytest.MonkeyPatch.context() as patch:
        for fault in variant():
            patch.setattr(*fault)
        yield
