"""Bulk imports as values: how the source is read, and what was imported. What runs them is an executor's.

Core types: :class:`SourceReading`, :class:`ImportReport`. Errors: UsageError for arguments that exclude each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.model.checks import are_names, are_texts, check_flag, check_text, shown
from lakebed.model.reports import AddedFiles
from lakebed.model.wording import count_text
from lakebed.write.conformer import Conformer

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.write.input_files import TextFields


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
        from lakebed.write.input_files import TextFields

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
class ImportReport(AddedFiles):
    """The result of an import. ``repeated``: the job id was committed before, at ``version``; nothing was added.

    ``version`` is None if there were no rows (and no job id to remember). ``partitions_split`` partitions were cut
    before the import. ``rejected`` rows are in the folder ``quarantine``. ``rows`` were imported, as ``rows_written``:
    fewer, if rows with equal keys were merged.
    """

    table: str
    job: str
    rows: int
    rows_written: int
    files: int
    size_bytes: int
    source_files: int
    map_tasks: int
    reduce_tasks: int
    version: int | None
    repeated: bool = False
    partitions_split: int = 0
    rejected: int = 0
    quarantine: str | None = None

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        split = f"; {count_text(self.partitions_split, 'partition')} split before" if self.partitions_split else ""
        rejected = f"; {count_text(self.rejected, 'row')} rejected, in {self.quarantine}" if self.rejected else ""
        return f"{self.added('import', self.rows_written)}{split}{rejected}"
