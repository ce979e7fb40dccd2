"""Writes hidden rows as the deletes of Apache Iceberg, and reads them back.

Two forms. *Position deletes*, from format 2 on: a Parquet file with the path of a data file and a position in each row,
sorted by both. *Deletion vectors*, from format 3 on: a roaring bitmap for each data file, as a blob of a Puffin file.
PyIceberg reads both and writes neither. A file of either form may be about many data files.

Core type: :class:`DeleteFile`, an entry of a manifest for a file with deletes. Pure: no I/O. Errors: DamagedError.
Source: the specifications of Iceberg tables ("Delete Formats", "Reserved Field IDs") and of Puffin
("``deletion-vector-v1`` blob type").
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from lakebed.errors import Code
from lakebed.model.arrays import of_integers
from lakebed.model.version import VERSION
from lakebed.upkeep.publish.hidden_rows import add, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved ids of the columns of position deletes."""

_ROW_POSITION_ID = 2147483645
"""The reserved id of the column ``_pos`` of a data file, over which a deletion vector is."""

_POSITION_DELETES = pa.schema(
    [
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={"PARQUET:field_id": str(PATH_ID)},
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)
_BATCH_ROWS = 1024 * 1024
_VECTOR, _VECTOR_MAGIC = "deletion-vector-v1", bytes.fromhex("d1d33964")
_REFERENCED, _CARDINALITY = "referenced-data-file", "cardinality"
_WORD = 4


class DeleteFile(Struct, frozen=True):
    """What a manifest says of a file with deletes, or of one deletion vector in it.

    ``paths`` are the least and the greatest path of a data file that it is about. ``content`` is the byte range of a
    deletion vector, offset and length; None for position deletes.
    """

    rows: int
    size_bytes: int
    paths: tuple[str, str]
    content: tuple[int, int] | None = None

    def data_file(self, path: str) -> DataFile:
        """Return the entry of the file, which is at ``path``, for a manifest of format 2 or, with a vector, 3."""
        low, high = (path.encode() for path in self.paths)
        facts = {
            "content": DataFileContent.POSITION_DELETES,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": self.rows,
            "file_size_in_bytes": self.size_bytes,
            "lower_bounds": {PATH_ID: low},
            "upper_bounds": {PATH_ID: high},
        }
        if self.content is None:
            return DataFile.from_args(2, **facts)
        facts |= {
            "file_format": FileFormat.PUFFIN,
            "referenced_data_file": self.paths[0],
            "content_offset": self.content[0],
            "content_size_in_bytes": self.content[1],
        }
        return DataFile.from_args(3, **facts)


def position_deletes(hidden: Mapping[str, BitMap64]) -> tuple[bytes, DeleteFile]:
    """Return a Parquet file with the hidden rows of data files, by their paths, and its entry.

    Requires that there is a hidden row.
    """
    paths = sorted(path for path, positions in hidden.items() if positions)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _POSITION_DELETES,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for path in paths:
            for positions in _position_arrays(hidden[path]):
                names = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(positions)), [path])
                writer.write_batch(pa.RecordBatch.from_arrays([names, positions], schema=_POSITION_DELETES))
    data = sink.getvalue().to_pybytes()
    return data, DeleteFile(sum(len(hidden[path]) for path in paths), len(data), (paths[0], paths[-1]))


def _position_arrays(positions: BitMap64) -> Iterator[pa.Array]:
    """Return the positions, ascending, in batches."""
    for first in range(0, len(positions), _BATCH_ROWS):
        yield of_integers(numbers(positions[first : first + _BATCH_ROWS]))


def read_position_deletes(data: bytes) -> dict[str, BitMap64]:
    """Return the hidden rows of data files, by their paths. Raises ArrowException for other data."""
    found: dict[str, BitMap64] = {}
    with pq.ParquetFile(pa.BufferReader(data), read_dictionary=["file_path"]) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            paths, positions = batch.column(0), batch.column(1).to_numpy()
            indices = paths.indices.to_numpy()
            for index in np.unique(indices).tolist():
                add(found.setdefault(paths.dictionary[index].as_py(), BitMap64()), positions[indices == index])
    return found


def deletion_vectors(hidden: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, DeleteFile]]:
    """Return a Puffin file with a deletion vector for each data file with hidden rows, and their entries, by the paths
    of the data files.
    """
    content, blobs = bytearray(MAGIC_BYTES), []
    ranges: dict[str, tuple[int, int]] = {}
    for path, positions in sorted(hidden.items()):
        if not positions:
            continue
        blob = _blob(positions)
        ranges[path] = (len(content), len(blob))
        blobs.append(
            {
                "type": _VECTOR,
                "fields": [_ROW_POSITION_ID],
                # As the specification asks: they are those of the snapshot that adds the entry.
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {_REFERENCED: path, _CARDINALITY: str(len(positions))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": f"lakebed {VERSION}"}}).encode()
    content += MAGIC_BYTES + footer + len(footer).to_bytes(_WORD, "little") + bytes(_WORD) + MAGIC_BYTES
    entries = {path: DeleteFile(len(hidden[path]), len(content), (path, path), at) for path, at in ranges.items()}
    return bytes(content), entries


def _blob(positions: BitMap64) -> bytes:
    """Return a deletion vector: its length, the magic, a 64-bit roaring bitmap in the portable form, a CRC-32."""
    compact = positions.copy()
    compact.run_optimize()
    vector = _VECTOR_MAGIC + compact.serialize()
    return len(vector).to_bytes(_WORD, "big") + vector + zlib.crc32(vector).to_bytes(_WORD, "big")


def read_deletion_vectors(data: bytes) -> dict[str, BitMap64]:
    """Return the hidden rows of data files, by their paths. Raises DamagedError if a vector is damaged."""
    puffin = PuffinFile(data)
    return {one.properties[_REFERENCED]: _positions(puffin.get_blob_payload(one)) for one in puffin.footer.blobs}


def _positions(blob: bytes) -> BitMap64:
    vector = blob[_WORD:-_WORD]
    length, checksum = blob[:_WORD], blob[-_WORD:]
    if (
        int.from_bytes(length, "big") != len(vector)
        or not vector.startswith(_VECTOR_MAGIC)
        or int.from_bytes(checksum, "big") != zlib.crc32(vector)
    ):
        raise Code.OBJECT_DAMAGED("a deletion vector is damaged: its checksum differs; publish the table anew")
    return BitMap64.deserialize(vector[len(_VECTOR_MAGIC) :])
