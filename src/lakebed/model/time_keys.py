"""Key types of dates, times of day and timestamps, whose contents are the integers of their columns. Pure.

Times that Python's types cannot represent are integers, too, for users: finer than microseconds, or outside of the
years 1 to 9999. Parquet has no seconds and stores milliseconds instead.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.iso_times import is_expanded, iso_text, times_of_texts
from lakebed.model.key_type import Word, same
from lakebed.model.moments import PER_SECOND, Moment, moment_of
from lakebed.model.number_keys import WholeNumbers
from lakebed.model.type_names import name_of

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1)
_DAY_S = 86_400
_MS_PER_S = 1_000
_BEYOND_PYTHON = re.compile(r"^\s*0000-|\.\d{7}")
"""A year, or a fraction of a second, that Python's types do not have, in ISO 8601."""

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
"""DataFusion's names of units."""


class _Times(WholeNumbers, frozen=True):
    """Types of times, which Arrow keeps as integers."""

    def array(self, contents: list[Any]) -> pa.Array:
        """By way of integers."""
        return pa.array(contents, pa.int32() if self.width == 4 else pa.int64()).cast(self.kind)

    def of_scalar(self, scalar: pa.Scalar) -> Any:
        """As the column has it."""
        return scalar.value

    def number(self, literal: pa.Scalar) -> Any:
        """As the column has it."""
        return literal.value

    def ticks_of(self, value: Any, moment: Moment, name: str) -> int:
        """Return the number of a user's value. Raises BadKeyError for one that is finer than the column."""
        number = moment.in_units(PER_SECOND[self.kind.unit])
        if number is None:
            raise Code.KEY_NOT_REPRESENTABLE(
                f"key field {name}: {value!r} is finer than {name_of(self.kind)}", column=name
            )
        return number

    def since_epoch(self, content: int) -> dt.timedelta | None:
        """Return the time since 1970, or since midnight; None if it is finer than Python's."""
        microseconds, rest = divmod(content * 1_000_000, PER_SECOND[self.kind.unit])
        return None if rest else dt.timedelta(microseconds=microseconds)

    def number_of_text(self, text: str) -> int | None:
        """Return the column's integer of a date or timestamp that Python's types may lack; None for others."""
        if not is_expanded(text) and not _BEYOND_PYTHON.search(text):
            return None
        text, kind = text.strip(), self.kind
        try:
            found = times_of_texts(pa.array([text]), kind)
        except pa.ArrowInvalid:
            if not (pa.types.is_timestamp(kind) and kind.tz):
                raise
            found = times_of_texts(pa.array([text]), pa.timestamp(kind.unit))
        number: int = found.view(pa.int64() if self.width == 8 else pa.int32())[0].as_py()
        return number

    def to_finer_unit(self, wanted: pa.DataType) -> Callable[[int], int] | None:
        """Return a cast to the same or a finer unit; None for a coarser one."""
        times, rest = divmod(PER_SECOND[wanted.unit], PER_SECOND[self.kind.unit])
        return None if rest else lambda integer: integer * times


