"""Reads files of Parquet, Arrow IPC, ORC, CSV and JSON lines in this process, batch by batch, as rows of a table.

Files are named by paths and URLs, alone or in lists; a folder or a glob stands for the files below it whose names end
as those of a format. Text is read as the table's types, and other columns as detected ones
(:mod:`lakebed.files.formats.csv_file`).

Core type: :class:`TextFields`.

Errors name the file: NotFoundError, StorageError (unreadable), DamagedError, SchemaMismatchError, BadKeyError.

*Infers the columns of files without a table: names, types and some values.*

The first megabytes of text are read; other files have types. :func:`inferred_together` has the columns that
several files need.

Core type: :class:`Inferred`. Errors name the file: those of :func:`open_files`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.formats.file_format import SUFFIXES, FileFormat, check_options, format_of, not_blank
from lakebed.files.formats.input_file import InputFile, input_file, is_remote, reading
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.model import types, validity
from lakebed.model.ipc import measured_batches
from lakebed.model.type_names import name_of
from lakebed.write.source_rows import RowInput, SourceRows
from lakebed.write.sources import has_glob

if TYPE_CHECKING:
    from lakebed.files.formats.csv_records import CsvReading
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage

FILES_MAX = 100
"""Files of a write that makes its table are looked at up to this number."""

_INFERRED_ROWS = 16_384
_INFERRED_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Inferred:
    """The columns of a file: its format, the types, some values of each column as text, and how many rows were looked
    at; ``csv`` has how CSV is read. ``files``: how many files the columns are of.
    """

    file: InputFile
    format: FileFormat
    columns: pa.Schema
    examples: dict[str, tuple[str, ...]]
    rows: int
    whole: bool
    csv: CsvReading | None = None
    files: int = 1


def inferred_together(files: Sequence[InputFile], options: ReadingOptions = DETECTED) -> Inferred:
    """Return the columns of a table that takes the rows of all files, from the first :data:`FILES_MAX`: each has the
    widest of its types. Files of text without rows are left out, unless none has any. The rest is that of the first
    file.

    Raises as :func:`infer`; SchemaMismatchError for types of one column that no type holds.
    """
    looked_at = files[:FILES_MAX]
    check_options(((str(file), format_of(file, options)) for file in looked_at), options)
    found = [] if len(looked_at) == 1 else [_looked_at(file, options) for file in not_blank(looked_at, options)]
    found = [one for one in found if one.rows or not one.format.is_text]
    first, *others = found or [_checked_rows(_looked_at(files[0], options), options)]
    kinds = {column.name: (column.type, first.file) for column in first.columns}
    examples = dict(first.examples)
    for one in others:
        examples = one.examples | examples
        for column in one.columns:
            kinds[column.name] = _widest(column, one.file, *kinds.get(column.name, (column.type, one.file)))
    columns = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
    return _settled(replace(first, columns=columns, examples=examples, files=len(found) or 1))


def _widest(column: pa.Field, file: InputFile, before: pa.DataType, first: InputFile) -> tuple[pa.DataType, InputFile]:
    """Return the type that holds the values of both files, and the file that it is from."""
    pair = [pa.schema([(column.name, types.canonical(kind))]) for kind in (before, column.type)]
    try:
        wide = pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError as error:
        raise Code.COLUMN_TYPE_MISMATCH(
            f"{file}: column {column.name} is {name_of(column.type)}, and in {first} it is {name_of(before)}; give one "
            f"type for both: --type {column.name}=string --cast {column.name}",
            column=column.name,
            source=str(file),
            found=str(column.type),
            expected=str(before),
        ) from error
    return wide, first if wide == before else file


def infer(file: InputFile, options: ReadingOptions = DETECTED) -> Inferred:
    """Return the columns of a file, detected from its first megabytes if it is text.

    Raises as :func:`open_files`; SchemaMismatchError for a text file without rows, whose
    types are unknown.
    """
    check_options([(str(file), format_of(file, options))], options)
    return _settled(_checked_rows(_looked_at(file, options), options))


def _checked_rows(found: Inferred, options: ReadingOptions) -> Inferred:
    """Return the same. Raises SchemaMismatchError for text without rows, unless the types of its columns are given."""
    if found.rows or not found.format.is_text:
        return found
    text = f"{found.file}: the file has no rows, so its columns are unknown"
    if found.format is FileFormat.CSV:
        unknown = [name for name in found.columns.names if name not in options.types]
        if not unknown:
            return found
        text = (
            f"{found.file}: the file has a header and no rows, so the types of its columns are unknown; give them, as "
            f"in --type {unknown[0]}=string"
        )
    raise Code.SOURCE_UNPARSABLE(text, source=str(found.file))


def _settled(found: Inferred) -> Inferred:
    """Return the same with text for columns of text files that are always null."""
    if not found.format.is_text:
        return found
    columns = [one.with_type(pa.string()) if pa.types.is_null(one.type) else one for one in found.columns]
    return replace(found, columns=pa.schema(columns))


def _looked_at(file: InputFile, options: ReadingOptions) -> Inferred:
    kind = format_of(file, options)
    if kind is FileFormat.CSV:
        from lakebed.files.formats.csv_file import detect

        plan = detect(file, options, {})
        examples = {name: one.examples for name, one in plan.columns.items()}
        known = {name for name, values in examples.items() if values} | options.types.keys()
        kinds = ((name, plan.type_of(name) if name in known else pa.null()) for name in plan.dialect.names)
        columns = pa.schema(list(kinds))
        return Inferred(file, kind, columns, examples, plan.rows, plan.whole, plan)
    if kind is FileFormat.JSON:
        return _inferred_json(file, options)
    with reading(file), open_typed(file, kind) as (found, batches):
        first = next(batches, None)
        rows = 0 if first is None else min(3, first.num_rows)
        examples = {
            name: tuple(validity.shown(first.column(name), row) for row in range(rows)) if first else ()
            for name in found.names
        }
        columns = _with_types(found.remove_metadata(), options, str(file))
        return Inferred(file, kind, columns, examples, rows, whole=True)


def _with_types(columns: pa.Schema, options: ReadingOptions, name: str) -> pa.Schema:
    """Return the columns with the types that are given. Raises UsageError for a type of no column."""
    if unknown := sorted(set(options.types) - set(columns.names)):
        raise Code.COLUMN_UNKNOWN(
            f"{name}: no column {', '.join(unknown)}, for which a type is given; it has {', '.join(columns.names)}",
            fields=unknown,
        )
    return pa.schema([one.with_type(options.types.get(one.name, one.type)) for one in columns])


def _inferred_json(file: InputFile, options: ReadingOptions) -> Inferred:
    from lakebed.files.formats.json_lines import read_json_lines
    from lakebed.files.formats.text_types import type_of_texts

    with reading(file):
        sample, whole = file.sample(_INFERRED_BYTES)
    # The lines of an array are parts of its rows.
    is_array = sample.lstrip()[:1] == b"["
    if not whole and not is_array:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    texts = TextFields({}).texts(options)
    found = read_json_lines(buffered(io.BytesIO(sample)), options.types, str(file), whole=whole, texts=texts)
    parts: list[pa.Table] = []
    for batch in found:
        parts.append(pa.Table.from_batches([batch]))
        if sum(part.num_rows for part in parts) >= _INFERRED_ROWS:
            whole = whole and next(found, None) is None
            break
    if not parts:
        return Inferred(file, FileFormat.JSON, pa.schema([]), {}, 0, whole)
    with reading(file, text=True):
        table = pa.concat_tables(parts, promote_options="permissive")
    fields, examples = [], {}
    for name in table.schema.names:
        column = table.column(name).combine_chunks()
        kind = column.type
        if pa.types.is_string(kind):
            # No text of JSON stands for null.
            found_kind = type_of_texts(column.unique().drop_null())
            kind = found_kind if found_kind is not None and pa.types.is_temporal(found_kind) else pa.string()
        fields.append(pa.field(name, kind))
        examples[name] = tuple(str(value) for value in column.slice(0, 3).to_pylist())
    return Inferred(
        file, FileFormat.JSON, _with_types(pa.schema(fields), options, str(file)), examples, table.num_rows, whole
    )


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
            with _mapped(file) as source, measured_batches(source, str(file), file=True) as (found, batches):
                yield found, map(_laid_out, batches)
        case _:
            with _mapped(file) as source, measured_batches(source, str(file), file=False) as (found, batches):
                yield found, map(_laid_out, batches)


def _laid_out(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch. Raises ArrowInvalid for offsets outside of its buffers: PyArrow reads such files, and then a
    look at a value can end the process.
    """
    for column in batch.columns:
        validity.check_layout(column)
    return batch


def _mapped(file: InputFile) -> Any:
    return pa.memory_map(file.path) if file.files is None else file.open_bytes()
