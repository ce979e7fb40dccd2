"""Plans a rewrite: the rows of each file that may change, as :class:`FileRewrite`. Pure: no I/O.

A rewrite replaces files one by one, never several by one: the new file has its old place in the order of arrival, and
the files of a run remain a run. The unit is a file together with neighbouring partitions that refer to it, so that a
file over a thousand partitions is read once. Partitions outside the ranges keep their reference to the old file.

A file is left out if its key bounds exclude the ranges, or the keys for which the predicate can be true. So is a file
that was committed after the rewrite began, by its sequence number; a file made by compaction has the least sequence
number of its inputs.

Core types: :class:`RowChange`, :class:`RewriteScope`, :class:`FileRewrite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.keys import ALL_KEYS, EncodedRange, iter_ranges
from lakebed.model.state.visibility import unfiltered
from lakebed.read.rows.plan import plan as plan_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.state.table_state import Job, TableState
    from lakebed.read.rows.key_ranges import KeySet


@dataclass(frozen=True, slots=True)
class RowChange:
    """The change of rows with a key in one of the ranges, which are disjoint and in key order.

    Rows for which ``delete_where`` is true are deleted. Other rows for which ``where`` is true (None: all) take the
    values of the expressions in ``changes``, pairs of a column and SQL. Both are evaluated on the old row.
    """

    ranges: tuple[EncodedRange, ...] = (ALL_KEYS,)
    delete_where: str | None = None
    where: str | None = None
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def concerned(self) -> str | None:
        """Return a predicate that is true for every row that may change; None: all may."""
        conditions = [self.delete_where] if self.delete_where is not None else []
        if self.changes:
            if self.where is None:
                return None
            conditions.append(self.where)
        # A line break ends a comment in the predicate.
        return conditions[0] if len(conditions) == 1 else " OR ".join(f"({one}\n)" for one in conditions)


@dataclass(frozen=True, slots=True)
class RewriteScope:
    """The rows that a rewrite may change: those with a key in a range and in ``keys``, of files committed before it
    began.

    ``ranges`` are disjoint and in key order. ``before`` is the next free sequence number when it began.
    """

    ranges: tuple[EncodedRange, ...]
    keys: KeySet | None
    before: int


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """The rows of a file in neighbouring partitions; partitions in between do not refer to it.

    ``keys`` spans the partitions, ``slices`` are the ranges of those that refer to the file, neighbours joined, and
    ``cuts`` the boundaries inside them. ``rows`` are those in the slices.
    """

    file: DataFile
    partitions: tuple[int, ...]
    keys: EncodedRange
    slices: tuple[EncodedRange, ...]
    cuts: tuple[bytes, ...]
    rows: int
    exact: bool

    @property
    def task_count(self) -> int:
        """One task reads and writes one file."""
        return 1


def plan(state: TableState, scope: RewriteScope, claimed: Collection[Job] = ()) -> list[FileRewrite]:
    """Return the rewrites that the ``claimed`` jobs do not cover yet, in key order."""
    ours: dict[str, list[EncodedRange]] = {}
    for job in claimed:
        for name in job.inputs:
            ours.setdefault(name, []).append(job.keys)
    reached: dict[str, list[int]] = {}
    # Hidden rows are rewritten too: they are in the files until a compaction drops them.
    for query in plan_read(unfiltered(state), scope.ranges, scope.keys).partitions:
        position = state.partitions.position_of(query.partition)
        assert position is not None
        keys = state.partitions.range_at(position)
        for file in query.files:
            is_ours = any(claim.covers(keys) for claim in ours.get(file.id, ()))
            if not is_ours and state.files[file.id].sequence_lo < scope.before:
                reached.setdefault(file.id, []).append(position)
    return [one for name, positions in reached.items() for one in _grouped(state, name, positions)]


def _grouped(state: TableState, name: str, positions: Sequence[int]) -> Iterator[FileRewrite]:
    """Group the ascending positions of partitions: between two of a group, no partition refers to the file."""
    group = [positions[0]]
    for position in positions[1:]:
        if any(_file_in_partition(state, between, name) for between in range(group[-1] + 1, position)):
            yield _rewrite(state, name, group)
            group = []
        group.append(position)
    yield _rewrite(state, name, group)


def _rewrite(state: TableState, name: str, group: Sequence[int]) -> FileRewrite:
    ranges = [state.partitions.range_at(position) for position in group]
    references = [
        reference for position in group if (reference := _file_in_partition(state, position, name)) is not None
    ]
    slices = tuple(iter_ranges(ranges))
    return FileRewrite(
        file=references[0].file,
        partitions=tuple(state.partitions.ids[position] for position in group),
        keys=EncodedRange(ranges[0].min, ranges[-1].max),
        slices=slices,
        cuts=tuple(cut for keys in slices for cut in state.partitions.inside(keys)),
        rows=sum(one.rows for one in references),
        exact=all(one.exact for one in references),
    )


def _file_in_partition(state: TableState, position: int, name: str) -> PartitionFile | None:
    partition = state.partitions.ids[position]
    return next((one for one in state.held_by(partition) if one.file.id == name), None)


def is_as_planned(one: FileRewrite, state: TableState) -> bool:
    """Return whether the file still has all rows to read: no partition of the slices has dropped it."""
    positions = (position for keys in one.slices for position in state.partitions.overlapping(keys))
    return all(_file_in_partition(state, position, one.file.id) for position in positions)


def conflicts(one: FileRewrite, jobs: Collection[Job]) -> list[str]:
    """Return the ids of the jobs that hold the file in one of the partitions."""
    return [job.id for job in jobs if one.file.id in job.inputs and not job.keys.intersect(one.keys).empty]
