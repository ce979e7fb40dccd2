"""Lists of references as they are stored: in the document of their transaction or, if long, as columns in a sidecar.

Instead of a long list, the document has a :class:`Claim`: the digest of the sidecar's bytes, and the counts of the
list, so that counting does not read the sidecar. Pairs of file and partition are stored the same way. The encoder
returns the bytes of sidecars beside the document, for the caller to store; the decoder takes them. Pure.

The references of a file that reaches 132,000 partitions are 12 MB of JSON, and 0.2 to 0.6 MB of columns, which are read
in less than half the time. The names of files and runs are dictionaries, so each is stored and held in memory once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Any

import pyarrow as pa
import xxhash
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.files import Reference
from lakebed.model.ipc import open_within
from lakebed.model.state.fields import Id, Positive, Whole

INLINE_MAX = 1024
"""References inline in a document: 95 KB. A sidecar of as many is 4 to 7 KB, is read no faster, and takes two more
requests."""

_REFERENCE_BYTES, _SIDECAR_BYTES_MIN = 256, 64 * 1024
"""The maximum bytes of a reference as columns: 25 bytes of numbers, and two ids of up to 64 characters with offsets."""

_REFERENCES_MAX = 4_000_000
"""The maximum number of references in a list, whatever its claim says: twice what a transaction may add."""

_NAME = pa.dictionary(pa.int32(), pa.string())
_REFERENCES = pa.schema(
    [("file", _NAME), ("partition", pa.int64()), ("rows", pa.int64()), ("exact", pa.bool_()), ("run", _NAME)]
)
_PAIRS = pa.schema([("file", _NAME), ("partition", pa.int64())])


class Sidecar(Struct, frozen=True):
    """The bytes of a sidecar, and its number of references."""

    data: bytes
    references: int


class Sidecars(dict[str, Sidecar]):
    """Sidecars by their digest; lists of more than ``inline_max`` references go into one."""

    def __init__(self, inline_max: int = INLINE_MAX) -> None:
        super().__init__()
        self.inline_max = inline_max


SidecarData = Mapping[str, bytes] | None
"""The bytes of an entry's sidecars by their digest; None: leave out what is in sidecars."""


class Claim(Struct, frozen=True):
    """The digest and counts of a list in a sidecar, stored in place of the list. ``rows`` is None for pairs."""

    sidecar: str
    references: Whole
    partitions: Whole
    rows: Whole | None


ReferenceList = list[tuple[str, Positive, Whole, bool, str]] | Claim
PairList = list[tuple[Id, Positive]] | Claim


class ReferenceCounts(Struct, frozen=True):
    """The counts of a list: references, distinct partitions, rows (None for pairs)."""

    references: int
    partitions: int
    rows: int | None


# -- lists ------------------------------------------------------------------------------------------------------


def encode_references(references: Sequence[Reference], sidecars: Sidecars) -> ReferenceList:
    """Return the list, or a claim for it with its sidecar added to ``sidecars``."""
    if len(references) <= sidecars.inline_max:
        return [(r.file, r.partition, r.rows, r.exact, r.run) for r in references]
    columns = [list(map(attrgetter(name), references)) for name in _REFERENCES.names]
    return _aside(_REFERENCES, columns, sidecars)


def decode_references(listed: ReferenceList, sidecars: SidecarData) -> tuple[Reference, ...]:
    """Return the references of a list or claim. Raises DamagedError for a sidecar that differs from its claim."""
    if isinstance(listed, Claim):
        return () if sidecars is None else tuple(map(Reference, *_claimed(_REFERENCES, listed, sidecars)))
    return tuple(starmap(Reference, listed))


def encode_pairs(pairs: Sequence[tuple[str, int]], sidecars: Sidecars) -> PairList:
    """As :func:`encode_references`, for pairs of file and partition."""
    if len(pairs) <= sidecars.inline_max:
        return list(pairs)
    return _aside(_PAIRS, list(map(list, zip(*pairs, strict=True))), sidecars)


