"""Errors of Lakebed as errors of Flight calls: the class decides the gRPC status, the message begins with the code.

=============================  =======================
class                          status
=============================  =======================
AccessError                    UNAUTHENTICATED, PERMISSION_DENIED
NotFoundError                  NOT_FOUND
UsageError, and what an        INVALID_ARGUMENT
object's state refuses
ContentionError, StorageError  UNAVAILABLE
UnknownOutcomeError            DEADLINE_EXCEEDED
any other                      INTERNAL
=============================  =======================

PyArrow has no class for two of these statuses. It makes them of a ValueError and a KeyError, with the traceback in the
message; :class:`_Untraced` keeps the traceback, and with it paths of this machine, away from callers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from lakebed import errors
from lakebed.errors import Code, Error, encode_error
from lakebed.model.documents import dump

_LOG = logging.getLogger("lakebed.flight")


class _Untraced(Exception):  # noqa: N818 - the base of two errors
    """An exception that :mod:`traceback` cannot format: PyArrow then adds only the name of the class, no traceback."""

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("has no traceback to show")


class InvalidArgument(_Untraced, ValueError):  # noqa: N818 - callers see the name
    """Sent as INVALID_ARGUMENT."""


class NotFound(_Untraced, KeyError):  # noqa: N818 - callers see the name
    """Sent as NOT_FOUND."""


_OWN = (
    (errors.NotFoundError, NotFound),
    ((errors.UsageError, errors.ExistsError, errors.RejectedError), InvalidArgument),
)
_OF_FLIGHT = (
    (errors.AccessError, flight.FlightUnauthorizedError),
    ((errors.ContentionError, errors.StorageError), flight.FlightUnavailableError),
    (errors.UnknownOutcomeError, flight.FlightTimedOutError),
    (Error, flight.FlightInternalError),
)

_CLASSES: tuple[type[Exception], ...] = (flight.FlightError, _Untraced)


def call_error(error: Exception) -> Exception:
    """Return the error that ends a call. Unexpected errors are logged, and their messages are not sent."""
    if isinstance(error, _CLASSES):
        return error
    if not isinstance(error, Error):
        _LOG.error("a Flight call failed", exc_info=error)
        bug: Exception = flight.FlightInternalError("bug: the service failed; its log says why")
        return bug
    text = f"{error.code.value}: {error.message}"
    for kinds, own in _OWN:
        if isinstance(error, kinds):
            return own(text)
    if error.code is Code.NOT_AUTHENTICATED:
        kind = flight.FlightUnauthenticatedError
    else:
        kind = next(cls for kinds, cls in _OF_FLIGHT if isinstance(error, kinds))
    found: Exception = kind(text, dump(encode_error(error)))
    return found


@contextmanager
def call_errors() -> Iterator[None]:
    """Raise exceptions in the block as errors of the call."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - every failure ends the call, and none of them the service
        raise call_error(error) from None