class Dates(_Times, frozen=True):
    """Dates, as days since 1970."""

    names: ClassVar[str] = "dates"
    values: ClassVar[tuple[type, ...]] = (dt.date,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of date32."""
        return cls.within(kind) if pa.types.is_date32(kind) else None

    def content_of(self, value: Any, name: str) -> int:
        """Accept a date, or the number of days."""
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return (value - _EPOCH_DAY).days
        return WholeNumbers.content_of(self, value, name)

    def value_of(self, content: Any) -> Any:
        """As :meth:`KeyType.value_of`."""
        try:
            return _EPOCH_DAY + dt.timedelta(days=content)
        except OverflowError:
            return content

    def value_of_text(self, text: str) -> Any:
        """Accept ISO 8601."""
        number = self.number_of_text(text)
        return dt.date.fromisoformat(text) if number is None else number

    def json(self, content: Any) -> Any:
        """In ISO 8601."""
        value = self.value_of(content)
        return iso_text(self.kind, value) if isinstance(value, int) else value.isoformat()

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """In ISO 8601."""
        return str(value.isoformat())

    def literal(self, value: pa.Scalar) -> str:
        """As a number: a calendar has no text for most of the dates that a column may hold."""
        return f"arrow_cast({value.cast(pa.date32()).value}, 'Date32')"

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To timestamps of a local clock."""
        if not pa.types.is_timestamp(wanted) or wanted.tz is not None:
            return same if wanted == self.kind else None
        ticks = _DAY_S * PER_SECOND[wanted.unit]
        return lambda integer: integer * ticks


class TimesOfDay(_Times, frozen=True):
    """Times of day, as parts of a second since midnight."""

    names: ClassVar[str] = "times"
    values: ClassVar[tuple[type, ...]] = (dt.time,)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of time32 and time64."""
        if not pa.types.is_time(kind):
            return None
        return cls.within(kind, 0, _DAY_S * PER_SECOND[kind.unit] - 1, per_unit=_per_unit(kind))

    def content_of(self, value: Any, name: str) -> int:
        """Accept a time without a zone, or the number of parts of a second."""
        if not isinstance(value, dt.time):
            return WholeNumbers.content_of(self, value, name)
        if value.tzinfo is not None:
            raise Code.KEY_TYPE_MISMATCH(
                f"key field {name} is {name_of(self.kind)} and needs a time without a time zone, not {value!r}",
                column=name,
            )
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return self.ticks_of(value, Moment(seconds * 1_000_000 + value.microsecond, 1_000_000, zoned=False), name)

    def value_of(self, content: Any) -> Any:
        """As :meth:`KeyType.value_of`."""
        since = self.since_epoch(content)
        return content if since is None else (_EPOCH + since).time()

    def value_of_text(self, text: str) -> Any:
        """Accept ISO 8601; a time that is finer than Python's is the column's integer."""
        whole, _, fraction = text.partition(".")
        if len(fraction) <= 6 or self.kind.unit != "ns":
            return dt.time.fromisoformat(text)
        since = dt.datetime.combine(_EPOCH_DAY, dt.time.fromisoformat(whole), dt.UTC) - _EPOCH
        if not fraction.isdecimal() or len(fraction) > 9:
            raise ValueError(text)
        return since.seconds * PER_SECOND["ns"] + int(fraction.ljust(9, "0"))

    def json(self, content: Any) -> Any:
        """In ISO 8601, or as the column's integer."""
        value = self.value_of(content)
        return value if isinstance(value, int) else value.isoformat()

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """In ISO 8601."""
        return str(value.isoformat())

    def literal(self, value: pa.Scalar) -> str:
        """By its text."""
        text = value.cast(pa.string()).as_py()
        return f"arrow_cast('{text}', 'Time{self.kind.bit_width}({_UNITS[self.kind.unit]})')"

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To times of day of a finer unit."""
        if wanted == self.kind:
            return same
        return self.to_finer_unit(wanted) if pa.types.is_time(wanted) else None


class Timestamps(_Times, frozen=True):
    """Timestamps: parts of a second since 1970, of UTC if the type has a zone, else of an unknown local clock."""

    names: ClassVar[str] = "timestamps"
    values: ClassVar[tuple[type, ...]] = (dt.datetime, np.datetime64)

    @classmethod
    def of(cls, kind: pa.DataType) -> Self | None:
        """Of timestamps of any unit and zone."""
        return cls.within(kind, per_unit=_per_unit(kind)) if pa.types.is_timestamp(kind) else None

    def content_of(self, value: Any, name: str) -> int:
        """Accept a datetime with a zone if the type has one, or the number of parts of a second."""
        if not isinstance(value, dt.datetime | np.datetime64):
            return WholeNumbers.content_of(self, value, name)
        moment = moment_of(value)
        if moment is None:
            raise self.wrong_type(value, name)
        if moment.zoned == (self.kind.tz is None):
            wanted = "a datetime with a time zone" if self.kind.tz else "a datetime without a time zone"
            raise Code.KEY_TYPE_MISMATCH(
                f"key field {name} is {name_of(self.kind)} and needs {wanted}, not {value!r}", column=name
            )
        return self.held(self.ticks_of(value, moment, name), value, name)

    def value_of(self, content: Any) -> Any:
        """As :meth:`KeyType.value_of`."""
        try:
            since = self.since_epoch(content)
            if since is None:
                return content
            return (_EPOCH if self.kind.tz else _EPOCH.replace(tzinfo=None)) + since
        except OverflowError:
            return content

    def value_of_text(self, text: str) -> Any:
        """Accept ISO 8601; a time without an offset is in UTC if the type has a zone."""
        number = self.number_of_text(text)
        if number is not None:
            return number
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if self.kind.tz and moment.tzinfo is None else moment

    def json(self, content: Any) -> Any:
        """In ISO 8601."""
        value = self.value_of(content)
        return iso_text(self.kind, value) if isinstance(value, int) else value.isoformat()

    @classmethod
    def word(cls, value: Any) -> Word | None:
        """In ISO 8601."""
        if isinstance(value, dt.datetime):
            return value.isoformat()
        # As a Python value it may be a number of any unit.
        whole, _, fraction = str(value).partition(".")
        return f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction else whole

    def literal(self, value: pa.Scalar) -> str:
        """As a number: a calendar has no text for most of the times that a column may hold."""
        zone = "None" if self.kind.tz is None else f'Some("{self.kind.tz}")'
        return f"arrow_cast({value.value}, 'Timestamp({_UNITS[self.kind.unit]}, {zone})')"

    def cast(self, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        """To timestamps of a finer unit, and to dates of UTC."""
        if wanted == self.kind:
            return same
        zone = self.kind.tz
        if pa.types.is_date32(wanted) and _is_utc(zone):
            ticks = _DAY_S * PER_SECOND[self.kind.unit]
            return lambda integer: integer // ticks
        if not pa.types.is_timestamp(wanted):
            return None
        # Time zones only affect the display, but a local time has none.
        if (zone is None) != (wanted.tz is None) and not (_is_utc(zone) and _is_utc(wanted.tz)):
            return None
        return self.to_finer_unit(wanted)


def _per_unit(kind: pa.DataType) -> int:
    return _MS_PER_S if kind.unit == "s" else 1


def _is_utc(zone: str | None) -> bool:
    return zone in (None, "UTC", "+00:00")
