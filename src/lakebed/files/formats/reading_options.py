"""The properties of a text file that a user gives instead of having them detected. Pure.

Core types: :class:`ReadingOptions`. Errors: UsageError for an invalid value.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from lakebed.errors import Code

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("csv", "json", "parquet", "arrow", "orc")
"""Names of formats: CSV with any delimiter; JSON, one object per line or one array."""

SPARK_FORMATS = ("avro", "delta", "iceberg", "query")
"""Formats that only Spark reads."""


_YEAR = re.compile("%[EO_0^#-]?[0-9]*[YycDFxs]")
"""A directive of ``strptime`` for a year, alone or in a whole date."""

_UNREAD = re.compile("%[EO_0^#-]?[0-9]*[jUVWGg]")
"""A directive that Arrow's ``strptime`` accepts without reading a date from it: the day of a year, and weeks."""

DECIMAL_POINTS = (".", ",")


@dataclass(frozen=True)
class ReadingOptions:
    """None and empty values are detected. ``types`` are those of columns by name; ``nulls`` are the words that mean
    null, besides an empty cell; ``timezone`` is that of times without one; ``date_format`` is a pattern of
    ``strptime``; ``decimal_point`` is that of numbers, a point or a comma.
    """

    format: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] = ()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    nulls: tuple[str, ...] = ()
    timezone: str | None = None
    date_format: str | None = None
    encoding: str | None = None
    decimal_point: str = "."

    def __post_init__(self) -> None:
        for name, text in (("delimiter", self.delimiter), ("quote", self.quote)):
            if text is not None and (len(text) != 1 or not text.isascii() or text in "\r\n\0"):
                raise Code.ARGUMENT_INVALID(f"{name} {text!r}: must be one ASCII character, such as ';' or a tab")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise Code.ARGUMENT_INVALID(f"delimiter and quote are both {self.quote!r}")
        if self.decimal_point not in DECIMAL_POINTS:
            raise Code.ARGUMENT_INVALID(f"decimal point {self.decimal_point!r}: must be a point or a comma")
        if self.delimiter == self.decimal_point:
            raise Code.ARGUMENTS_CONFLICT(
                f"delimiter and decimal point are both {self.delimiter!r}; give the delimiter of the file, such as ';'"
            )
        if self.format not in (None, *FORMATS):
            raise Code.FORMAT_UNKNOWN(f"unknown format {self.format!r}; formats: {', '.join(FORMATS)}")
        if self.header and self.columns:
            raise Code.ARGUMENTS_CONFLICT("names of columns are given for files without a header")
        if self.date_format is not None:
            _check_date_format(self.date_format)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise Code.ARGUMENT_INVALID(f"unknown encoding {self.encoding!r}, such as latin-1") from error
        if self.timezone is not None:
            try:
                ZoneInfo(self.timezone)
            except (KeyError, ValueError, OSError) as error:
                raise Code.ARGUMENT_INVALID(
                    f"unknown time zone {self.timezone!r}; give a name such as Europe/Berlin or UTC"
                ) from error

    @property
    def for_csv(self) -> list[str]:
        """Return the names of the given options that only CSV has."""
        given = {
            "delimiter": self.delimiter,
            "quote": self.quote,
            "header": self.header,
            "names": self.columns or None,
            "null": self.nulls or None,
            "timezone": self.timezone,
            "date_format": self.date_format,
            "encoding": self.encoding,
            "decimal_point": None if self.decimal_point == "." else self.decimal_point,
        }
        return [name for name, value in given.items() if value is not None]


def _check_date_format(pattern: str) -> None:
    """Raise UsageError for a pattern that has no year: ``strptime`` would then make every value one of 1900. Also for
    one with directives that it does not read.
    """
    if found := _UNREAD.search(pattern.replace("%%", "")):
        raise Code.ARGUMENT_INVALID(
            f"date format {pattern!r}: days of a year and weeks ({found[0]}) cannot be read; give a format of days and "
            "months, such as %Y-%m-%d, or read the column as text (--type COLUMN=string)"
        )
    if _YEAR.search(pattern.replace("%%", "")) is None:
        lack = "year" if "%" in pattern.replace("%%", "") else "directive"
        raise Code.ARGUMENT_INVALID(
            f"date format {pattern!r} has no {lack}; give a format of whole dates, such as %d.%m.%Y or "
            "%Y-%m-%d %H:%M:%S"
        )


DETECTED = ReadingOptions()
