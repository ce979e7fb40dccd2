"""Rows by chance: each as likely as any other, none twice, wherever it lies.

Rows of a table stand in an order, partition by partition and in each partition file by file, and the state says how
many stand where: so it is enough to draw numbers. Each leads to a partition, a file and a place in it, and the page of
that place is read. Where a count is an estimate, after a split and before the next compaction, the file is asked how
many it has there.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.read.counting import Cuts
from lakebed.state.sums import partition_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.clock import Chance
    from lakebed.model.files import DataFile
    from lakebed.model.keys import EncodedRange
    from lakebed.read.reader import Reader
    from lakebed.state.table_state import TableState


def sample(state: TableState, rows: int, columns: Sequence[str], reader: Reader, chance: Chance) -> pa.Table | None:
    """So many rows of the state, in key order; None if there are no more. Raises as :class:`Reader`'s ``get``."""
    schema = state.created
    cuts = Cuts(state, reader)
    partitions = list(partition_sums(state).values())
    partitions.sort(key=lambda one: state.partitions.position_of(one.partition) or 0)
    held = [one.rows if one.exact else sum(_rows_held(state, one.partition, cuts)) for one in partitions]
    if rows >= sum(held):
        return None
    wanted = schema.arrow_of(columns)
    needed = tuple(dict.fromkeys((*columns, *schema.sort_names)))
    found = [wanted.empty_table()]
    for index, positions in _shared_out(sorted(chance.sample(range(sum(held)), rows)), held):
        placed = _placed(state, partitions[index].partition, positions, cuts)
        read = pa.concat_tables([reader.take(file, schema, needed, inside) for file, inside in placed])
        ordered = read.sort_by([(name, "ascending") for name in schema.sort_names])
        found.append(pa.Table.from_arrays([ordered.column(name) for name in columns], schema=wanted))
    return pa.concat_tables(found)


def _rows_held(state: TableState, partition: int, cuts: Cuts) -> list[int]:
    """How many rows each file has in the partition, exactly."""
    held = state.held_by(partition)
    return [one.rows if one.exact else len(cuts.rows(one.file, _range(state, partition))[0]) for one in held]


def _range(state: TableState, partition: int) -> EncodedRange:
    position = state.partitions.position_of(partition)
    assert position is not None, "the partition is one of the state's"
    return state.partitions.range_at(position)


def _placed(
    state: TableState, partition: int, positions: Sequence[int], cuts: Cuts
) -> Iterator[tuple[DataFile, list[int]]]:
    """The files that have any of these rows of a partition, and the rows' places in the file, ascending."""
    for index, inside in _shared_out(positions, _rows_held(state, partition, cuts)):
        file = state.held_by(partition)[index].file
        there, _ = cuts.rows(file, _range(state, partition))
        yield file, [there[place] for place in inside]


def _shared_out(numbers: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Ascending numbers below the sum of the counts: the index of each count that has any, and these from its begin."""
    begins = [0, *accumulate(counts)]

    def located() -> Iterable[tuple[int, int]]:
        index = 0
        for number in numbers:
            while number >= begins[index + 1]:
                index += 1
            yield index, number - begins[index]

    for index, several in groupby(located(), key=lambda pair: pair[0]):
        yield index, [number for _, number in several]
