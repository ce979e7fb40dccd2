"""Infers the columns of files without a table: names, types and some values.

The first megabytes of text are read; other files have types. :func:`inferred_together` has the columns that
several files need.

Core type: :class:`Inferred`. Errors name the file: those of :func:`lakebed.write.input_files.open_files`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.formats.file_format import FileFormat, check_options, format_of, not_blank
from lakebed.files.formats.input_file import InputFile, reading
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.model import types, validity
from lakebed.model.type_names import name_of
from lakebed.write.input_files import TextFields, buffered, open_typed

if TYPE_CHECKING:
    from lakebed.files.formats.csv_file import CsvReading

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

    Raises as :func:`inferred`; SchemaMismatchError for types of one column that no type holds.
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


def inferred(file: InputFile, options: ReadingOptions = DETECTED) -> Inferred:
    """Return the columns of a file, detected from its first megabytes if it is text.

    Raises as :func:`lakebed.write.input_files.open_files`; SchemaMismatchError for a text file without rows, whose
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
            f"in --type {unknown[0]}=int64"
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
