"""Which rows of published files are deleted, as objects of Apache Iceberg: what is written, and what is named no more.

Each publication writes one object with what it hides, for all data files together. It takes in those before it that
have no more rows than it: a version then names about as many as the logarithm of its publications, and a row is written
as often. There are two kinds:

* :class:`_PositionDeletes`, of format 2: the rows that were not hidden before, since objects add up. One with more than
  :data:`SHARED_ROWS` rows is divided by data file, because readers filter an object for each data file in it.
* :class:`_DeletionVectors`, of format 3: all hidden rows of the files in which there are more now, since a file has at
  most one vector. An object of which less than half counts is taken in too.

Rows only become hidden in this way. When rows are shown again, or a data file comes back, all objects are written anew:
what they say of a file that they name does not end, since PyIceberg applies whole objects, and also replaced vectors.

Core types: :class:`DeleteFile`, :class:`DeletePlan`, :class:`DeleteKind`. Pure: no I/O. Errors: ArrowException and
DamagedError for other data. Source: the specification of Iceberg tables ("Delete Formats", "Reserved Field IDs");
decision 0077.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from lakebed.model.arrays import of_integers
from lakebed.upkeep.publish.hidden_rows import add, numbers
from lakebed.upkeep.publish.puffin import deletion_vectors, read_deletion_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved ids of the columns of position deletes."""

SHARED_ROWS = 128 * 1024
"""Rows of an object that is about several data files: PyIceberg compares each with the path of each of them."""

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

Hidden = dict[str, BitMap64]
"""Positions of rows, from 0, by the paths of their data files."""


class DeleteFile(Struct, frozen=True):
    """An object with deletes: those that count, the data files that it names, and the ``rows`` that it has in all."""

    path: str
    rows: int
    named: frozenset[str]
    hidden: Hidden

    @classmethod
    def of(cls, path: str, hidden: Hidden) -> DeleteFile:
        """Return an object of which all counts."""
        return cls(path, _rows(hidden), frozenset(hidden), hidden)

    def without(self, paths: AbstractSet[str]) -> DeleteFile:
        """Return it without what it says of these data files, which does not count any more."""
        if paths.isdisjoint(self.hidden):
            return self
        return replace(self, hidden={path: rows for path, rows in self.hidden.items() if path not in paths})


class DeletePlan(Struct, frozen=True):
    """What a publication does: the objects that it writes, those that it keeps, and entries that it drops.

    ``dropped`` are keys of manifest entries (:func:`~lakebed.upkeep.publish.manifests.key_of`).
    """

    written: list[Hidden]
    kept: list[DeleteFile]
    dropped: list[str]


class DeleteKind(ABC):
    """How one format of Iceberg has deletes."""

    format_version: Literal[2, 3]
    file_format: FileFormat

    @abstractmethod
    def anew(self, hidden: Hidden) -> list[Hidden]:
        """Return the objects for these rows, if there are none yet."""

    @abstractmethod
    def plan(self, files: Sequence[DeleteFile], before: Hidden, after: Hidden, gone: AbstractSet[str]) -> DeletePlan:
        """Return what is written after an earlier version, which has these objects.

        ``before`` and ``after`` are the hidden rows of the data files where they differ; those ``gone`` are dropped.

        Requires that no row that was hidden is shown.
        """

    @abstractmethod
    def encode(self, hidden: Hidden) -> tuple[bytes, list[dict[str, Any]]]:
        """Return an object with these rows, and what its manifest entries say but its path and its size."""

    @abstractmethod
    def read(self, path: str, data: bytes, entries: Iterable[DataFile]) -> DeleteFile:
        """Return the object at a path, of which manifests have these entries.

        Raises ArrowException or DamagedError for other data.
        """

    def entries(self, path: str, size_bytes: int, facts: Iterable[Mapping[str, Any]]) -> list[DataFile]:
        """Return the manifest entries of an object that was written, from what :meth:`encode` returned."""
        common = {
            "content": DataFileContent.POSITION_DELETES,
            "file_path": path,
            "file_format": self.file_format,
            "partition": Record(),
            "file_size_in_bytes": size_bytes,
        }
        return [DataFile.from_args(3, **common, **one) for one in facts]


