"""The exact time of a Python value: a datetime, a Timestamp of pandas, a ``datetime64`` of NumPy. Pure.

The datetimes of Python have microseconds; a Timestamp of pandas is one of them, and has nanoseconds in addition, which
arithmetic and most conversions ignore. pandas is not imported to recognise its values.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import numpy as np

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units of time per second."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the fields of a datetime, in whatever zone
_SECONDS = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60}
_PER_SECOND_OF_NUMPY = PER_SECOND | {"ps": 10**12, "fs": 10**15, "as": 10**18}


class Moment(NamedTuple):
    """A number of parts of a second since 1970: of UTC if it is ``zoned``, else of an unknown local clock."""

    ticks: int
    per_second: int
    zoned: bool

    def in_units(self, per_second: int) -> int | None:
        """Return the time as a number of other parts of a second; None if it is finer than these."""
        number, rest = divmod(self.ticks * per_second, self.per_second)
        return None if rest else number


def moment_of(value: Any) -> Moment | None:
    """Return the time of a value; None for a missing one, and for values that are no times with a date."""
    if is_missing(value):
        return None
    if isinstance(value, dt.datetime):
        return _of_datetime(value)
    if isinstance(value, np.datetime64):
        return _of_datetime64(value)
    return None


def is_missing(value: Any) -> bool:
    """Return whether a value stands for null: None, NaT and NA of pandas, NaT of NumPy."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return True
    return isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))


def _of_datetime(value: dt.datetime) -> Moment:
    # A Timestamp of pandas has more than its fields as a datetime.
    nanoseconds = getattr(value, "nanosecond", 0)
    fields = dt.datetime(  # noqa: DTZ001 - the zone is subtracted
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    )
    offset = value.utcoffset()
    since = (fields - _EPOCH) // dt.timedelta(microseconds=1) - (offset or dt.timedelta()) // dt.timedelta(
        microseconds=1
    )
    if nanoseconds:
        return Moment(since * 1000 + nanoseconds, 10**9, offset is not None)
    return Moment(since, 10**6, offset is not None)


def _of_datetime64(value: np.datetime64) -> Moment | None:
    unit, step = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):
        return _of_datetime64(value.astype("datetime64[D]"))
    number = int(value.astype(np.int64)) * step
    if unit in _SECONDS:
        return Moment(number * _SECONDS[unit], 1, zoned=False)
    return Moment(number, _PER_SECOND_OF_NUMPY[unit], zoned=False) if unit in _PER_SECOND_OF_NUMPY else None
