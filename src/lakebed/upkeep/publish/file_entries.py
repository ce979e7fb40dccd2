"""Data files as Apache Iceberg describes them: path, rows, size, and statistics of columns from the footer.

The footer of a file is read once, when the file is first published; after that its manifest has what is known. Bounds
are Parquet's statistics in Iceberg's encoding of single values; texts are cut. Inner columns have neither bounds nor
counts. Rows that do not count are in the statistics, which stay true of the others.

Pure. Errors: RejectedError for a file that other engines cannot read.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from lakebed.errors import Code
from lakebed.model.field_ids import children, first_inner_id, inner_columns, inner_ids, stored_id
from lakebed.model.published_types import why_not
from lakebed.model.type_names import JSON, name_of
from lakebed.upkeep.publish.iceberg_types import SORT_ORDER_ID
from lakebed.upkeep.publish.manifests import NEWEST

if TYPE_CHECKING:
    from lakebed.model import files

BOUND_BYTES = 16
"""About as Iceberg's own writers cut bounds of texts."""

FOUR_BYTES = 32


def file_entry(root: str, name: str, file: files.DataFile, footer: bytes) -> DataFile:
    """Return a data file, the object ``name`` below a location, with the statistics of its footer.

    Raises RejectedError for a file that has to be rewritten before other engines can read it.
    """
    parsed = pq.read_metadata(pa.BufferReader(footer))
    if reason := _unreadable(parsed):
        raise Code.FILE_NOT_PUBLISHABLE(
            f"other engines cannot read the data file {name}: {reason}. Files written from now on can be read: rewrite "
            "those from before (lakebed publish --compact)",
            name=name,
            file=file.id,
        )
    return DataFile.from_args(
        NEWEST,
        content=DataFileContent.DATA,
        file_path=root + name,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        sort_order_id=SORT_ORDER_ID,
        **_statistics(parsed),
    )


def is_readable(footer: bytes) -> bool:
    """Return whether other engines can read the data file with this footer."""
    return not _unreadable(pq.read_metadata(pa.BufferReader(footer)))


def _unreadable(footer: pq.FileMetaData) -> str:
    """Return why other engines cannot read a file; empty if they can.

    They convert all of its columns, so those of fields that were dropped count too.
    """
    for column in footer.schema.to_arrow_schema():
        # The schema that the file names has text for JSON (:func:`~lakebed.model.field_ids.shown_schema`).
        if why_not(column.type) or JSON in (column.type, *(inner.type for inner in inner_columns(column.type))):
            return f"they do not read the type of its column {column.name}, {name_of(column.type)}"
        field_id, inner = stored_id(column), inner_ids(column)
        first = 0 if field_id is None else first_inner_id(field_id)
        if inner != list(range(first, first + len(inner))):
            return f"the inner columns of {column.name} have no field ids"
    return ""


def _flat_columns(schema: pa.Schema) -> dict[int, pa.Field]:
    """Return the columns without inner columns, by their places among the columns of Parquet."""
    flat, place = {}, 0
    for column in schema:
        if not pa.types.is_nested(column.type):
            flat[place] = column
        place += sum(not children(one.type) for one in (column, *inner_columns(column.type)))
    return flat


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return sizes, counts and bounds of the columns that have a field id and no inner columns."""
    columns = _flat_columns(footer.schema.to_arrow_schema())
    found: dict[str, dict[int, Any]] = {
        name: {} for name in ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    }
    offsets = []
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for place, column in columns.items():
        chunks = [group.column(place) for group in groups]
        field_id = stored_id(column)
        if field_id is None:
            continue
        found["column_sizes"][field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        found["value_counts"][field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if all(one is not None and one.has_null_count for one in statistics):
            found["null_value_counts"][field_id] = sum(one.null_count for one in statistics)
        if all(one is not None and one.has_min_max for one in statistics):
            kind = column.type
            low = _bound(kind, min(_value(kind, one.min_raw) for one in statistics), up=False)
            high = _bound(kind, max(_value(kind, one.max_raw) for one in statistics), up=True)
            if low is not None and high is not None:
                found["lower_bounds"][field_id], found["upper_bounds"][field_id] = low, high
    for group in groups:
        first = group.column(0)
        dictionary = first.dictionary_page_offset
        offsets.append(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))
    return {**found, "split_offsets": sorted(offsets)}


def _value(kind: pa.DataType, physical: Any) -> Any:
    """Return a physical value of Parquet in a form that can be compared."""
    is_big_endian = pa.types.is_decimal(kind) and isinstance(physical, bytes)
    return int.from_bytes(physical, "big", signed=True) if is_big_endian else physical


def _bound(kind: pa.DataType, value: Any, *, up: bool) -> bytes | None:
    """Return a value as a lower bound, or an upper one, in Iceberg's encoding; None: it has none."""
    if pa.types.is_decimal(kind):
        # The fewest bytes of the two's complement.
        return value.to_bytes(((value + (value < 0)).bit_length() + 8) // 8, "big", signed=True)  # type: ignore[no-any-return]
    if pa.types.is_boolean(kind):
        return struct.pack("<?", value)
    if pa.types.is_floating(kind):
        if math.isnan(value):
            return None
        return struct.pack("<f" if kind.bit_width == FOUR_BYTES else "<d", value)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return struct.pack("<i" if kind.bit_width <= FOUR_BYTES else "<q", value)
    if pa.types.is_fixed_size_binary(kind) or not isinstance(value, bytes):
        return value if isinstance(value, bytes) and len(value) <= BOUND_BYTES else None
    if len(value) <= BOUND_BYTES:
        return value
    if pa.types.is_string(kind):
        return _cut_text(value, up=up)
    return truncate_upper_bound_binary_string(value, BOUND_BYTES) if up else value[:BOUND_BYTES]


def _cut_text(value: bytes, *, up: bool) -> bytes | None:
    """Return the beginning of a long text, or what is above all that begin so; None: there is no such text."""
    # Cut between characters, so that it stays UTF-8.
    beginning = value[:BOUND_BYTES].decode(errors="ignore")
    bound = truncate_upper_bound_text_string(value.decode(), len(beginning)) if up else beginning
    try:
        return None if bound is None else bound.encode()
    except UnicodeEncodeError:
        # The next character is half of a pair.
        return None
