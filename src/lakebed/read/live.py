"""Which rows of which files count: what any engine has to know that reads data files by itself. Pure.

A file may hold rows that were merged away, or removed, in one partition and count in another. So whoever hands out
files hands out key ranges with them; a file by itself will do only where all of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakebed.model.files import DataFile
from lakebed.model.keys import EncodedRange, iter_ranges, successor
from lakebed.read.plan import QueryPlan
from lakebed.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file, and the keys whose rows in it count: sorted disjoint ranges."""

    file: DataFile
    ranges: tuple[EncodedRange, ...]

    @property
    def whole(self) -> bool:
        """Whether every row of the file counts."""
        every = EncodedRange(self.file.min_key, successor(self.file.max_key))
        return any(keys.covers(every) for keys in self.ranges)


def live_files(plan: QueryPlan) -> tuple[LiveFile, ...]:
    """The files of a plan, each once, with the keys of the plan in it; in the order in which the plan meets them."""
    found: dict[str, tuple[DataFile, list[EncodedRange]]] = {}
    for partition in plan.partitions:
        for file in partition.files:
            reached = (keys for keys in partition.ranges if file.reaches(keys))
            found.setdefault(file.id, (file, []))[1].extend(reached)
    return tuple(LiveFile(file, tuple(iter_ranges(ranges))) for file, ranges in found.values())


def over_partitions(plan: QueryPlan, state: TableState) -> QueryPlan:
    """The plan over all keys of its partitions: for a reader who asks the rows himself, and need only know which count.

    Requires a plan of this state.
    """
    whole = []
    for partition in plan.partitions:
        position = state.partitions.position_of(partition.partition)
        assert position is not None
        whole.append(replace(partition, ranges=(state.partitions.range_at(position),)))
    return replace(plan, partitions=tuple(whole))