def decode_pairs(listed: PairList, sidecars: SidecarData) -> tuple[tuple[str, int], ...]:
    """As :func:`decode_references`, for pairs of file and partition."""
    if not isinstance(listed, Claim):
        return tuple(listed)
    if sidecars is None:
        return ()
    files, partitions = _claimed(_PAIRS, listed, sidecars)
    return tuple(zip(files, partitions, strict=True))


def count_references(listed: ReferenceList | PairList) -> ReferenceCounts:
    """Return the counts of a list or claim."""
    if isinstance(listed, Claim):
        return ReferenceCounts(listed.references, listed.partitions, listed.rows)
    rows = sum(row[2] for row in listed if len(row) > 2) if not listed or len(listed[0]) > 2 else None
    return ReferenceCounts(len(listed), len({row[1] for row in listed}), rows)


def _aside(schema: pa.Schema, columns: Sequence[list[Any]], sidecars: Sidecars) -> Claim:
    data = _encode_columns(schema, columns)
    digest, counted = xxhash.xxh3_128_hexdigest(data), _count_columns(columns)
    sidecars[digest] = Sidecar(data, counted.references)
    return Claim(digest, counted.references, counted.partitions, counted.rows)


def _claimed(schema: pa.Schema, claim: Claim, sidecars: Mapping[str, bytes]) -> Sequence[list[Any]]:
    sidecar = claim.sidecar
    if sidecar not in sidecars:
        raise Code.SIDECAR_DAMAGED(
            f"sidecar {sidecar} is referenced, but not named by the header of the entry", sidecar=sidecar
        )
    # The largest possible list of this length: every file and run has a different name.
    bytes_max = _SIDECAR_BYTES_MIN + _REFERENCE_BYTES * min(claim.references, _REFERENCES_MAX)
    columns = _decode_columns(schema, sidecars[sidecar], sidecar, bytes_max)
    found, claimed = _count_columns(columns), count_references(claim)
    if found != claimed:
        raise Code.SIDECAR_DAMAGED(f"sidecar {sidecar} holds {found}, {claimed} was claimed", sidecar=sidecar)
    return columns


def _count_columns(columns: Sequence[list[Any]]) -> ReferenceCounts:
    partitions = columns[1]
    return ReferenceCounts(len(partitions), len(set(partitions)), sum(columns[2]) if len(columns) > 2 else None)


# -- columns as bytes -------------------------------------------------------------------------------------------


def _encode_columns(schema: pa.Schema, columns: Sequence[list[Any]]) -> bytes:
    arrays = [_encode_column(field.type, values) for field, values in zip(schema, columns, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _encode_column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    # Arrow's own encoder needs its kernels, which take 60 ms to import.
    places: dict[str, int] = {}
    indices = [places.setdefault(value, len(places)) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), pa.array(places, kind.value_type))


def _decode_columns(schema: pa.Schema, data: bytes, sidecar: str, bytes_max: int) -> list[list[Any]]:
    try:
        reader = open_within(pa.BufferReader(data), bytes_max, f"sidecar {sidecar}")
        batches = list(reader) if reader.schema == schema else []
        if len(batches) != 1:
            raise Code.SIDECAR_DAMAGED(
                f"sidecar {sidecar} is {len(batches)} batches of {reader.schema.names}, not one of {schema.names}",
                sidecar=sidecar,
            )
        (batch,) = batches
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise Code.SIDECAR_DAMAGED(f"sidecar {sidecar} is not an Arrow file: {error}", sidecar=sidecar) from error
    if any(column.null_count for column in batch.columns):
        raise Code.SIDECAR_DAMAGED(f"sidecar {sidecar} has nulls", sidecar=sidecar)
    return [_decode_column(column) for column in batch.columns]


def _decode_column(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        values: list[str] = column.dictionary.to_pylist()
        return [values[index] for index in _decode_column(column.indices)]
    if pa.types.is_boolean(column.type):
        bits: list[bool] = column.to_pylist()
        return bits
    # Ten times as fast as Arrow's own conversion of numbers to a list.
    raw = memoryview(column.buffers()[1])
    numbers = raw.cast("i") if pa.types.is_int32(column.type) else raw.cast("q")
    return numbers[column.offset : column.offset + len(column)].tolist()
