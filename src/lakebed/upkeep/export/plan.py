"""Plans an export: divides rows among files. Pure: no I/O.

A :class:`Cell` is a part of one partition: a key range, and the files that may have rows in it. Cells are in key order,
and so are the parts made of them. Each part becomes one file, so the files of an export are in key order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.model.files import DataFile
from lakebed.model.key_summaries import Summary, even_cuts, merged_rank
from lakebed.model.keys import EncodedRange
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import TableState
from lakebed.read.rows.plan import QueryPlan, is_merged

FORMATS = ("parquet", "csv", "json")
"""The formats of an export, which are also the suffixes of file names."""

PART_BYTES_MIN = 32 * 1024 * 1024
"""Files are not made smaller than this to use idle cores."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Rows of one partition: their number and stored bytes; ``exact`` if the number of rows is exact.

    Rows that have yet to be merged are counted as stored.
    """

    keys: EncodedRange
    files: tuple[DataFile, ...]
    rows: int
    size_bytes: int
    exact: bool
    whole: bool
    """Whether it is the whole partition and whole files; otherwise rows and bytes are the partition's until they are
    divided."""


def cells(state: TableState, planned: QueryPlan) -> tuple[Cell, ...]:
    """Return the cells of a read plan over that state, in key order; each row counts once."""
    sums = partition_sums(state)
    found: list[Cell] = []
    for query in planned.partitions:
        held = sums[query.partition]
        position = state.partitions.position_of(query.partition)
        assert position is not None
        partition, files_held = state.partitions.range_at(position), len(state.files_of(query.partition))
        for keys in query.ranges:
            files = tuple(file for file in query.files if file.reaches(keys))
            if files:
                whole = keys == partition and len(files) == files_held
                exact = held.exact and whole and not planned.shown.sql and not is_merged(planned.merge, files)
                found.append(Cell(keys, files, held.rows, held.size_bytes, exact, whole))
    return tuple(found)


def parts_wanted(held: Sequence[Cell], file_bytes: int, cores: int) -> int:
    """Return the number of parts: one per ``file_bytes``, or one per core if there are enough rows."""
    size_bytes = sum(cell.size_bytes for cell in held)
    return max(1, -(-size_bytes // file_bytes), min(cores, size_bytes // PART_BYTES_MIN))


def unweighed(held: Sequence[Cell], count: int) -> dict[str, DataFile]:
    """Return the files, by id, whose summaries are needed to divide cells: those of partial and of large partitions."""
    share = _rows_each(held, count)
    return {file.id: file for cell in held if not cell.whole or cell.rows > share for file in cell.files}


def share_out(held: Sequence[Cell], summaries: Mapping[str, Summary], count: int) -> tuple[tuple[Cell, ...], ...]:
    """Divide the cells into at most ``count`` parts of about even rows, in key order."""
    weighed = [cell if cell.whole else _weighed(cell, summaries) for cell in held]
    share = _rows_each(weighed, count)
    pieces = [piece for cell in weighed for piece in _divided_cell(cell, summaries, share)]
    parts: dict[int, list[Cell]] = {}
    passed = 0
    for piece in pieces:
        # Assigned by the middle of its rows, so that a piece that ends slightly late does not begin another part.
        parts.setdefault(min(count - 1, (passed + piece.rows // 2) // share), []).append(piece)
        passed += piece.rows
    return tuple(tuple(parts[index]) for index in sorted(parts))


def _rows_each(held: Sequence[Cell], count: int) -> int:
    return max(1, -(-sum(cell.rows for cell in held) // count))


def _weighed(cell: Cell, summaries: Mapping[str, Summary]) -> Cell:
    low, high = (_rank(cell, summaries, bound) for bound in (cell.keys.min, cell.keys.max))
    rows = high - low
    return replace(cell, rows=rows, size_bytes=cell.size_bytes * rows // max(1, cell.rows))


def _rank(cell: Cell, summaries: Mapping[str, Summary], bound: bytes | None) -> int:
    if bound is None:
        return sum(file.rows for file in cell.files)
    return merged_rank([summaries[file.id] for file in cell.files], bound)


def _divided_cell(cell: Cell, summaries: Mapping[str, Summary], share: int) -> list[Cell]:
    count = -(-cell.rows // share)
    if count < 2 or any(file.id not in summaries for file in cell.files):
        return [cell]
    edges = even_cuts([summaries[file.id] for file in cell.files], count, cell.keys.min, cell.keys.max)
    bounds = [cell.keys.min, *edges, cell.keys.max]
    made = []
    for index, low in enumerate(bounds[:-1]):
        assert low is not None
        keys = EncodedRange(low, bounds[index + 1])
        files = tuple(file for file in cell.files if file.reaches(keys))
        rows = cell.rows * (index + 1) // (len(edges) + 1) - cell.rows * index // (len(edges) + 1)
        size_bytes = cell.size_bytes * rows // max(1, cell.rows)
        made.append(replace(cell, keys=keys, files=files, rows=rows, size_bytes=size_bytes, whole=False))
    return [piece for piece in made if piece.files]
