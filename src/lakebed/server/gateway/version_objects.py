"""The objects of a table at one version, as a reader sees it.

An object is a data file of the table, if all of its rows are rows that the reader sees, in the columns of that version.
Which columns a file has follows from its schema version. But a file that was committed with new columns may lack others
that were added meanwhile (decision 0044), so footers are read in a schema that has such columns.
All other rows of a partition are one object, which has to be written first: those of files that other partitions or
removed ranges have a part of, of files whose rows are merged or filtered, of files with other columns, of a share of
some keys; and all rows for a reader with a row filter, hidden or masked columns. A table without rows has one object
without rows, so that engines find its columns.

Core types: :class:`TableObject`; :class:`VersionObjects`, all objects of a version.

Rules: names begin with the version, so the bytes behind a name never change, and are flat, in the order of the key
space for objects that are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from lakebed.log.checkpoint import in_parallel
from lakebed.model.keys import ALL_KEYS
from lakebed.model.schema import FIRST_CHOSEN_ID
from lakebed.read.rows.plan import divided, live_files, plan
from lakebed.read.snapshot.restricted import RestrictedSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebed.model.files import DataFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.policies import Policy
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.plan import PartitionQuery, QueryPlan
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.snapshot import Snapshot

NAME = re.compile(r"v([0-9]{1,18})-[0-9a-z][0-9a-z-]{0,70}\.parquet", re.ASCII)
"""The name of an object, with its version."""

Ranges: TypeAlias = "tuple[EncodedRange, ...] | None"
"""The keys that a reader sees; None: all."""

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TableObject:
    """A data file, or rows of one partition that have to be written: then ``file`` is None."""

    name: str
    file: DataFile | None
    queries: tuple[PartitionQuery, ...]
    last_modified: datetime
    """Of the file; or the newest of the files with the rows."""


@dataclass(frozen=True, slots=True)
class ViewKey:
    """What determines the objects: a table by its id, its version, and what of it the reader sees."""

    table: str
    version: int
    policy: Policy | None
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class VersionObjects:
    """The objects of a version, by name and in the order of names.

    ``written_bytes`` estimates those that have to be written, 0 where the number of their rows is not known.
    """

    name: str
    key: ViewKey
    snapshot: Snapshot
    objects: Mapping[str, TableObject]
    written_bytes: int
    _planned: QueryPlan

    @classmethod
    def of(
        cls,
        name: str,
        snapshot: Snapshot,
        policy: Policy | None,
        ranges: Ranges,
        earlier: Iterable[VersionObjects] = (),
    ) -> VersionObjects:
        """Return the objects of a snapshot of the table ``name``, for a reader with this policy, of these keys.

        Files that are objects of ``earlier`` versions of the table lack no column. The footers of other files are read
        if they may, which raises as a scan.
        """
        state = snapshot.state
        planned = plan(state, (ALL_KEYS,) if ranges is None else ranges)
        whole = {} if policy is not None else _whole_files(planned, state)
        whole = _without_lacking(whole, snapshot, earlier) if _lack_columns(state) else whole
        rest = planned.partitions if policy is not None else tuple(_other_rows(planned, whole))
        objects = [
            TableObject(f"v{state.version}-{file.id}.parquet", file, (), _time_of([file])) for file in whole.values()
        ]
        partitions = [tuple(queries) for _, queries in groupby(rest, attrgetter("partition"))]
        if not objects and not partitions:
            partitions = [()]
        for number, queries in enumerate(partitions):
            times = _time_of(file for query in queries for file in query.files)
            objects.append(TableObject(f"v{state.version}-part-{number:08d}.parquet", None, queries, times))
        objects.sort(key=attrgetter("name"))
        known = policy is None and ranges is None
        key = ViewKey(state.table, state.version, policy, ranges)
        by_name = {one.name: one for one in objects}
        return cls(name, key, snapshot, by_name, _bytes_of(rest, state) if known else 0, planned)

    def rows(self, one: TableObject) -> RowStream:
        """Return the rows of an object that has to be written, in key order. Raises as a scan."""
        if self.key.policy is not None:
            seen = RestrictedSnapshot(self.snapshot, self.key.policy)
            return seen.rows([keys for query in one.queries for keys in query.ranges], seen.schema.names)
        planned = replace(self._planned, partitions=one.queries)
        return self.snapshot.reader.scan(planned, planned.schema.names, None)


def _whole_files(planned: QueryPlan, state: TableState) -> dict[str, DataFile]:
    """Return the files whose rows are all rows of the table, in its columns of this version."""
    direct, _ = divided(planned)
    # With ids: a field that was dropped and one that was added later may have the same name.
    columns = {one.version: [(field.id, field.name, field.type) for field in one.fields] for one in state.schemas}
    now = columns[state.created.version]
    return {
        live.file.id: live.file
        for live in live_files(direct)
        if live.whole and columns.get(live.file.schema_version) == now
    }


def _lack_columns(state: TableState) -> bool:
    """Return whether files of the latest schema may lack some of its columns: columns were added with rows."""
    return any(field.id >= FIRST_CHOSEN_ID for field in state.created.fields)


def _without_lacking(
    whole: Mapping[str, DataFile], snapshot: Snapshot, earlier: Iterable[VersionObjects]
) -> dict[str, DataFile]:
    """Return the files that have all columns of their schema."""
    schema = snapshot.state.created
    wanted = {field.id for field in schema.fields}
    known = {one.file.id for view in earlier for one in view.objects.values() if one.file is not None}
    unknown = [file for name, file in whole.items() if name not in known]
    complete = in_parallel(lambda file: wanted <= snapshot.reader.stored_field_ids(file, schema), unknown)
    known.update(file.id for file, has_all in zip(unknown, complete, strict=True) if has_all)
    return {name: file for name, file in whole.items() if name in known}


def _other_rows(planned: QueryPlan, whole: Mapping[str, DataFile]) -> Iterator[PartitionQuery]:
    """Return the queries of the rows of all other files, in key order."""
    if planned.merge.keeps_all:
        queries = list(planned.partitions)
    else:
        # The groups of overlapping files: where they are merged, all of them are.
        places = {query.partition: place for place, query in enumerate(planned.partitions)}
        groups = [query for part in divided(planned) for query in part.partitions]
        queries = sorted(groups, key=lambda query: (places[query.partition], query.ranges[0].min))
    for query in queries:
        files = tuple([file for file in query.files if file.id not in whole])
        if files:
            yield replace(query, files=files)


def _time_of(files: Iterable[DataFile]) -> datetime:
    newest_us = max((file.last_modified_us for file in files), default=0)
    return _BEGINNING + timedelta(microseconds=newest_us)


def _bytes_of(queries: Iterable[PartitionQuery], state: TableState) -> int:
    """Return the bytes of the rows of these queries: of each file in proportion to its rows in the partition."""
    total = 0
    for partition, parts in groupby(queries, attrgetter("partition")):
        ids = {file.id for query in parts for file in query.files}
        held = [one for one in state.held_by(partition) if one.file.id in ids]
        total += sum(one.file.size_bytes * one.rows // one.file.rows for one in held)
    return total
