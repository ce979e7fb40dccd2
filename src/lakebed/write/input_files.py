"""Reads files of Parquet, Arrow IPC, ORC, CSV and JSON lines in this process, batch by batch, as rows of a table.

Files are named by paths and URLs, alone or in lists; a folder or a glob stands for the files below it whose names end
as those of a format. Text is read as the table's types, and other columns as detected ones
(:mod:`lakebed.files.formats.csv_file`).

Core type: :class:`TextFields`.

Errors name the file: NotFoundError, StorageError (unreadable), DamagedError, SchemaMismatchError, BadKeyError.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.files.formats.file_format import SUFFIXES, FileFormat, check_options, format_of, not_blank
from lakebed.files.formats.input_file import InputFile, input_file, is_remote, reading
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.model.ipc import measured_batches
from lakebed.write.file_pattern import has_glob
from lakebed.write.source_rows import RowInput, SourceRows

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage


# -- files ----------------------------------------------------------------------------------------------------------


def find_inputs(items: Any, home: Storage | None = None) -> list[InputFile]:
    """Return the files of a path or URL, or of a list of them; those of a folder or a glob in order of name.

    Raises NotFoundError if a folder or glob has none, UsageError for an invalid URL or a file that is named twice.
    """
    from lakebed.write.sources import find_files, named_twice

    found: list[InputFile] = []
    for item in [items] if isinstance(items, str | Path | InputFile) else items:
        if isinstance(item, InputFile):
            found.append(item)
        elif _is_several(str(item), home):
            found += [input_file(one.url, home) for one in find_files(str(item), home, suffixes=SUFFIXES)]
        else:
            found.append(input_file(str(item), home))
    known: dict[str, InputFile] = {}
    for file in found:
        if (before := known.setdefault(file.identity, file)) is not file:
            raise named_twice(before.name, file.name)
    return found


def _is_several(item: str, home: Storage | None) -> bool:
    if not is_remote(item):
        local = Path(input_file(item).path)
        with reading(item):
            return local.is_dir() or (has_glob(item) and not local.exists())
    if item.endswith("/") or has_glob(item):
        return True
    files, path = input_file(item, home).files, input_file(item, home).path
    there = None if files is None else files.look(path)
    return there is not None and there.is_folder


def rows_known(files: Sequence[InputFile], options: ReadingOptions = DETECTED) -> int | None:
    """Return the rows of all files, for a progress bar; None unless all are Parquet, whose footers say so."""
    import pyarrow.parquet as pq

    total = 0
    for one in files:
        if format_of(one, options) is not FileFormat.PARQUET:
            return None
        with reading(one), one.open_bytes() as file:
            total += pq.read_metadata(file).num_rows
    return total


# -- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OpenInput:
    """A file whose columns are known: what reads its batches, and the line of a row if it is text."""

    file: InputFile
    columns: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    line_of: Callable[[int], int] | None = None


@dataclass(frozen=True, slots=True)
class TextFields:
    """How columns of text are read: as the types in ``fields``, by the name of the column, and others as detected ones,
    or not at all if there are ``only_fields``. ``as_text``: values of plain types stay text, for the conformer to cast
    one by one, so that the rows that do not fit are found. Text in the columns ``casts`` may have any
    form of their type, and so may values of JSON, which the conformer casts.
    """

    fields: Mapping[str, pa.DataType]
    only_fields: bool = False
    as_text: bool = False
    casts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: Schema, columns: Mapping[str, str], casts: Collection[str] = (), **how: bool) -> TextFields:
        """Return those of a table; ``columns`` has the column of a field where it is not its own name; ``casts`` are
        the fields that may be cast.
        """
        names = {f.name: columns.get(f.name, f.name) for f in schema.fields}
        cast = frozenset(names[f.name] for f in schema.fields if f.name in casts)
        return cls({names[f.name]: f.stored_type for f in schema.fields}, casts=cast, **how)

    def texts(self, options: ReadingOptions) -> list[str]:
        """Return the columns in which any value of JSON is text; in CSV, those that stay text."""
        if self.as_text:
            return [name for name, kind in self.fields.items() if _is_cast(kind)]
        given = (name for name, kind in options.types.items() if pa.types.is_string(kind))
        return [*(name for name in self.casts if _is_cast(self.fields[name])), *given]


def _is_cast(kind: pa.DataType) -> bool:
    """Return whether the conformer makes values of the type from text as the readers of text do."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind))


