"""Check the rows of one data file against the table state. No I/O: the caller adds the batches in order.

Checks that depend on the order of rows end at the first row out of order: ranks are meaningless after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.files.parquet.ranks import RankNotes
from lakebed.model.field_ids import stored_id
from lakebed.model.files import decode_bounds
from lakebed.model.keys import KeyCodec, comparable
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.validity import invalid, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.key_summaries import Summary
    from lakebed.model.keys import EncodedRange
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema

WRITE_AGAIN = (
    "reads with a predicate on {field} may miss rows of it, others do not. Export the rows of the table, and import "
    "them into a new one"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a file. ``what`` is read after the file's name; ``remedy`` is "" for the usual one."""

    kind: str
    what: str
    remedy: str = ""


class RowsCheck:
    """The check of one file. ``slices`` are its references and the key ranges of their partitions.

    By a ``mode`` that merges rows, a file has at most one row for each key that they are merged by. Call
    :meth:`columns` first, then :meth:`add` for each batch.
    """

    def __init__(
        self,
        file: DataFile,
        slices: Sequence[tuple[EncodedRange, PartitionFile]],
        schema: Schema,
        summary: Summary | None,
        mode: MergeMode,
    ) -> None:
        self.rows = 0
        self._markers = 0
        merged_by = mode.merge_key(schema)
        self._merge_codec = KeyCodec(tuple(schema.by_name[name] for name in merged_by)) if merged_by else None
        self._last_merged: bytes | None = None
        self._file = file
        self._slices = slices
        self._schema = schema
        self._summary = summary
        self._keys = (*schema.row_key, *schema.sort_key)
        self._codec = KeyCodec(self._keys)
        self._bounded: list[tuple[Field, KeyCodec, EncodedRange]] = []
        self._names: dict[int, str] = {}
        self._last: bytes | None = None
        self._is_ordered = True
        self._problems: dict[tuple[str, str], Problem] = {}
        bounds = {bound for keys, _ in slices for bound in (keys.min, keys.max) if bound is not None}
        cuts = sorted(bounds.union(summary.keys if summary is not None else ()))
        self._ranks = RankNotes(schema.codec, cuts, rows_estimate=file.rows)

    def columns(self, stored: pa.Schema) -> None:
        """Check the columns of the file. Raises DamagedError if what the table has as bounds of fields is malformed."""
        later, bounds = self._keys[1:], decode_bounds(self._file.bounds)
        self._bounded = [(field, KeyCodec((field,)), held) for field, held in zip(later, bounds, strict=False)]
        self._names = {number: column.name for column in stored if (number := stored_id(column)) is not None}
        missing = [field.name for field in self._keys if field.id not in self._names]
        if missing:
            self._note("columns", "", f"has no column with the field id of key field {missing[0]}")

    def add(self, batch: pa.RecordBatch) -> None:
        """Check the next rows. Raises ArrowException if they are malformed."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            bad = invalid(column)
            if bad is not None:
                row = pc.index(bad, value=True).as_py()
                why = reason(column, row)
                if name in (self._names.get(field.id) for field in self._keys):
                    self._is_ordered = False
                self._note("invalid_value", name, f"holds {why} in column {name}, first in row {self.rows + row:,}")
        if KIND in batch.schema.names:
            kinds = batch.column(KIND)
            self._markers += pc.sum(pc.not_equal(kinds, pa.scalar(RowKind.WHOLE, kinds.type))).as_py() or 0
        if batch.num_rows and all(field.id in self._names for field in self._keys):
            self._add_keys(batch)
        self.rows += batch.num_rows

    def so_far(self) -> Iterator[Problem]:
        """Return the problems of the rows that were added."""
        yield from self._problems.values()

    def problems(self) -> Iterator[Problem]:
        """Return all problems, after all rows were added."""
        file = self._file
        yield from self.so_far()
        if self.rows != file.rows:
            what = f"has {self.rows:,} rows, where the table has it with {file.rows:,}"
            yield Problem("row_count", what)
        if self._markers != file.markers:
            what = f"has {self._markers:,} deletes and partial rows, where the table has it with {file.markers:,}"
            yield Problem("markers", what)
        if not self._is_ordered or not self._ranks.rows or self._ranks.rows != self.rows:
            return
        for which, found, expected in (
            ("least", self._ranks.min_key, file.min_key),
            ("greatest", self._ranks.max_key, file.max_key),
        ):
            if found != expected:
                yield Problem(
                    "bounds", f"has {self._key(found)} as its {which} key, where the table has {self._key(expected)}"
                )
        yield from self._check_ranks()

    def _check_ranks(self) -> Iterator[Problem]:
        ranks = self._ranks.summary()
        for keys, held in self._slices:
            low, exact_low = ranks.rank(keys.min)
            high, exact_high = (ranks.rows, True) if keys.max is None else ranks.rank(keys.max)
            assert exact_low, "the ends of slices are cuts of the notes"
            assert exact_high, "the ends of slices are cuts of the notes"
            if held.exact and held.rows != high - low:
                yield Problem(
                    "reference_rows",
                    f"has {high - low:,} rows with keys of a partition that counts {held.rows:,} of it as exact",
                    "no row is lost, and counts of the table are wrong by that; report this",
                )
        summary = self._summary
        if summary is None:
            return
        if (summary.rows, summary.max_key) != (ranks.rows, ranks.max_key):
            yield Problem(
                "summary_false", f"is of {summary.rows:,} rows up to {self._key(summary.max_key)}: not its own"
            )
            return
        false = sum(ranks.rank(key) != (rank, True) for key, rank in zip(summary.keys, summary.ranks, strict=True))
        if false:
            yield Problem("summary_false", f"has {false:,} of its {len(summary.keys):,} ranks wrong")

    def _add_keys(self, batch: pa.RecordBatch) -> None:
        columns = []
        for field in self._keys:
            column = batch.column(self._names[field.id])
            if column.null_count:
                row = pc.index(column.is_null(), value=True).as_py()
                self._is_ordered = False
                self._note(
                    "null_key", field.name, f"has a null in key field {field.name}, first in row {self.rows + row:,}"
                )
                return
            # Parquet has no seconds: they are read as milliseconds.
            columns.append(column if column.type == field.type else column.cast(field.type))
        keys = pa.Table.from_arrays(columns, names=[field.name for field in self._keys])
        row = self._first_out_of_order(keys) if self._is_ordered else None
        if row is not None:
            self._is_ordered = False
            self._note("order", "", f"is not in order: row {row:,} has a lesser key than the one before it")
        if self._merge_codec is not None:
            self._check_doubled(keys, self._merge_codec)
        self._check_field_bounds(keys)
        row_keys = keys.select(list(self._schema.row_key_names))
        if self._is_ordered:
            self._ranks.add(row_keys)
        else:
            self._check_bounds(row_keys)

    def _first_out_of_order(self, keys: pa.Table) -> int | None:
        """Return the number of the first row whose key is less than that of the row before; None if there is none."""
        first, last = self._codec.encode_row(keys, 0), self._codec.encode_row(keys, keys.num_rows - 1)
        fallen = self._last is not None and first < self._last
        self._last = last
        if fallen:
            return self.rows
        falls, same = None, None
        for column in keys.columns:
            values = comparable(column.chunk(0))
            less = pc.less(values[1:], values[:-1])
            falls = less if same is None else pc.or_(falls, pc.and_(same, less))
            equal = pc.equal(values[1:], values[:-1])
            same = equal if same is None else pc.and_(same, equal)
            if not pc.any(same).as_py():
                break
        row = pc.index(falls, value=True).as_py()
        return None if row < 0 else self.rows + row + 1

    def _check_doubled(self, keys: pa.Table, merged_by: KeyCodec) -> None:
        """Look for neighbouring rows that should have been merged before the file was written."""
        columns = [comparable(keys.column(field.name).chunk(0)) for field in merged_by.fields]
        doubled = reduce(pc.and_, [pc.equal(values[1:], values[:-1]) for values in columns])
        row = pc.index(doubled, value=True).as_py() + 1
        if self._last_merged == merged_by.encode_row(keys, 0):
            row = 0
        elif not row:
            row = None
        self._last_merged = merged_by.encode_row(keys, keys.num_rows - 1)
        if row is not None:
            names = ", ".join(field.name for field in merged_by.fields)
            self._note("doubled_key", "", f"has more than one row with equal {names}, first in row {self.rows + row:,}")

    def _check_field_bounds(self, keys: pa.Table) -> None:
        """Compare the values of each field after the first with the bounds by which reads leave the file out."""
        for field, codec, held in self._bounded:
            extremes = pc.min_max(codec.encode_columns(keys.select([field.name]))).as_py().values()
            if not all(map(held.contains, extremes)):
                what = f"has values of {field.name} outside of the bounds that the table has of that field"
                self._note("field_bounds", field.name, what, WRITE_AGAIN.format(field=field.name))

    def _check_bounds(self, row_keys: pa.Table) -> None:
        """Compare every key with the bounds, because the rows are not in order."""
        extremes = pc.min_max(self._schema.codec.encode_columns(row_keys)).as_py()
        if extremes["min"] < self._file.min_key or extremes["max"] > self._file.max_key:
            self._note("bounds", "", "has keys outside of the bounds that the table has of it")

    def _key(self, encoded: bytes) -> str:
        try:
            values = self._schema.codec.decode_values(encoded)
        except (UnicodeDecodeError, ValueError):
            return encoded.hex()
        return str(tuple(values.values()))

    def _note(self, kind: str, which: str, what: str, remedy: str = "") -> None:
        """Keep the first problem of each kind and field."""
        self._problems.setdefault((kind, which), Problem(kind, what, remedy))
