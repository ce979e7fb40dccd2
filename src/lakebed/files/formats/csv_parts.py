"""Reads CSV in parts by several tasks, and as text if rows are accepted or rejected one by one.

A part is the lines of a file that begin between two positions, so no value may have a line break. The first megabytes
are checked before a file is divided (:func:`may_be_divided`), and each part before it is read: a part that begins or
ends within quotes has an odd number of them, and is refused. So no part is read wrongly, unless the file also has
unpaired quotes.

Errors: SchemaMismatchError names the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.formats.csv_parser import LINES_APART
from lakebed.files.formats.csv_records import CsvReading


def may_be_divided(plan: CsvReading, sample: bytes) -> bool:
    """Return whether the file, which begins with ``sample``, can be read in parts, as far as the sample shows."""
    quote = plan.dialect.quote.encode()
    return plan.dialect.encoding.lower() in LINES_APART and not any(
        line.count(quote) % 2 for line in sample.split(b"\n")[:-1]
    )


def in_part(plan: CsvReading, part: tuple[int, int]) -> CsvReading:
    """Return the reading of a part of the file, whose columns were detected at the beginning of the file."""
    dialect = replace(plan.dialect, header=plan.dialect.header and part[0] == 0)
    return replace(plan, file=replace(plan.file, part=part), dialect=dialect)


def as_text(plan: CsvReading, fields: Iterable[str]) -> CsvReading:
    """Return the reading of these columns as text, so that an invalid value does not prevent reading its row."""
    return replace(plan, given={**plan.given, **{name: pa.string() for name in fields if name in plan.dialect.names}})


def check_quotes(plan: CsvReading) -> None:
    """Raise SchemaMismatchError if the part begins or ends within quotes. Reads the part."""
    if plan.file.part is not None and plan.file.count(plan.dialect.quote.encode()) % 2:
        raise Code.SOURCE_UNPARSABLE(
            f"{plan.file}: a value has a line break, or quotes are not in pairs; such a file cannot be read in parts. "
            "Divide it into smaller files, compress it, or add it by lakebed write: then it is read as a whole",
            source=str(plan.file),
        )
