"""What the library measures of itself while it works, for a service that publishes it.

Code that does something worth measuring calls :func:`measure` with a number. Without a sink, which is the rule, a call
costs a look at a variable. A sink must not raise and must be safe to call from many threads.
"""

from __future__ import annotations

from typing import Protocol

_sink: Sink | None = None


class Sink(Protocol):
    """Takes what is measured."""

    def __call__(self, name: str, value: float, **labels: str) -> None:
        """Take one value of the measure ``name``."""


def install(sink: Sink | None) -> None:
    """Send all that is measured in this process to a sink; None: to none."""
    global _sink  # noqa: PLW0603 - one of each process
    _sink = sink


def measuring() -> bool:
    """Whether there is a sink: what is costly to find out is found out only then."""
    return _sink is not None


def measure(name: str, value: float, **labels: str) -> None:
    """Report one value, such as the seconds that a lookup took."""
    if _sink is not None:
        _sink(name, value, **labels)
