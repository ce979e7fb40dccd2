"""Divides files of any format that is read here among tasks: files as a whole, and large files of text in parts.

The driver finds the files, and makes a :class:`SourcePart` for each task. The task opens its part as a write in one
process opens its files (:mod:`lakebed.write.input_files`): both detect, convert and refuse alike. The form of text is
detected at the beginning of its file, for every part of it.

Core types: :class:`SourcePart`.

Rules. A part is read only if its file is the one that was found. A file that is compressed, one array of JSON, not of
an encoding whose lines can be found by their bytes, or that has line breaks within quotes, is read as a whole.

Errors: those of :mod:`lakebed.write.sources` and :mod:`lakebed.write.input_files`; they name the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.files.formats.file_format import FileFormat, check_options, format_of, is_blank
from lakebed.files.formats.input_file import BLANK_BYTES, InputFile, input_file, reading
from lakebed.model.checks import near_names
from lakebed.write.input_files import TextFields, opened
from lakebed.write.sources import CHECK_THREADS, SUFFIXES, check_unchanged

if TYPE_CHECKING:
    from lakebed.files.formats.reading_options import ReadingOptions
    from lakebed.model.state.table_state import Source
    from lakebed.storage.contract import Storage
    from lakebed.write.source_rows import RowInput, SourceRows

_SAMPLE_BYTES = 4 * 1024 * 1024
PART_BYTES_MIN = 16 * 1024 * 1024
"""Each part costs a look at the beginning of its file, a task and a staged file."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The input of one task: a file, or its lines that begin between two positions."""

    source: Source
    is_text: bool
    part: tuple[int, int] | None = None

    def input(self, home: Storage) -> InputFile:
        """Return the part, to be opened in this process. Raises StorageError if the file has changed."""
        check_unchanged(self.source, home)
        return replace(input_file(self.source.url, home), part=self.part)

    def open(self, home: Storage, text: TextFields, options: ReadingOptions) -> RowInput:
        """Return the rows. Raises as :func:`lakebed.write.input_files.open_files`."""
        found = opened([self.input(home)], text, options)
        columns = tuple((name, _columns_read(columns, text)) for name, columns in found.columns)
        return replace(found, columns=columns, rows=self._kept_rows(found.rows, text, home))

    def _kept_rows(self, rows: Iterator[SourceRows], text: TextFields, home: Storage) -> Iterator[SourceRows]:
        for one in rows:
            yield replace(one, batch=one.batch.select(_columns_read(one.batch.schema, text).names))
        check_unchanged(self.source, home)


def _columns_read(columns: pa.Schema, text: TextFields) -> pa.Schema:
    """Return the columns that are read: all, or those of fields, and of names in another case, which are refused."""
    kept = {*text.fields, *near_names(columns.names, text.fields)}
    return pa.schema([one for one in columns if one.name in kept]) if text.only_fields else columns


def are_parquet(files: Sequence[Source], home: Storage, options: ReadingOptions) -> bool:
    """Return whether all are Parquet files: by their names, or else by their first bytes."""
    if options.format is not None:
        return options.format == "parquet"
    unnamed = [file for file in files if not file.url.lower().endswith(SUFFIXES)]
    return all(kind is FileFormat.PARQUET for kind in _formats(unnamed, home, options))


def _formats(files: Sequence[Source], home: Storage, options: ReadingOptions) -> list[FileFormat]:
    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        return list(pool.map(lambda file: format_of(input_file(file.url, home), options), files))


def divided(
    files: Sequence[Source],
    home: Storage,
    options: ReadingOptions,
    *,
    part_bytes: int,
    sample_bytes: int = _SAMPLE_BYTES,
) -> list[SourcePart]:
    """Return the parts for the tasks, in the order of the files; parts have about ``part_bytes``.

    Whether a file may be divided is decided by its first ``sample_bytes``.
    """
    parts: list[SourcePart] = []
    kinds = _formats(files, home, options)
    check_options(zip((file.url for file in files), kinds, strict=True), options)
    for file, kind in _not_blank(list(zip(files, kinds, strict=True)), home):
        count = -(-file.size_bytes // part_bytes)
        if count < 2 or not _may_be_divided(input_file(file.url, home), kind, options, sample_bytes):
            parts.append(SourcePart(file, kind.is_text))
            continue
        ends = [file.size_bytes * number // count for number in range(count + 1)]
        parts += [SourcePart(file, is_text=True, part=part) for part in pairwise(ends)]
    return parts


def _not_blank(files: Sequence[tuple[Source, FileFormat]], home: Storage) -> Sequence[tuple[Source, FileFormat]]:
    """As :func:`lakebed.files.formats.file_format.not_blank`, with several threads."""
    small = [one for one, kind in files if kind.is_text and one.size_bytes <= BLANK_BYTES] if len(files) > 1 else []
    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        found = pool.map(lambda file: is_blank(input_file(file.url, home)), small)
        blank = {file.url for file, no_text in zip(small, found, strict=True) if no_text}
    return [one for one in files if one[0].url not in blank] or files[:1]


def part_columns(
    parts: Sequence[SourcePart], home: Storage, text: TextFields, options: ReadingOptions
) -> list[tuple[str, pa.Schema]]:
    """Return the name and the columns of each file. Raises as :meth:`SourcePart.open`."""
    whole = [replace(part, part=None) for part in parts if part.part is None or part.part[0] == 0]
    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        found = pool.map(lambda part: part.open(home, text, options).columns, whole)
        return [columns for one in found for columns in one]


def _may_be_divided(file: InputFile, kind: FileFormat, options: ReadingOptions, sample_bytes: int) -> bool:
    with reading(file):
        if not kind.is_text or file.compression() is not None:
            return False
        sample, _ = file.sample(sample_bytes)
    if kind is FileFormat.JSON:
        return sample.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    from lakebed.files.formats.csv_file import detect
    from lakebed.files.formats.csv_parts import may_be_divided

    return may_be_divided(detect(file, options, {}), sample)
