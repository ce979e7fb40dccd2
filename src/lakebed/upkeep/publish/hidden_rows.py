"""Finds which rows of which data files do not count in a version of a table.

A row counts if a reader of Lakebed sees it as it is stored. The others are *hidden*:

* rows in partitions that do not refer to the file, after a removal or a compaction there. They lie in a few ranges,
  whose ends are found by reading one page of keys each;
* rows that a merge leaves out (:mod:`lakebed.upkeep.publish.superseded`), and deletes;
* rows that the table's filter hides, or its age-off by the cut of that version.

Rows that a merge computes are stored nowhere: a version with such rows is refused, with the partitions to be compacted.

:func:`live_files` finds all anew, or what differs from an earlier version, so that a commit costs its own size. Rows
that were hidden stay hidden while files are added, merged, or moved between partitions, and while the cut rises. Where
rows were rewritten or restored they are found anew, and everywhere after the filter was changed.

Core types: :class:`LiveRows`, :class:`LiveFiles`. Errors: RejectedError for a version that is refused; DamagedError,
NotFoundError, NotRetainedError and StorageError of files and of the log.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from pyroaring import BitMap64
from rpds import HashTrieMap

from lakebed.errors import Code, NotRetainedError
from lakebed.files.parquet.page_decoder import RowSlice, read_columns
from lakebed.model.arrays import booleans, of_integers
from lakebed.model.keys import EncodedRange, iter_ranges, successor
from lakebed.model.row_kinds import KIND, RowKind, with_hidden
from lakebed.model.state.transactions import AddFiles, Replace, RestoreVersion
from lakebed.model.wording import count_text
from lakebed.read.rows.plan import successive
from lakebed.upkeep.publish.superseded import batch_of, competing_rows, key_fields, key_rows, superseded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebed.files.parquet.pages import PagedFile
    from lakebed.log.checkpoint import Head
    from lakebed.model.arrays import Integers
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.reader import Reader
    from lakebed.read.snapshot.versions import TableVersions
    from lakebed.upkeep.publish.superseded import KeyRows

BATCH_ROWS = 128 * 1024
"""Rows of a file of which some columns are read at once."""

PARTITIONS_NAMED = 5
"""Partitions that an error names."""


class LiveRows(Struct, frozen=True, eq=False):
    """The rows of a data file that count: all but those at the positions ``hidden``, which begin at 0."""

    file: DataFile
    hidden: BitMap64


class LiveFiles(Struct, frozen=True, eq=False):
    """The files that a version refers to, by id; all rows of a file may be hidden.

    ``changed`` has the ids of those that are new, or have other hidden rows, since the version from which these were
    found; all if there was none. ``gone`` has those that only that version refers to.
    """

    head: Head[TableState]
    files: HashTrieMap[str, LiveRows]
    changed: frozenset[str]
    gone: frozenset[str] = frozenset()

    @classmethod
    def published(cls, head: Head[TableState], hidden: Mapping[str, BitMap64]) -> LiveFiles:
        """Return those of a version whose hidden rows are stored elsewhere: by id of the file, if it has any."""
        live = {name: LiveRows(file, hidden.get(name, BitMap64())) for name, file in head.state.referenced().items()}
        return cls(head, HashTrieMap(live), frozenset())


def live_files(table: TableVersions, head: Head[TableState], known: LiveFiles | None = None) -> LiveFiles:
    """Return the files of a version with their hidden rows; from those of an earlier version, if these are ``known``.

    Raises:
        RejectedError: rows of the version are computed by a merge, and are in no file.
        NotRetainedError: a file was deleted.
        DamagedError, NotFoundError, StorageError: a file or an entry is damaged, missing or cannot be read.
    """
    if known is not None and _stay_hidden(known.head, head):
        try:
            changes = _Changes.between(table, known.head, head)
        except NotRetainedError:
            pass  # An entry in between was truncated, so all is found anew.
        else:
            return _Finder(table.reader, head, known, _Moves.between(known.head.state, changes)).found()
    found = _Finder(table.reader, head, None, _Moves.all_of(head.state)).found()
    if known is None:
        return found
    before = known.files
    changed = [name for name, live in found.files.items() if name not in before or before[name].hidden != live.hidden]
    return replace(found, changed=frozenset(changed), gone=frozenset(set(before) - set(found.files)))


def _stay_hidden(known: Head[TableState], head: Head[TableState]) -> bool:
    """Return whether rows that were hidden stay hidden in a later version, unless they are rewritten or restored."""
    before, after = known.state, head.state
    is_same = before.filter_version == after.filter_version and before.merge_version == after.merge_version
    return is_same and known.version <= head.version


class _Changes(Struct, frozen=True):
    """The files that were added with new rows, and the key ranges in which rows were rewritten or restored.

    ``after`` is the state at the end, made of the one at the beginning: only then it knows what is different.
    """

    after: TableState
    added: tuple[DataFile, ...]
    rewritten: tuple[EncodedRange, ...]

    @classmethod
    def between(cls, table: TableVersions, known: Head[TableState], head: Head[TableState]) -> _Changes:
        """Return those of the entries after one version up to another."""
        added: list[DataFile] = []
        rewritten: list[EncodedRange] = []
        state = known.state
        for _, steps in table.log.past.after(known, head.version):
            for transaction, after in steps:
                match transaction:
                    case AddFiles():
                        added += transaction.files
                    case Replace(changes_rows=True):
                        rewritten += _ranges(state, {partition for _, partition in transaction.drop})
                    case RestoreVersion():
                        rewritten += _ranges(after, range(state.partitions.next_id, after.partitions.next_id))
                    case _:
                        pass
                state = after
        return cls(state, tuple(added), tuple(iter_ranges(rewritten)))


def _ranges(state: TableState, partitions: Iterable[int]) -> Iterator[EncodedRange]:
    for partition in partitions:
        position = state.partitions.position_of(partition)
        assert position is not None, "a transaction names partitions that the state before or after it has"
        yield state.partitions.range_at(position)


class _Moves(Struct, frozen=True):
    """How the partitions of a version, by their positions, differ from those of an earlier one.

    ``anew`` are those whose hidden rows have to be found anew. ``joined`` has the files, by id, that joined one of the
    others: true if they may have rows that are newer than those of the files before them. ``files`` are all that joined
    or left any partition, by id.
    """

    anew: set[int]
    joined: dict[int, dict[str, bool]]
    files: dict[str, DataFile]

    @classmethod
    def all_of(cls, state: TableState) -> _Moves:
        """Return a difference from nothing."""
        return cls(set(range(len(state.partitions))), {}, state.referenced())

    @classmethod
    def between(cls, before: TableState, changes: _Changes) -> _Moves:
        """Return the difference of two versions."""
        moves = cls(set(), {}, {})
        for position in _changed_partitions(before, changes):
            moves._compare(position, before, changes)
        return moves

    def _compare(self, position: int, before: TableState, changes: _Changes) -> None:
        after = changes.after
        keys, now = after.partitions.range_at(position), after.files_of(after.partitions.ids[position])
        names = [file.id for file in now]
        parts = []
        for old in before.partitions.overlapping(keys):
            part = keys.intersect(before.partitions.range_at(old))
            parts.append((part, [f for f in before.files_of(before.partitions.ids[old]) if f.reaches(part)]))
        known = {file.id for _, files in parts for file in files}
        is_same = not any(_meet(keys, one) for one in changes.rewritten)
        for part, files in parts:
            had = [file.id for file in files]
            self.files.update((file.id, file) for file in files if file.id not in names)
            self.files.update((file.id, file) for file in now if file.id not in had and file.reaches(part))
            # The files that both have are the same, and in the same order.
            kept = [file.id for file in now if file.id in known and file.reaches(part)]
            is_same = is_same and kept == [name for name in had if name in names]
        if not is_same:
            self.anew.add(position)
            return
        merged_away = any(file.id not in names and file.reaches(keys) for file in changes.added)
        added = {file.id for file in changes.added}
        if joined := {name: merged_away or name in added for name in names if name not in known}:
            self.joined[position] = joined


def _changed_partitions(before: TableState, changes: _Changes) -> Iterator[int]:
    """Return the positions of the partitions that are new, have other files, or rows that were rewritten."""
    after = changes.after
    ids = set(after.references.changed_since(before.references))
    if after.partitions is not before.partitions:
        ids.update(one for one in after.partitions.ids if before.partitions.position_of(one) is None)
    positions = {position for one in ids if (position := after.partitions.position_of(one)) is not None}
    yield from positions.union(*map(after.partitions.overlapping, changes.rewritten))


def _meet(keys: EncodedRange, other: EncodedRange) -> bool:
    return not keys.intersect(other).empty


class _Finder:
    """Finds the hidden rows of one version. Bitmaps of a known version are copied before they are changed."""

    def __init__(self, reader: Reader, head: Head[TableState], known: LiveFiles | None, moves: _Moves) -> None:
        self._reader = reader
        self._head = head
        self._state = head.state
        self._known: HashTrieMap[str, LiveRows] = HashTrieMap() if known is None else known.files
        self._before = None if known is None else known.head.state
        self._moves = moves
        self._hidden: dict[str, BitMap64] = {}
        self._files: dict[str, DataFile] = {}
        self._partial: dict[str, BitMap64] = {}
        self._unmerged: set[int] = set()

    def found(self) -> LiveFiles:
        """Return the files. Raises as :func:`live_files`."""
        moved = {name: file for name, file in self._moves.files.items() if self._is_referenced(name)}
        again = self._show_anew()
        self._hide_outside(moved)
        self._hide_own_rows(again | {name: file for name, file in moved.items() if name not in self._known})
        if not self._state.merge.keeps_all:
            for position in self._moves.anew:
                self._merge(position, None)
            for position, joined in self._moves.joined.items():
                self._merge(position, joined)
            self._refuse_computed_rows()
        changed = {
            name: LiveRows(self._files[name], hidden)
            for name, hidden in self._hidden.items()
            if name not in self._known or self._known[name].hidden != hidden
        }
        gone = [name for name in self._moves.files if name in self._known and name not in moved]
        files = self._known.update(changed)
        for name in gone:
            files = files.discard(name)
        return LiveFiles(self._head, files, frozenset(changed), frozenset(gone))

    def _is_referenced(self, name: str) -> bool:
        committed = self._state.files.get(name)
        return committed is not None and committed.dropped is None

    def _hidden_of(self, file: DataFile) -> BitMap64:
        """Return the bitmap of a file, to be changed."""
        hidden = self._hidden.get(file.id)
        if hidden is None:
            known = self._known.get(file.id)
            hidden = self._hidden[file.id] = BitMap64() if known is None else known.hidden.copy()
            self._files[file.id] = file
        return hidden

    def _files_at(self, position: int) -> tuple[DataFile, ...]:
        return self._state.files_of(self._state.partitions.ids[position])

    # -- rows outside of the partitions that refer to their file -------------------------------------------------------

    def _hide_outside(self, files: Mapping[str, DataFile]) -> None:
        """Hide the rows of these files in partitions that do not refer to them."""
        partitions = self._state.partitions
        bounds = [EncodedRange(file.min_key, successor(file.max_key)) for file in files.values()]
        reached = {position for keys in iter_ranges(bounds) for position in partitions.overlapping(keys)}
        live: dict[str, list[EncodedRange]] = {name: [] for name in files}
        for position in sorted(reached):
            for file in self._files_at(position):
                if file.id in live:
                    live[file.id].append(partitions.range_at(position))
        for name, ranges in live.items():
            hidden, end = self._hidden_of(files[name]), 0
            for keys in iter_ranges(ranges):
                rows = self._rows_within(files[name], keys)
                hidden.add_range(end, rows.start)
                end = rows.stop
            hidden.add_range(end, files[name].rows)

    def _rows_within(self, file: DataFile, keys: EncodedRange) -> range:
        """Return the positions of the rows of a file with keys in a range."""
        schema = self._state.created
        low = 0 if keys.min <= file.min_key else self._reader.rank(file, schema, keys.min)
        is_last = keys.max is None or keys.max > file.max_key
        return range(low, file.rows if is_last else self._reader.rank(file, schema, keys.max or b""))

    # -- rows that are hidden by themselves: deletes, and what the filter hides ----------------------------------------

    def _show_anew(self) -> dict[str, DataFile]:
        """Show all rows of the partitions that are found anew, and return their files."""
        again: dict[str, DataFile] = {}
        for position in self._moves.anew:
            for file in self._files_at(position):
                again[file.id] = file
                rows = self._rows_within(file, self._state.partitions.range_at(position))
                self._hidden_of(file).remove_range(rows.start, rows.stop)
        return again

    def _hide_own_rows(self, fresh: Mapping[str, DataFile]) -> None:
        """Hide the deletes, and the rows that the filter hides, of ``fresh`` files, in which they are not known."""
        for file in fresh.values():
            self._hide_deletes(file)
        state = self._state
        if state.visibility.sql:
            has_risen = self._before is not None and self._before.age_off_cut_us != state.age_off_cut_us
            self._filter((state.referenced() if has_risen else fresh).values())

    def _hide_deletes(self, file: DataFile) -> None:
        """Hide the deletes of a file, and note its partial rows."""
        if not file.markers:
            return
        partial = self._partial[file.id] = BitMap64()
        for start, rows in self._batches(file, [with_hidden(self._state.created).by_name[KIND]]):
            kinds = rows.column(KIND).fill_null(int(RowKind.WHOLE)).to_numpy(zero_copy_only=False)
            add(self._hidden_of(file), start + np.flatnonzero(kinds == RowKind.DELETE))
            add(partial, start + np.flatnonzero(kinds == RowKind.PARTIAL))

    def _filter(self, files: Iterable[DataFile]) -> None:
        """Hide the rows of files that the filter hides."""
        from lakebed.engine.predicate import check_where, is_true

        shown, schema = self._state.visibility, self._state.created
        where = check_where(shown.sql, schema.arrow)
        fields = [schema.by_name[name] for name in where.columns]
        for file in files:
            if shown.shows_all(file):
                continue
            hidden = self._hidden_of(file)
            if shown.hides_all(file):
                hidden.add_range(0, file.rows)
                continue
            for start, rows in self._batches(file, fields):
                # A predicate may fail for a row that no reader evaluates it for.
                left = BitMap64()
                left.add_range(start, start + rows.num_rows)
                positions = numbers(left - hidden)
                passes = is_true(rows.take(of_integers(positions - start)), where)
                add(hidden, positions[~booleans(passes.fill_null(fill_value=False))])

    def _batches(self, file: DataFile, fields: Sequence[Field]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return all rows of a file with some columns, in batches, each with the position of its first row."""
        with self._reader.attribute_errors([file]):
            paged = self._reader.paged(file, self._state.created)
            start = 0
            for position, group in enumerate(paged.footer.groups):
                step = BATCH_ROWS if paged.footer.gives_pages(fields) else group.rows
                for first in range(0, group.rows, step):
                    rows = range(first, min(first + step, group.rows))
                    columns = read_columns([RowSlice(paged, position, group, rows)], fields)
                    yield start + first, batch_of(columns, fields)
                start += group.rows

    # -- rows that a merge leaves out ----------------------------------------------------------------------------------

    def _merge(self, position: int, joined: Mapping[str, bool] | None) -> None:
        """Hide the rows of a partition that a merge leaves out; those that files ``joined`` bring, or all for None."""
        mode, files = self._state.merge, self._files_at(position)
        keys_inside = self._state.partitions.range_at(position)
        for keys, part in successive(files, keys_inside) if len(files) > 1 else ():
            new = [index for index, file in enumerate(part) if joined is None or file.id in joined]
            if len(part) < 2 or not new:
                continue
            with self._reader.attribute_errors(part):
                paged = [self._reader.paged(file, self._state.created) for file in part]
                for rows in self._competing(part, paged, keys, new, joined):
                    lost = superseded(rows, mode, self._state.created)
                    if mode.kept is None and lost.any():
                        self._unmerged.add(position)
                        return
                    for index in np.unique(rows.files[lost]).tolist():
                        add(self._hidden_of(part[index]), rows.positions[lost & (rows.files == index)])

    def _competing(
        self,
        part: Sequence[DataFile],
        paged: Sequence[PagedFile],
        keys: EncodedRange,
        new: Sequence[int],
        joined: Mapping[str, bool] | None,
    ) -> Iterator[KeyRows]:
        """Return rows of overlapping files whose keys the files at ``new`` have, or of all keys if that costs less."""
        mode, limits = self._state.merge, self._reader.limits
        fields = key_fields(mode, self._state.created)
        rows_new = sum(part[index].rows for index in new)
        is_dense = rows_new * limits.merged_rows_a_key >= sum(file.rows for file in part)
        if joined is None or mode.kept is None or is_dense:
            yield from key_rows(paged, keys, fields, limits)
            return
        for index in new:
            others = range(len(part))
            if not joined[part[index].id] and not mode.by_sort_key:
                # Its rows were in other files before, and the files before it have lost theirs to these.
                others = range(index, len(part)) if mode.kept else range(index + 1)
            yield from competing_rows(paged, index, others, keys=keys, fields=fields, limits=limits)

    def _refuse_computed_rows(self) -> None:
        """Raise RejectedError if a row of the version is in no file."""
        state = self._state
        for name, partial in self._partial.items():
            file, left = self._files[name], partial - self._hidden[name]
            for position in state.partitions.overlapping(EncodedRange(file.min_key, successor(file.max_key))):
                if left and file in self._files_at(position):
                    rows = self._rows_within(file, state.partitions.range_at(position))
                    if left.range_cardinality(rows.start, rows.stop):
                        self._unmerged.add(position)
        if not self._unmerged:
            return
        count = len(self._unmerged)
        named = [_partition_text(state, position) for position in sorted(self._unmerged)[:PARTITIONS_NAMED]]
        more = "" if count <= PARTITIONS_NAMED else f" and {count - PARTITIONS_NAMED} more"
        raise Code.ROWS_NOT_MERGED(
            f"version {self._head.version} has rows that are computed from those of several files, which other engines "
            f"cannot do, in {count_text(count, 'partition')}: {', '.join(named)}{more}. Compact the table "
            "(lakebed compact --strategy full), and publish the version after that",
            version=self._head.version,
            partitions=count,
        )


def _partition_text(state: TableState, position: int) -> str:
    """Return the id of a partition, and its bounds as values of the first key fields."""
    keys, codec = state.partitions.range_at(position), state.created.codec
    low, high = (
        ", ".join(str(value) for value in codec.decode_values(bound).values() if value is not None) if bound else end
        for bound, end in ((keys.min, "the first key"), (keys.max, "the last"))
    )
    return f"{state.partitions.ids[position]} (from {low} to {high})"


def add(hidden: BitMap64, positions: Integers) -> None:
    """Add positions to a bitmap."""
    if len(positions):
        # Only of arrays of this type does the library copy all values at once.
        values = array("Q")
        values.frombytes(np.ascontiguousarray(positions, np.uint64).tobytes())
        hidden.update(values)


def numbers(positions: BitMap64) -> Integers:
    """Return the positions of a bitmap, ascending."""
    return np.frombuffer(positions.to_array(), np.int64)
