"""Methods of the library that a connected instance or table does not have: each raises an error with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lakebed.errors import Code

_OPEN = "open the instance itself, lakebed.open(url)"


def missing(name: str, remedy: str = _OPEN) -> Callable[..., NoReturn]:
    """A method that says what to use instead."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise refused(name, remedy)

    refuse.__name__ = name
    refuse.__doc__ = f"Raise UsageError: a service does not offer it; {remedy}."
    return refuse


def refused(name: str, remedy: str = _OPEN) -> Exception:
    """The error for what a service does not offer."""
    return Code.REMOTE_UNSUPPORTED(f"{name} is not there through a service; {remedy}", name=name)
