"""A table as a plain dictionary: every row in order of arrival, and the rows that a reader must see.

It shares no code with Lakebed. Rows are dictionaries; a key is the pair ``(g, n)``. Values are kept by the id of their
field, so that a dropped field does not reappear in a new one of the same name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

Row = dict[str, Any]
Key = tuple[str, int]
Kind = Literal["whole", "partial", "delete"]
Mode = Literal["keep all", "latest", "latest by sort key", "first", "aggregate"]

KEY_NAMES = ("g", "n")
SORT_NAME = "s"


@dataclass(frozen=True)
class Event:
    """A row that arrived, with ``values`` by field id for the fields that it has."""

    kind: Kind
    sort: int
    values: dict[int, Any]


@dataclass
class Oracle:
    """The rows of a table with a mode. ``fields`` has the ids of the value fields by name."""

    mode: Mode
    fields: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 2})
    functions: dict[int, str] = field(default_factory=lambda: {1: "sum", 2: "last"})
    events: dict[Key, list[Event]] = field(default_factory=lambda: defaultdict(list))
    shows: Callable[[Key], bool] | None = None
    next_field: int = 3

    # -- what happens -------------------------------------------------------------------------------------------

    def write(self, rows: Iterable[Row], kind: Kind = "whole") -> None:
        """Add rows in this order. A partial row has only the values that it sets."""
        for row in rows:
            values = {self.fields[name]: row[name] for name in row if name in self.fields}
            self.events[row["g"], row["n"]].append(Event(kind, row.get(SORT_NAME, 0), values))

    def remove(self, going: Callable[[Key], bool]) -> None:
        """Remove all rows of keys."""
        for key in [key for key in self.events if going(key)]:
            del self.events[key]

    def rewrite(self, change: Callable[[Key, Row], Row]) -> None:
        """Change the values of every row; a partial row sets the same fields as before."""
        for key, events in self.events.items():
            for place, event in enumerate(events):
                row = {name: event.values.get(number) for name, number in self.fields.items()}
                row = change(key, row)
                values = event.values | {self.fields[name]: value for name, value in row.items()}
                if event.kind == "partial":
                    values = {number: values[number] for number in event.values}
                events[place] = Event(event.kind, event.sort, values)

    def remembered(self) -> dict[Key, list[Event]]:
        """Return the current rows, to restore them later."""
        return deepcopy(dict(self.events))

    def rewrite_away(self, going: Callable[[Key], bool]) -> None:
        """Remove all stored rows of keys. Deletes go as well, so a later row with a smaller sort key is visible."""
        for key in [key for key in self.events if going(key)]:
            del self.events[key]

    def restore(self, events: dict[Key, list[Event]]) -> None:
        """Restore earlier rows."""
        self.events = defaultdict(list, deepcopy(events))

    def add_field(self, name: str, function: str) -> None:
        """Add a field, null in existing rows."""
        self.fields[name], self.functions[self.next_field] = self.next_field, function
        self.next_field += 1

    def drop_field(self, name: str) -> None:
        """Remove the values of a field for good."""
        number = self.fields.pop(name)
        for events in self.events.values():
            for event in events:
                event.values.pop(number, None)

    def rename_field(self, name: str, new: str) -> None:
        """Rename a field; its values stay."""
        self.fields = {new if one == name else one: number for one, number in self.fields.items()}

    # -- what a reader sees -------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Return the visible rows in key order; rows with equal keys and sort keys are in a fixed order."""
        found = [row for key in sorted(self.events) if self.shows is None or self.shows(key) for row in self.of(key)]
        return sorted(found, key=in_order)

    def of(self, key: Key) -> list[Row]:
        """Return the rows of a key, without the filter."""
        events = self.events.get(key, [])
        match self.mode:
            case "keep all":
                left = events
            case "first":
                left = events[:1]
            case "latest":
                left = self._latest(events)
            case "latest by sort key":
                left = self._latest(sorted(events, key=lambda event: event.sort))
            case "aggregate":
                left = self._aggregated(events)
        return [self._row(key, event) for event in left]

    def _row(self, key: Key, event: Event) -> Row:
        values = {name: event.values.get(number) for name, number in self.fields.items()}
        return {"g": key[0], "n": key[1], SORT_NAME: event.sort, **values}

    def _latest(self, events: list[Event]) -> list[Event]:
        held: Event | None = None
        for event in events:
            match event.kind:
                case "whole":
                    held = event
                case "delete":
                    held = None
                case "partial":
                    held = Event("whole", event.sort, ({} if held is None else held.values) | event.values)
        return [] if held is None else [held]

    def _aggregated(self, events: list[Event]) -> list[Event]:
        by_sort: dict[int, Event] = {}
        for event in events:
            held = by_sort.get(event.sort)
            if held is None:
                by_sort[event.sort] = event
                continue
            values = dict(held.values)
            for number, value in event.values.items():
                known = values.get(number)
                if value is not None:
                    both = known is not None and self.functions.get(number) == "sum"
                    values[number] = known + value if both else value
            by_sort[event.sort] = Event("whole", event.sort, values)
        return list(by_sort.values())


def in_order(row: Row) -> tuple[Any, ...]:
    """Return the sort order: the key, the sort key and then all values, nulls first."""
    others = [row[name] for name in sorted(row) if name not in (*KEY_NAMES, SORT_NAME)]
    return (row["g"], row["n"], row[SORT_NAME], [(value is not None, str(value)) for value in others])
