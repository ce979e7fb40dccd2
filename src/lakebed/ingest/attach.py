"""Taking a sorted Parquet file as it is: what has to hold of it, looked at row by row, before it becomes a data file.

The bytes stay as they are, so everything that readers rest on is checked here: the columns are those of the
newest schema or of an earlier one, by field id, name and type; no null stands where none may; every value is one that
its type allows; every row's key is at or above the one before, in row key and then sort key. What the
file may lack only makes reads quicker: small pages, page indexes, bloom filters.

An export is such a file. Others lack field ids as a rule; those are imported, which sorts and writes them anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code
from lakebed.model import types, validity
from lakebed.model.keys import KEY_BYTES_MAX, KeyCodec
from lakebed.parquet.layout import SortedFile
from lakebed.parquet.ranks import RankNotes
from lakebed.parquet.row_groups import read_row_groups
from lakebed.parquet.sizes import decoded_rows, pages_bytes_max, size_of
from lakebed.settings import Settings
from lakebed.sorting.merge_inputs import stored_id
from lakebed.storage.blocks import digests_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.schema import Schema


def check_sorted(  # noqa: PLR0913 - the file, what it is held against, and two limits
    path: Path,
    schemas: Sequence[Schema],
    cuts: Sequence[bytes],
    name: str,
    *,
    value_bytes_max: int = Settings().value_bytes_max,
    memory_limit_bytes: int = Settings().memory_limit_bytes,
) -> SortedFile | None:
    """The local file as one of a run, read through once; None if it has no rows. ``name`` is what users call it.

    ``schemas`` are those that the table has had, the newest last. The file is of the last one that has its columns, so
    an export from before an alter is taken as a file from before it is.
    Its summary has the exact ranks of those ``cuts`` (ascending encoded keys) that fall inside it, and the digests of
    the file's blocks.

    Raises:
        SchemaMismatchError, BadKeyError: its columns are no schema's, a value is invalid, a null is where none may
            be, a key too long.
        UsageError: its rows are not sorted; says where.
        DamagedError: it cannot be read as Parquet.
    """
    import pyarrow.parquet as pq

    try:
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as parquet:
            schema = _schema_of(parquet.schema_arrow, schemas, name)
            nullable = {field.id: field.nullable for field in schemas[-1].fields}
            rows = parquet.metadata.num_rows
            if not rows:
                return None
            notes = RankNotes(schema.codec, cuts, rows_estimate=rows)
            codec = KeyCodec((*schema.row_key, *schema.sort_key))
            last: bytes | None = None
            # All columns, so that damage in any of them is found before the file is anybody's.
            for stored in read_row_groups(source, name, pages_bytes=pages_bytes_max(memory_limit_bytes)):
                if stored.num_rows:
                    _check_sizes(stored, value_bytes_max, name)
                    stored = decoded_rows(stored)  # noqa: PLW2901 - nothing else may look at the values behind it
                    _check_values(stored, notes.rows, name)
                    batch = _in_seconds(stored, schema, name)
                    _check_nulls(batch, [f.name for f in schema.fields if not nullable.get(f.id, True)], name)
                    last = _check_order(batch, codec, last, (notes.rows, name))
                    _check_lengths(batch, schema, name)
                    notes.add(pa.Table.from_batches([batch.select(list(schema.row_key_names))]))
        # The file may hold none, or those of a file that it was made of.
        summary = replace(notes.summary(), blocks=digests_of(path))
    except (pa.ArrowException, OSError) as error:
        raise Code.SOURCE_DAMAGED(
            f"{name} cannot be read as Parquet ({str(error)[:300]}); nothing was attached", name=name
        ) from error
    return SortedFile(path, notes.rows, notes.min_key, notes.max_key, summary, schema.version)


def _schema_of(found: pa.Schema, schemas: Sequence[Schema], name: str) -> Schema:
    given = [(stored_id(column), column.name, column.type) for column in found]
    for schema in reversed(schemas):
        if given == [(field.id, field.name, types.in_parquet(field.type)) for field in schema.fields]:
            return schema
    if all(field_id is None for field_id, _, _ in given):
        reason = "its columns have no field ids"
    else:
        wanted = [(field.id, field.name, field.type) for field in schemas[-1].fields]
        shown = [", ".join(f"{field_id} {name} {kind}" for field_id, name, kind in some) for some in (given, wanted)]
        reason = f"its columns are {shown[0]}, and not {shown[1]}, nor those of an earlier schema"
    raise Code.SOURCE_NOT_ATTACHABLE(
        f"{name} cannot be attached as it is: {reason}. Import it, which writes it anew", name=name
    )


def _in_seconds(stored: pa.RecordBatch, schema: Schema, name: str) -> pa.RecordBatch:
    """The rows as the table has them: what Parquet keeps in milliseconds, for it has no seconds, in seconds."""
    columns = []
    for column, field in zip(stored.columns, schema.fields, strict=True):
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise Code.VALUE_NOT_REPRESENTABLE(
                f"{name} cannot be attached as it is: column {field.name} is {column.type} and holds a value that "
                f"{field.type} cannot keep ({error})",
                column=field.name,
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _check_values(batch: pa.RecordBatch, before: int, name: str) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        bad = validity.invalid(column)
        if bad is not None:
            row = pc.index(bad, value=True).as_py()
            raise Code.VALUE_INVALID(
                f"{name}: column {field.name} is {field.type} and holds {validity.reason(column, row)}; row "
                f"{before + row}: {validity.shown(column, row)[:40]!r}. Mend the file, or import it with a quarantine",
                column=field.name,
                name=name,
                row=before + row,
            )


def _check_nulls(batch: pa.RecordBatch, without: Sequence[str], name: str) -> None:
    for column in without:
        if batch.column(column).null_count:
            raise Code.VALUE_NULL(f"{name} has a null in {column}, which may have none", column=column)


def _check_sizes(stored: pa.RecordBatch, value_bytes_max: int, name: str) -> None:
    # A batch of more has one row.
    size = size_of(stored)
    if size > value_bytes_max and stored.num_rows == 1:
        raise Code.ROW_TOO_LARGE(
            f"{name} has a row of {size} bytes, and at most {value_bytes_max} are allowed: split its values, or raise "
            "the table's setting value_bytes_max",
            name=name,
        )


def _check_lengths(batch: pa.RecordBatch, schema: Schema, name: str) -> None:
    if all(field.width for field in schema.row_key):
        return
    longest = pc.max(pc.binary_length(schema.codec.encode_columns(batch))).as_py()
    if longest > KEY_BYTES_MAX:
        raise Code.KEY_TOO_LONG(
            f"{name} has a key of {longest} bytes when encoded; at most {KEY_BYTES_MAX} are allowed"
        )


def _check_order(batch: pa.RecordBatch, codec: KeyCodec, last: bytes | None, where: tuple[int, str]) -> bytes:
    """The key of the last row. ``where`` says how many rows of which file came before."""
    rows, name = where
    keys = codec.encode_columns(batch)
    first_wrong = 0 if last is not None and keys[0].as_py() < last else -1
    if len(keys) > 1 and first_wrong < 0:
        first_wrong = pc.index(pc.less(keys[1:], keys[:-1]), value=True).as_py() + 1 or -1
    if first_wrong >= 0:
        by = ", ".join(field.name for field in codec.fields)
        raise Code.SOURCE_NOT_SORTED(
            f"{name} is not sorted by {by}: row {rows + first_wrong + 1} is below the one before it. Import it, which "
            "sorts it",
            name=name,
            row=rows + first_wrong + 1,
        )
    key: bytes = keys[-1].as_py()
    return key
