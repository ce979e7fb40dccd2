"""The change feed as tasks of a stream: each reads some versions, or some keys of one version, in Python workers.

A task replays the log to its first version and reads the feed from there, as every reader does. Small versions share a
task, so that the replay is little beside it; a version with many files is cut by their keys. Rows of different tasks
come in no order: a query that applies them has to sort them (docs/spark.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from lakebed.jobs.executor import Place, on_one_core
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.transactions import AddFiles
from lakebed.read.changes.plan import may_change_rows
from lakebed.spark.datasource import spark_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.model.state.transactions import Transaction


class ChangesPartition(InputPartition):
    """What one task reads: the changes of keys in the versions after the first, up to the last."""

    def __init__(self, first: int, last: int, keys: EncodedRange = ALL_KEYS) -> None:
        self.first = first
        self.last = last
        self.keys = keys

    def __repr__(self) -> str:
        return f"Changes of versions {self.first + 1} to {self.last}"


@dataclass(frozen=True, slots=True)
class ChangesScan:
    """The common part of all tasks: the table, the columns and types that Spark requests, and which are the table's."""

    place: Place
    table_id: str
    wanted: pa.Schema
    names: tuple[str, ...]

    @classmethod
    def of(cls, place: Place, table_id: str, schema: Schema, spark: StructType) -> ChangesScan:
        """Raises UsageError for a column that the table does not have, or has with another type."""
        return cls(place, table_id, *spark_columns.check_requested_changes(spark, schema))

    def read(self, part: ChangesPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of a part. Raises NotRetainedError."""
        from lakebed.read.changes.feed import Feed

        on_one_core()
        table = self.place.open().unnamed(self.table_id)
        present = table.state()
        # A feed of no column of the table is one of its keys.
        names = self.names or present.created.row_key_names
        with Feed.of(table.versions, present, (part.keys,), names).stream(None, part.first, part.last) as stream:
            for rows in stream:
                yield spark_columns.to_spark(rows, self.wanted)


def parts_of(
    first: int, last: int, share_bytes: int, transactions: Callable[[int], Sequence[Transaction]]
) -> list[ChangesPartition]:
    """Return the changes of the versions after the first in parts of about ``share_bytes`` of added files.

    ``transactions`` are those of an entry. Versions that change no rows are in no part, or in one with others.
    """
    parts: list[ChangesPartition] = []
    held: list[tuple[int, int]] = []

    def flush() -> None:
        if held:
            parts.append(ChangesPartition(held[0][0] - 1, held[-1][0]))
        held.clear()

    for version in range(first + 1, last + 1):
        found = transactions(version)
        if not any(map(may_change_rows, found)):
            continue
        files = [file for one in found if isinstance(one, AddFiles) for file in one.files]
        size_bytes = sum(file.size_bytes for file in files)
        if held and sum(size for _, size in held) + size_bytes > share_bytes:
            flush()
        if size_bytes < 2 * share_bytes:
            held.append((version, size_bytes))
        else:
            flush()
            parts += (ChangesPartition(version - 1, version, keys) for keys in _ranges_of_size(files, share_bytes))
    flush()
    return parts


def _ranges_of_size(files: Sequence[DataFile], share_bytes: int) -> Iterator[EncodedRange]:
    """Return all keys in ranges, in each of which files of about ``share_bytes`` begin."""
    begin, size_bytes = b"", 0
    for file in sorted(files, key=lambda file: file.min_key):
        if size_bytes >= share_bytes and file.min_key > begin:
            yield EncodedRange(begin, file.min_key)
            begin, size_bytes = file.min_key, 0
        size_bytes += file.size_bytes
    yield EncodedRange(begin)
