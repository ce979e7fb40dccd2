"""The source of a bulk import: how it is read, and how tasks stage it.

Core types: :class:`SourceReading`, :class:`SourceToStage`. Errors: UsageError for what excludes each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.formats.reading_options import DETECTED, ReadingOptions
from lakebed.ingest.conformer import Conformer
from lakebed.model.checks import are_names, are_texts, check_flag, check_text, shown
from lakebed.spark.scattered import values_in

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.ingest.input_files import TextFields
    from lakebed.ingest.source_rows import SourceRows
    from lakebed.model.schema import Schema
    from lakebed.spark.shuffle import Shuffle
    from lakebed.spark.staging import Rows


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How :meth:`Pipeline.bulk_import` reads a source: columns, casts, query, quarantine, and options for text that
    override detection.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    casts: Sequence[str] = ()
    select: str | None = None
    quarantine: str | Path | None = None
    options: ReadingOptions = DETECTED
    ignore_extra: bool = False

    def __post_init__(self) -> None:
        if not are_texts(self.casts):
            raise Code.ARGUMENT_INVALID(f"casts is a list of names, not {shown(self.casts)}")
        if not are_names(self.columns):
            raise Code.ARGUMENT_INVALID(f"columns = {shown(self.columns)}: must be names by field")
        if not isinstance(self.options, ReadingOptions):
            raise Code.ARGUMENT_INVALID(f"reading = {shown(self.options)}: must be lakebed.ReadingOptions")
        check_flag("ignore_extra", self.ignore_extra)
        if self.select is not None:
            check_text("select", self.select)
        times = self.options.timezone or self.options.date_format
        if self.quarantine is not None and times:
            raise Code.ARGUMENTS_CONFLICT(
                "with a quarantine, values are read one by one, and times only in ISO 8601: leave out the quarantine, "
                f"or {times!r}"
            )
        if self.quarantine is not None and self.options.decimal_point != ".":
            raise Code.ARGUMENTS_CONFLICT(
                "with a quarantine, values are read one by one, and numbers only with a decimal point: leave out the "
                "quarantine, or the decimal comma"
            )

    def conformer(self, schema: Schema, *, untyped: bool) -> Conformer:
        """Return how rows become those of a table. In formats without types all fields are cast, and only fields that
        were named are from text in any form.
        """
        if not untyped:
            return Conformer(schema, dict(self.columns), frozenset(self.casts))
        usual = frozenset(schema.names).difference(self.casts)
        return Conformer(schema, dict(self.columns), frozenset([*self.casts, *schema.names]), usual=usual)

    def text_fields(self, schema: Schema) -> TextFields:
        """Return how columns of text are read."""
        from lakebed.ingest.input_files import TextFields

        as_text = self.quarantine is not None
        return TextFields.of(schema, self.columns, self.casts, only_fields=self.ignore_extra, as_text=as_text)

    def check_spark(self) -> None:
        """Raise UsageError for options that apply only to files that Lakebed reads."""
        if replace(self.options, format=None) != DETECTED or self.ignore_extra:
            raise Code.ARGUMENTS_CONFLICT(
                "options for the form of files, and ignore_extra, are for files that Lakebed reads by itself: not for "
                "a DataFrame, a query, a select, avro, delta or iceberg. Leave them out, and choose columns in a query"
            )


@dataclass(frozen=True, slots=True)
class SourceToStage:
    """The frame whose tasks stage a source, how a task gets the rows, and how they become those of the table."""

    frame: Any
    rows: Rows
    shuffle: Shuffle
    conformer: Conformer
    name: str
    files: int = 0


def is_frame(given: Any) -> bool:
    """Return whether the source is a DataFrame of Spark."""
    from pyspark.sql import DataFrame

    return isinstance(given, DataFrame)


def part_rows(
    batches: Iterator[pa.RecordBatch], shuffle: Shuffle, text: TextFields, options: ReadingOptions
) -> Iterator[SourceRows]:
    """Return the rows of a staging task, whose Spark partition is a part of a file of any format that is read here."""
    home = shuffle.place.connect()
    for _, part in values_in(batches):
        yield from part.open(home, text, options).rows
