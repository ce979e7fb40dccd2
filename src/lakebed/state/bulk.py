"""Lists of references as they are written: in the line of their transaction or, if long, as columns in a side object.

What then stands in the line is a *claim*, which names the side object by the digest of its bytes and says how much is
in it, so that whoever only counts need not read it. Pairs of file and leaf are written the same way.

A file that reaches 132,000 leaves is 12 MB of JSON and 0.2 to 0.6 MB of columns, and its references are read in less
than half the time. The names of files and runs are dictionaries: each is there once, and once in memory. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from lakebed.errors import DamagedError
from lakebed.files import Reference
from lakebed.ipc import open_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INLINE_MAX = 1024
"""References in a line: 95 KB. A side object of as many is 4 to 7 KB, read no faster, and takes two more requests."""

_REFERENCE_BYTES, _SIDE_BYTES_MIN = 256, 64 * 1024
"""What one takes as columns at most: 25 bytes of numbers and two ids of up to 64 characters with their offsets."""

_REFERENCES_MAX = 4_000_000
"""In one list, whatever a claim says: twice what a transaction may add."""

_NAME = pa.dictionary(pa.int32(), pa.string())
_REFERENCES = pa.schema(
    [("file", _NAME), ("leaf", pa.int64()), ("rows", pa.int64()), ("exact", pa.bool_()), ("run", _NAME)]
)
_PAIRS = pa.schema([("file", _NAME), ("leaf", pa.int64())])


@dataclass(frozen=True, slots=True)
class Side:
    """The bytes of a side object, and how many references they are."""

    data: bytes
    references: int


Sides = dict[str, Side]
"""Side objects by their digest."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How much a list is: references, distinct leaves, rows (None: pairs do not tell)."""

    references: int
    leaves: int
    rows: int | None


# -- lists ------------------------------------------------------------------------------------------------------


def encode_references(references: Sequence[Reference], sides: Sides) -> Any:
    """The list in JSON; or the claim that stands in its place, its side object added to ``sides``."""
    if len(references) <= INLINE_MAX:
        return [[r.file, r.leaf, r.rows, r.exact, r.run] for r in references]
    columns = [list(map(attrgetter(name), references)) for name in _REFERENCES.names]
    return _aside(_REFERENCES, columns, sides)


def decode_references(listed: Any, sides: Mapping[str, bytes]) -> tuple[Reference, ...]:
    """The references of a list or claim. Raises DamagedError for a side object that is not as claimed."""
    if not claims(listed):
        return tuple(Reference(file, leaf, rows, exact, run) for file, leaf, rows, exact, run in listed)
    return tuple(map(Reference, *_claimed(_REFERENCES, listed, sides)))


def encode_pairs(pairs: Sequence[tuple[str, int]], sides: Sides) -> Any:
    """As :func:`encode_references`, for pairs of file and leaf."""
    if len(pairs) <= INLINE_MAX:
        return [list(pair) for pair in pairs]
    return _aside(_PAIRS, list(map(list, zip(*pairs, strict=True))), sides)


def decode_pairs(listed: Any, sides: Mapping[str, bytes]) -> tuple[tuple[str, int], ...]:
    """As :func:`decode_references`, for pairs of file and leaf."""
    if not claims(listed):
        return tuple((file, leaf) for file, leaf in listed)
    files, leaves = _claimed(_PAIRS, listed, sides)
    return tuple(zip(files, leaves, strict=True))


def claims(listed: Any) -> bool:
    """Whether this stands in place of a list, and says where it is."""
    return isinstance(listed, dict) and "side" in listed


def tally(listed: Any) -> Tally:
    """How much a list in JSON is, or a claim says. Raises KeyError, TypeError or IndexError for what is neither."""
    if claims(listed):
        return Tally(listed["references"], listed["leaves"], listed["rows"])
    rows = sum(row[2] for row in listed) if all(len(row) > 2 for row in listed) else None
    return Tally(len(listed), len({row[1] for row in listed}), rows)


def _aside(schema: pa.Schema, columns: Sequence[list[Any]], sides: Sides) -> dict[str, Any]:
    data = _encode(schema, columns)
    digest, counted = xxhash.xxh3_128_hexdigest(data), _tally(columns)
    sides[digest] = Side(data, counted.references)
    return {"side": digest, "references": counted.references, "leaves": counted.leaves, "rows": counted.rows}


def _claimed(schema: pa.Schema, claim: Mapping[str, Any], sides: Mapping[str, bytes]) -> Sequence[list[Any]]:
    side = claim["side"]
    if side not in sides:
        raise DamagedError(f"side object {side} is claimed, but not named by the header of the entry", side=side)
    # What a list of so many can take: a name of its own for each file and run.
    columns = _decode(
        schema, sides[side], side, _SIDE_BYTES_MIN + _REFERENCE_BYTES * min(int(claim["references"]), _REFERENCES_MAX)
    )
    found = _tally(columns)
    if found != tally(claim):
        raise DamagedError(f"side object {side} holds {found}, {tally(claim)} was claimed", side=side)
    return columns


def _tally(columns: Sequence[list[Any]]) -> Tally:
    leaves = columns[1]
    return Tally(len(leaves), len(set(leaves)), sum(columns[2]) if len(columns) > 2 else None)


# -- columns as bytes -------------------------------------------------------------------------------------------


def _encode(schema: pa.Schema, columns: Sequence[list[Any]]) -> bytes:
    arrays = [_encode_column(field.type, values) for field, values in zip(schema, columns, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _encode_column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    # Arrow's own encoder would need its kernels, which take 60 ms to import.
    places: dict[str, int] = {}
    indices = [places.setdefault(value, len(places)) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), pa.array(places, kind.value_type))


def _decode(schema: pa.Schema, data: bytes, side: str, bytes_max: int) -> list[list[Any]]:
    try:
        reader = open_within(pa.BufferReader(data), bytes_max, f"side object {side}")
        batches = list(reader) if reader.schema == schema else []
        if len(batches) != 1:
            raise DamagedError(
                f"side object {side} is {len(batches)} batches of {reader.schema.names}, not one of {schema.names}",
                side=side,
            )
        (batch,) = batches
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"side object {side} is not an Arrow file: {error}", side=side) from error
    if any(column.null_count for column in batch.columns):
        raise DamagedError(f"side object {side} has nulls", side=side)
    return [_decode_column(column) for column in batch.columns]


def _decode_column(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        values: list[str] = column.dictionary.to_pylist()
        return [values[index] for index in _decode_column(column.indices)]
    if pa.types.is_boolean(column.type):
        bits: list[bool] = column.to_pylist()
        return bits
    # Ten times as fast as Arrow's own way from numbers to a list.
    raw = memoryview(column.buffers()[1])
    numbers = raw.cast("i") if pa.types.is_int32(column.type) else raw.cast("q")
    return numbers[column.offset : column.offset + len(column)].tolist()
