"""A table's files and partitions, and the effect of a removal or a restore, as plain rows and as Arrow tables. Pure.

Short commands use the plain rows: to make an array of Python values, Arrow imports pandas if it is installed, which
takes longer than the rest of the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.files import data_name
from lakebed.model.state.sums import PartitionSums, partition_sums, table_rows
from lakebed.model.state.transactions import RemoveRange, RestoreVersion, apply
from lakebed.model.type_names import UUID
from lakebed.read.rows.plan import divided, live_files, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import ProposeRemoval, ProposeRestore


@dataclass(frozen=True, slots=True)
class Removed:
    """The effect of a removal: rows of files, exact or estimated, and the number of files that lose rows."""

    rows: int
    exact: bool
    files: int


def removed(state: TableState, proposal: ProposeRemoval) -> Removed:
    """Return the effect of the removal if it were committed to this state."""
    removal = proposal.resolve(state)
    if not isinstance(removal, RemoveRange):
        return Removed(0, exact=True, files=0)
    state = apply(state, removal.split, state.version)
    going = [r for partition in removal.partitions for r in state.references_of(partition)]
    return Removed(sum(r.rows for r in going), all(r.exact for r in going), len({r.file for r in going}))


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore changes: rows of files before and after it (estimates unless ``exact``), partitions that are
    replaced, files that the table gains and loses, and open jobs that it closes.
    """

    rows_before: int
    rows_after: int
    exact: bool
    partitions: int
    files_gained: int
    files_lost: int
    jobs_closed: int


def restored(state: TableState, proposal: ProposeRestore) -> Restored:
    """Return what the restore would change if it were committed to this state."""
    resolved = proposal.resolve(state)
    replaced: tuple[int, ...] = ()
    after = state
    if isinstance(resolved, RestoreVersion):
        after = apply(state, resolved, state.version + 1)
        replaced = tuple(chain.from_iterable(partitions for partitions, _ in resolved.regions))
    rows_before, rows_after = table_rows(state), table_rows(after)
    lost, gained = state.referenced().keys(), after.referenced().keys()
    return Restored(
        rows_before.rows,
        rows_after.rows,
        exact=not rows_before.error_rows and not rows_after.error_rows,
        partitions=len(replaced),
        files_gained=len(gained - lost),
        files_lost=len(lost - gained),
        jobs_closed=len(state.jobs) - len(after.jobs),
    )


def key_type(schema: Schema) -> pa.DataType:
    """Return the type of a key: a struct of its fields. In a shortened bound the last fields are null."""
    return pa.struct([pa.field(f.name, f.type) for f in schema.row_key])