def open_files(  # noqa: PLR0913 - files, the table, and how they are read
    items: Any,
    schema: Schema,
    home: Storage | None = None,
    options: ReadingOptions = DETECTED,
    *,
    columns: Mapping[str, str] | None = None,
    casts: Collection[str] = (),
    only_fields: bool = False,
) -> RowInput:
    """Return the rows of all files of a path or URL, or of a list of them, in order. Text is read as the types of the
    schema; its other columns are left out if there are ``only_fields``. ``columns`` has the column of a field where it
    is not its own name. Fields of text that are in ``casts`` take any value of JSON. Files of text without a byte
    beside others have no rows.

    Errors name the file: NotFoundError, StorageError, DamagedError or SchemaMismatchError, also while rows are read.
    """
    text = TextFields.of(schema, columns or {}, casts, only_fields=only_fields)
    files = find_inputs(items, home)
    check_options(((str(file), format_of(file, options)) for file in files), options)
    return opened(not_blank(files, options), text, options)


def opened(files: Sequence[InputFile], text: TextFields, options: ReadingOptions) -> RowInput:
    """Return the rows of files, or parts of files, in order; as :func:`open_files`."""
    found = [_open_input(file, text, options) for file in files]
    untyped = any(one.line_of is not None for one in found)
    return RowInput(tuple((str(one.file), one.columns) for one in found), _rows_of_inputs(found), untyped=untyped)


def _rows_of_inputs(opened: Sequence[_OpenInput]) -> Iterator[SourceRows]:
    for one in opened:
        before = 0
        for batch in one.batches():
            yield SourceRows(batch, str(one.file), before, one.line_of)
            before += batch.num_rows


def _open_input(file: InputFile, text: TextFields, options: ReadingOptions) -> _OpenInput:
    kind = format_of(file, options)
    if kind is FileFormat.CSV:
        from lakebed.files.formats import csv_parts
        from lakebed.files.formats.csv_file import batches, detect
        from lakebed.files.formats.csv_records import line_of

        how = {"only_fields": text.only_fields, "strict": not text.as_text}
        plan = detect(file, options, text.fields, casts=text.casts, **how)
        plan = csv_parts.as_text(plan, text.texts(options)) if text.as_text else plan
        if file.part is not None:
            plan = csv_parts.in_part(plan, file.part)
            with reading(file):
                csv_parts.check_quotes(plan)
                if plan.file.is_empty():
                    return _OpenInput(file, plan.schema, lambda: iter(()), partial(line_of, plan))
        return _OpenInput(file, plan.schema, partial(batches, plan), partial(line_of, plan))
    if kind is FileFormat.JSON:
        rows = partial(_json_rows, file, text.fields, text.texts(options))
        first = next(rows(), None)
        columns = pa.schema(list(text.fields.items())) if first is None else first.schema
        return _OpenInput(file, columns, rows, cache(partial(_json_line, file)))
    with reading(file), open_typed(file, kind) as (found, _):
        return _OpenInput(file, found, partial(_typed_rows, file, kind))


def _json_rows(file: InputFile, fields: Mapping[str, pa.DataType], texts: Collection[str]) -> Iterator[pa.RecordBatch]:
    from lakebed.files.formats.json_lines import read_json_lines

    with reading(file), file.open() as lines:
        before = file.lines_before
        yield from read_json_lines(buffered(lines), fields, str(file), lines_before=before, texts=texts)


def _json_line(file: InputFile, row: int) -> int:
    from lakebed.files.formats.json_lines import line_of

    with reading(file), file.open() as lines:
        return file.lines_before() + line_of(buffered(lines), row)


def buffered(file: Any) -> Any:
    """Return a file to read by lines and by pieces."""
    return io.BufferedReader(file, 1024 * 1024)


def _typed_rows(file: InputFile, kind: FileFormat) -> Iterator[pa.RecordBatch]:
    with reading(file), open_typed(file, kind) as (_, batches):
        yield from batches


@contextlib.contextmanager
def open_typed(file: InputFile, kind: FileFormat) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The columns and the batches of a file of Parquet, ORC or Arrow IPC."""
    match kind:
        case FileFormat.PARQUET:
            import pyarrow.parquet as pq

            from lakebed.files.parquet.row_groups import read_row_groups
            from lakebed.write.sources import plain

            with file.open_bytes() as source:
                yield pq.read_schema(source), map(plain, read_row_groups(source, str(file)))
        case FileFormat.ORC:
            from pyarrow import orc

            with file.open_bytes() as source:
                found = orc.ORCFile(source)
                stripes = (found.read_stripe(index) for index in range(found.nstripes))
                yield found.schema, stripes
        case FileFormat.IPC_FILE:
            with _mapped(file) as source, measured_batches(source, str(file), file=True) as found:
                yield found
        case _:
            with _mapped(file) as source, measured_batches(source, str(file), file=False) as found:
                yield found


def _mapped(file: InputFile) -> Any:
    return pa.memory_map(file.path) if file.files is None else file.open_bytes()
