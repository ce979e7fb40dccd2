"""Measurements of the library while it works, for a service that publishes them.

Code calls :func:`measure` with a number, or runs inside a :func:`span`, which measures its duration. Measurements are
received by a :class:`Sink`, such as :class:`lakebed.server.monitoring.monitor.Monitor`.
:mod:`lakebed.server.monitoring.definitions` lists everything that is measured, with its labels.

Rules. Without a sink, which is the usual case, nothing is computed: a span is an object that does nothing, and a point
lookup tests :data:`sink` without calling a function. A sink must not raise, and must be safe to call from many threads.
The label ``table`` has the id of a table, which does not change when the table is renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, cast

from lakebed import clock

if TYPE_CHECKING:
    from types import TracebackType

Labels = dict[str, str]
Ended = Callable[[BaseException | None], None]
"""Called when a span has ended, with the exception that ended it."""


class Sink(Protocol):
    """Receives measurements."""

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Take one value of the measure ``name``: a sample of a histogram, or what to add to a counter."""

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:
        """Begin a span; the returned function is called at its end.

        If it ``nests``, spans that begin in this thread until then are parts of it, and it ends in this thread.
        """


sink: Sink | None = None
"""What receives the measures of this process. Set it by :func:`install`, which another thread may call between two
reads of it.
"""


trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
"""The trace context (W3C, ``traceparent``) that came with the request that is answered here; "" if none came."""


def install(new: Sink | None) -> None:
    """Send all measurements of this process to a sink; None: to none."""
    global sink  # noqa: PLW0603 - one of each process
    sink = new


class Several:
    """Sinks that all receive everything."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Pass the value on."""
        for one in self._sinks:
            one.measured(name, value, labels)

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:
        """Begin a span in each."""
        ends = [end for one in self._sinks if (end := one.begun(name, labels, nests=nests)) is not None]

        def ended(error: BaseException | None) -> None:
            for end in reversed(ends):
                end(error)

        return ended if ends else None


class Span:
    """Some work, from the entry of the ``with`` block to its exit, or from :meth:`begin` to :meth:`end`.

    Its seconds are measured as ``NAME_seconds``; an exception is counted as ``NAME_errors_total``. ``labels`` may be
    changed inside the block, when the outcome is known.
    """

    __slots__ = ("_began_s", "_ended", "_name", "_nests", "labels")

    def __init__(self, name: str, labels: Labels, *, nests: bool = True) -> None:
        """A span that does not nest may end in another thread than it began in."""
        self._name = name
        self._nests = nests
        self.labels = labels
        self._began_s = 0.0
        self._ended: Ended | None = None

    def begin(self) -> None:
        """Begin the measurement."""
        if (to := sink) is not None:
            self._ended = to.begun(self._name, self.labels, nests=self._nests)
        self._began_s = clock.monotonic_s()

    def end(self, error: BaseException | None = None) -> None:
        """End the measurement, with the exception of the work if it failed."""
        if (to := sink) is not None:
            to.measured(f"{self._name}_seconds", clock.monotonic_s() - self._began_s, self.labels)
            # A generator that is closed before its end, and an interrupt, are no errors.
            if isinstance(error, Exception):
                to.measured(f"{self._name}_errors_total", 1, self.labels)
        if self._ended is not None:
            self._ended(error)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)


UNMEASURED: AbstractContextManager[Span] = nullcontext(Span("", {}))
"""What :func:`span` returns without a sink."""


def span(name: str, **labels: str) -> AbstractContextManager[Span]:
    """Return a context manager that measures its block, if there is a sink."""
    return UNMEASURED if sink is None else Span(name, labels)


def measure(name: str, value: float, **labels: str) -> None:
    """Report one value, such as the number of rows that were written."""
    if (to := sink) is not None:
        to.measured(name, value, labels)


P = ParamSpec("P")
Result = TypeVar("Result")


def carry(work: Callable[P, Result]) -> Callable[P, Result]:
    """Return the same work, for another thread: its spans become children of the current span."""
    if sink is None:
        return work
    here = copy_context()

    def carried_work(*args: P.args, **named: P.kwargs) -> Result:
        # Two threads cannot be in one context at the same time.
        return here.copy().run(work, *args, **named)

    return carried_work


def timed_read(kind: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Return a decorator for the methods with which a table, or a snapshot of one, is read."""

    def decorate(method: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(method)
        def read(*args: P.args, **named: P.kwargs) -> Result:
            if sink is None:
                return method(*args, **named)
            with Span("read", {"kind": kind, "table": _table_of(args[0])}):
                return method(*args, **named)

        return read

    return decorate


def _table_of(readable: Any) -> str:
    """Return the id of the table of a ``Table`` or a ``Snapshot``."""
    return cast("str", getattr(readable, "id", None) or readable.state.table)