class _PositionDeletes(DeleteKind):
    """A Parquet file with the path of a data file and a position in each row, sorted by both."""

    format_version = 2
    file_format = FileFormat.PARQUET

    def anew(self, hidden: Hidden) -> list[Hidden]:
        if _rows(hidden) > SHARED_ROWS:
            return [{path: rows} for path, rows in hidden.items()]
        return [hidden] if hidden else []

    def plan(self, files: Sequence[DeleteFile], before: Hidden, after: Hidden, gone: AbstractSet[str]) -> DeletePlan:
        none = BitMap64()
        new = {path: more for path, rows in after.items() if (more := rows - before.get(path, none))}
        kept, dropped, count = [], [], _rows(new)
        for file in sorted((one.without(gone) for one in files), key=lambda one: _rows(one.hidden)):
            if _rows(file.hidden) > count:
                kept.append(file)
                continue
            # Also if nothing of it is left.
            dropped.append(file.path)
            for path, rows in file.hidden.items():
                new[path] = new.get(path, none) | rows
            count = _rows(new)
        return DeletePlan(self.anew(new), kept, dropped)

    def encode(self, hidden: Hidden) -> tuple[bytes, list[dict[str, Any]]]:
        data = position_deletes(hidden)
        paths = [min(hidden).encode(), max(hidden).encode()]
        facts = {
            "record_count": _rows(hidden),
            "lower_bounds": {PATH_ID: paths[0]},
            "upper_bounds": {PATH_ID: paths[1]},
        }
        return data, [facts]

    def read(self, path: str, data: bytes, entries: Iterable[DataFile]) -> DeleteFile:  # noqa: ARG002 - all rows count
        return DeleteFile.of(path, read_position_deletes(data))


class _DeletionVectors(DeleteKind):
    """A Puffin file with a roaring bitmap for each data file (:mod:`lakebed.upkeep.publish.puffin`)."""

    format_version = 3
    file_format = FileFormat.PUFFIN

    def anew(self, hidden: Hidden) -> list[Hidden]:
        return [hidden] if hidden else []

    def plan(self, files: Sequence[DeleteFile], before: Hidden, after: Hidden, gone: AbstractSet[str]) -> DeletePlan:  # noqa: ARG002 - a vector has all rows
        written = dict(after)
        kept, dropped, replaced = [], [], gone | after.keys()
        dropped += [path for file in files for path in file.hidden if path in replaced]
        for file in sorted((one.without(replaced) for one in files), key=lambda one: _rows(one.hidden)):
            count = _rows(file.hidden)
            if count > _rows(written) and 2 * count > file.rows:
                kept.append(file)
            else:
                dropped += file.hidden
                written |= file.hidden
        return DeletePlan(self.anew(written), kept, dropped)

    def encode(self, hidden: Hidden) -> tuple[bytes, list[dict[str, Any]]]:
        data, ranges = deletion_vectors(hidden)
        facts = [
            {
                "record_count": len(hidden[path]),
                "referenced_data_file": path,
                "content_offset": offset,
                "content_size_in_bytes": size_bytes,
                # PyIceberg finds the data file by them.
                "lower_bounds": {PATH_ID: path.encode()},
                "upper_bounds": {PATH_ID: path.encode()},
            }
            for path, (offset, size_bytes) in ranges.items()
        ]
        return data, facts

    def read(self, path: str, data: bytes, entries: Iterable[DataFile]) -> DeleteFile:
        hidden = read_deletion_vectors(data)
        current = {entry.lower_bounds[PATH_ID].decode() for entry in entries}
        return DeleteFile.of(path, hidden).without(hidden.keys() - current)


KINDS: Mapping[int, DeleteKind] = {kind.format_version: kind for kind in (_PositionDeletes(), _DeletionVectors())}
"""By the version of the format."""


def _rows(hidden: Hidden) -> int:
    return sum(map(len, hidden.values()))


def position_deletes(hidden: Hidden) -> bytes:
    """Return a Parquet file with the hidden rows of data files, by their paths."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _POSITION_DELETES,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for batch in _delete_batches(hidden):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _delete_batches(hidden: Hidden) -> Iterator[pa.RecordBatch]:
    """Return the rows of position deletes, ascending, in batches: a row group each."""
    paths = sorted(hidden)
    counts = [len(hidden[path]) for path in paths]
    if sum(counts) <= _BATCH_ROWS:
        indices = pa.array(np.repeat(np.arange(len(paths), dtype=np.int32), counts))
        names = pa.DictionaryArray.from_arrays(indices, paths)
        positions = np.concatenate([numbers(hidden[path]) for path in paths])
        yield pa.RecordBatch.from_arrays([names, of_integers(positions)], schema=_POSITION_DELETES)
        return
    for path in paths:
        for first in range(0, len(hidden[path]), _BATCH_ROWS):
            positions = of_integers(numbers(hidden[path][first : first + _BATCH_ROWS]))
            names = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(positions)), [path])
            yield pa.RecordBatch.from_arrays([names, positions], schema=_POSITION_DELETES)


def read_position_deletes(data: bytes) -> Hidden:
    """Return the hidden rows of data files, by their paths. Raises ArrowException for other data."""
    found: Hidden = {}
    with pq.ParquetFile(pa.BufferReader(data), read_dictionary=["file_path"]) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            paths, positions = batch.column(0), batch.column(1).to_numpy()
            indices = paths.indices.to_numpy()
            for index in np.unique(indices).tolist():
                add(found.setdefault(paths.dictionary[index].as_py(), BitMap64()), positions[indices == index])
    return found
