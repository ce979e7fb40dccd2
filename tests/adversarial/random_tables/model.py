"""The expected content of a table: a list of rows, and the effect of each step on them. Uses no code of Lakebed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.adversarial.random_tables.kinds import NAN, Content, Kind

Row = dict[int, Content]
"""Contents by the number of their column, which does not change when the column is renamed."""


@dataclass(frozen=True)
class Column:
    """A column; ``role`` is row key, sort key or value."""

    number: int
    name: str
    kind: Kind
    role: str = "value"
    nullable: bool = True
    function: str = "last"
    """The function by which an aggregating table merges it."""


@dataclass
class Model:
    """The columns and the visible rows of a table, in no order."""

    mode: str
    columns: list[Column]
    rows: list[Row] = field(default_factory=list)
    shows: Callable[[Row], bool] = lambda _: True

    @property
    def row_key(self) -> list[Column]:
        return [column for column in self.columns if column.role == "row key"]

    @property
    def keys(self) -> list[Column]:
        return [column for column in self.columns if column.role != "value"]

    @property
    def values(self) -> list[Column]:
        return [column for column in self.columns if column.role == "value"]

    def named(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    # -- order --------------------------------------------------------------------------------------------------

    def place(self, row: Row, columns: Sequence[Column] | None = None) -> tuple[int, ...]:
        """Return the rank of a row by its key."""
        return tuple(column.kind.rank(row[column.number]) for column in columns or self.keys)

    def sorted(self) -> list[Row]:
        """Return the rows in key order."""
        return sorted(self.rows, key=self.place)

    # -- steps --------------------------------------------------------------------------------------------------

    def write(self, rows: Iterable[Row], *, partial: bool = False) -> None:
        """Add rows in this order; a partial row has only the values that it sets."""
        for row in rows:
            self._arrive(row, partial=partial)
        self.rows = [row for row in self.rows if self.shows(row)]

    def _arrive(self, row: Row, *, partial: bool) -> None:
        whole = {column.number: row.get(column.number) for column in self.columns}
        same_key = self.keys if self.mode == "aggregate" else self.row_key
        held = [] if self.mode == "keep all" else [
            one for one in self.rows if self.place(one, same_key) == self.place(row, same_key)
        ]  # fmt: skip
        if not held:
            self.rows.append(whole)
        elif self.mode == "latest":
            held[0].update(row if partial else whole)
        elif self.mode == "newest":
            if self.place(row) >= self.place(held[0]):
                held[0].update(whole)
        elif self.mode == "aggregate":
            for column in self.values:
                held[0][column.number] = _aggregated(column, held[0][column.number], whole[column.number])

    def remove(self, going: Callable[[Row], bool]) -> None:
        """Remove the rows for which ``going`` is true."""
        self.rows = [row for row in self.rows if not going(row)]

    def restored(self, then: Model) -> None:
        """Restore the rows of an earlier version, in the current columns."""
        self.rows = [{column.number: row.get(column.number) for column in self.columns} for row in deepcopy(then.rows)]
        self.rows = [row for row in self.rows if self.shows(row)]

    def copy(self) -> Model:
        """Return a copy of the model."""
        return replace(self, columns=list(self.columns), rows=deepcopy(self.rows))

    # -- Arrow --------------------------------------------------------------------------------------------------

    def table(self, rows: Sequence[Row], columns: Sequence[Column] | None = None) -> pa.Table:
        """Return rows as Arrow data."""
        arrays = {c.name: c.kind.array([row.get(c.number) for row in rows]) for c in columns or self.columns}
        fields = [pa.field(c.name, arrays[c.name].type, c.nullable) for c in columns or self.columns]
        return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))

    def read(self, found: pa.Table, names: Sequence[str] | None = None) -> list[Row]:
        """Return the rows of Arrow data that a reader returned."""
        columns = [self.named(name) for name in names or [column.name for column in self.columns]]
        assert found.column_names == [column.name for column in columns], found.column_names
        contents = [column.kind.contents_of(found.column(i)) for i, column in enumerate(columns)]
        return [dict(zip([c.number for c in columns], row, strict=True)) for row in zip(*contents, strict=True)]

    def show(self, row: Row) -> dict[str, Any]:
        """Return a row in readable form."""
        return {column.name: row.get(column.number) for column in self.columns if column.number in row}


def _aggregated(column: Column, one: Content, other: Content) -> Content:
    if one is None or other is None:
        return other if one is None else one
    match column.function:
        case "first":
            return one
        case "last":
            return other
        case extreme:
            numbers = [content for content in (one, other) if content is not NAN] or [NAN]
            return (min if extreme == "min" else max)(numbers, key=column.kind.rank)


def texts(rows: Iterable[Row]) -> list[str]:
    """Return rows as text, which is comparable, unlike NaN and lists."""
    return [repr(sorted(row.items())) for row in rows]


def same(model: Model, found: list[Row], wanted: list[Row], *, ordered: bool = False) -> None:
    """Assert the same rows, in key order if that is guaranteed."""
    given, needed = texts(found), texts(wanted)
    missing = [
        model.show(row) for row, text in zip(wanted, needed, strict=True) if needed.count(text) > given.count(text)
    ]
    extra = [model.show(row) for row, text in zip(found, given, strict=True) if given.count(text) > needed.count(text)]
    assert not missing, f"missing {missing[:5]}, extra {extra[:5]}"
    assert not extra, f"extra {extra[:5]}"
    if ordered:
        places = [model.place(row) for row in found]
        assert places == sorted(places), "not in key order"