def file_rows(state: TableState, table_id: str, object_url: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return one row for each reference, partitions in key order, oldest file first.

    ``rows`` are those of the file inside the partition (``exact`` or estimated); ``size_bytes``, ``min_key`` and
    ``max_key`` are the whole file's; ``version`` is the version that added it.
    """
    codec = state.created.codec
    rows: list[dict[str, Any]] = []
    for partition in state.partitions.ids:
        for held in state.held_by(partition):
            file = held.file
            rows.append(
                {
                    "file_id": file.id,
                    "url": object_url(data_name(table_id, file)),
                    "partition": partition,
                    "rows": held.rows,
                    "exact": held.exact,
                    "size_bytes": file.size_bytes,
                    "min_key": codec.decode_values(file.min_key),
                    "max_key": codec.decode_values(file.max_key),
                    "run": held.run,
                    "version": state.files[file.id].added,
                }
            )
    return rows


def files_table(
    state: TableState, table_id: str, object_url: Callable[[str], str], ranges: Sequence[EncodedRange]
) -> pa.Table:
    """Return the rows of :func:`file_rows` for the references that the ranges reach, as Arrow, one for each range of
    keys.

    The live rows of the file in the ranges have keys from ``live_min`` to ``live_max``; ``live_min_inside`` and
    ``live_max_inside`` say whether the bound is inclusive, and null is no bound. ``whole``: the live rows of all ranges
    are all rows of the file.
    """
    key = key_type(state.created)
    schema = pa.schema(
        [
            ("file_id", pa.string()),
            ("url", pa.string()),
            ("partition", pa.int64()),
            ("rows", pa.int64()),
            ("exact", pa.bool_()),
            ("size_bytes", pa.int64()),
            ("min_key", key),
            ("max_key", key),
            ("run", pa.string()),
            ("version", pa.int64()),
            ("live_min", key),
            ("live_min_inside", pa.bool_()),
            ("live_max", key),
            ("live_max_inside", pa.bool_()),
            ("whole", pa.bool_()),
        ]
    )
    known = {(row["partition"], row["file_id"]): row for row in file_rows(state, table_id, object_url)}
    asked = plan(state, ranges)
    _, overlapping = divided(asked)
    for query in overlapping.partitions:
        if not all(map(asked.shown.shows_all, query.files)):
            raise Code.FILTER_INVALID(
                f"partition {query.partition} has files with rows that the table's filter may hide, so they are not "
                "the table's rows alone: read the rows with to_arrow, sql, to_duckdb or register",
                partition=query.partition,
            )
        raise Code.MERGE_MODE_MISMATCH(
            f"partition {query.partition} has {len(query.files)} files whose rows are merged by {state.merge}, so no "
            "file holds the rows of the table: run `lakebed compact --strategy full` first, or read the rows with "
            "to_arrow, sql, to_duckdb or register",
            partition=query.partition,
        )
    whole = {live.file.id: live.whole for live in live_files(asked)}
    rows = [
        known[partition.partition, file.id] | _key_bounds(keys, state.created) | {"whole": whole[file.id]}
        for partition in asked.partitions
        for file in partition.files
        for keys in partition.ranges
        if file.reaches(keys)
    ]
    return _report_table(rows, schema)


def _key_bounds(keys: EncodedRange, schema: Schema) -> dict[str, Any]:
    codec = schema.codec
    after = codec.decode_bound(keys.min).after, keys.max is not None and codec.decode_bound(keys.max).after
    return {
        "live_min": codec.decode_values(keys.min) if keys.min else None,
        "live_min_inside": not after[0],
        "live_max": None if keys.max is None else codec.decode_values(keys.max),
        "live_max_inside": after[1],
    }


def partition_rows(state: TableState) -> list[dict[str, Any]]:
    """Return one row for each partition in key order; ``min`` is inclusive, ``max`` exclusive, null where there is no
    bound.

    ``rows`` are those of its files, before any merge: where rows are merged, the partition may have fewer. ``bytes``
    counts each file in proportion to its rows inside the partition. A shortened bound shows the fields that
    it has. ``parents`` are the partitions, by id, that it was made of by a split, a join or a restore.
    """
    codec = state.created.codec
    rows: list[dict[str, Any]] = []
    sums = partition_sums(state)
    for position, partition in enumerate(state.partitions.ids):
        keys = state.partitions.range_at(position)
        held = sums.get(partition, PartitionSums(partition, 0, exact=True, size_bytes=0, files=0, runs=0))
        rows.append(
            {
                "partition": partition,
                "min": codec.decode_values(keys.min) if keys.min else None,
                "max": codec.decode_values(keys.max) if keys.max is not None else None,
                "rows": held.rows,
                "exact": held.exact,
                "bytes": held.size_bytes,
                "files": held.files,
                "runs": held.runs,
                "parents": list(state.partitions.parents.get(partition, ())),
            }
        )
    return rows


def partitions_table(state: TableState) -> pa.Table:
    """Return the rows of :func:`partition_rows` as Arrow."""
    key = key_type(state.created)
    schema = pa.schema(
        [
            ("partition", pa.int64()),
            ("min", key),
            ("max", key),
            ("rows", pa.int64()),
            ("exact", pa.bool_()),
            ("bytes", pa.int64()),
            ("files", pa.int64()),
            ("runs", pa.int64()),
            ("parents", pa.list_(pa.int64())),
        ]
    )
    return _report_table(partition_rows(state), schema)


def _report_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return the rows as Arrow; keys are structs."""
    columns = [_report_column([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _report_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == UUID:
        # Arrow makes no array of these from Python's values.
        return pa.array([None if one is None else one.bytes for one in values], UUID.storage_type).cast(UUID)
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    members = [
        _report_column([None if one is None else one.get(field.name) for one in values], field.type) for field in kind
    ]
    nulls = pa.array([one is None for one in values], pa.bool_())
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)
