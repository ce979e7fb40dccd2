"""Writes hidden rows as the position deletes of Apache Iceberg, and reads them back.

They are a Parquet file with the path of a data file and a position in each row, sorted by both, and may be about many
data files. PyIceberg reads them, and does not write them.

Core type: :class:`DeleteFile`, an entry of a manifest for a file with deletes. Pure: no I/O.
Source: the specification of Iceberg tables ("Delete Formats", "Reserved Field IDs").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from lakebed.model.arrays import of_integers
from lakebed.upkeep.publish.hidden_rows import add, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved ids of the columns of position deletes."""

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


class DeleteFile(Struct, frozen=True):
    """What a manifest says of a file with deletes.

    ``paths`` are the least and the greatest path of a data file that it is about.
    """

    rows: int
    size_bytes: int
    paths: tuple[str, str]

    def data_file(self, path: str) -> DataFile:
        """Return the entry of the file, which is at ``path``."""
        low, high = (path.encode() for path in self.paths)
        return DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=self.rows,
            file_size_in_bytes=self.size_bytes,
            lower_bounds={PATH_ID: low},
            upper_bounds={PATH_ID: high},
        )


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
