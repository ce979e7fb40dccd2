"""The changes of one topic, on their way into a table.

Changes are collected until their columns change, some thousands at most. Then the table is created or fitted to them,
and they become a batch. Rows without a schema have the types of the fields of the table; for a field that is new the
type is inferred from all values that were collected.

Core types: :class:`TopicRows`. Source: docs/follow.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from lakebed.errors import Code
from lakebed.upkeep.follow.connect_values import ConnectType, field_type, inferred_type
from lakebed.upkeep.follow.debezium_messages import Change, Effect, Shape
from lakebed.upkeep.follow.row_buffer import ROWS_MAX, UNCHANGED, RowBuffer
from lakebed.upkeep.follow.target import SourceColumns

if TYPE_CHECKING:
    from lakebed.upkeep.follow.target import ChangeTarget


class MessageOrigin(NamedTuple):
    """Where a change came from: the stream, the position, and the message as it came."""

    stream: int
    position: int
    key: bytes | None
    value: bytes | None


Reject = Callable[[str, MessageOrigin], None]
"""Takes the reason of a dead letter, and its message."""


class TopicRows:
    """The changes of a topic. ``make`` creates its table, ``reject`` takes what does not fit."""

    def __init__(
        self,
        topic: str,
        target: ChangeTarget | None,
        make: Callable[[SourceColumns], ChangeTarget],
        reject: Reject,
    ) -> None:
        self.topic = topic
        self.target = target
        self._make = make
        self._reject = reject
        self._shape: Shape | None = None
        self._key: tuple[str, ...] = () if target is None else target.table.schema.row_key_names
        self._key_names = dict.fromkeys(self._key).keys()
        self._changes: list[tuple[Change, MessageOrigin]] = []

    def add(self, change: Change, origin: MessageOrigin) -> None:
        """Add an upsert or a delete."""
        if change.key.keys() != self._key_names and not self._takes_key(change, origin):
            return
        if change.kind is Effect.UPSERT and change.shape is not self._shape:
            self.flush()
            self._shape = change.shape
        self._changes.append((change, origin))
        if len(self._changes) >= ROWS_MAX:
            self.flush()

    def _takes_key(self, change: Change, origin: MessageOrigin) -> bool:
        """Return whether a change has the first key; raises SchemaMismatchError for another one that a schema names."""
        if not self._key:
            self._key = tuple(change.key)
            self._key_names = dict.fromkeys(self._key).keys()
            return True
        text = f"its key has the columns {', '.join(change.key)}, and those of the row key are {', '.join(self._key)}"
        if change.kind is Effect.UPSERT and change.shape is not None:
            raise Code.SOURCE_CHANGE_UNSUPPORTED(
                f"topic {self.topic}, message {origin.position}: {text}. Follow the topic into another table (--table "
                f"{self.topic}=NEW_NAME)",
                source=self.topic,
            )
        self._reject(text, origin)
        return False

    def truncate(self) -> None:
        """Delete all rows."""
        self._changes = []
        if self.target is not None:
            self.target.pending.truncate()

    def flush(self) -> None:
        """Convert the changes, and add them to what is pending for the table."""
        changes, self._changes = self._changes, []
        if not changes:
            return
        types = self._types(changes)
        if self.target is None and any(change.kind is Effect.UPSERT for change, _ in changes):
            self.target = self._make(self._columns(types))
        target = self.target
        if target is None:
            return  # deletes of rows of a table that never had one
        if any(name not in self._key for name in types):
            target.fit(self._columns(types))
        fields = target.table.schema.by_name
        names = [*types]
        # A field that is text takes any value.
        kinds = [
            field_type(fields[name].type) if pa.types.is_string(fields[name].type) and one.name != "string" else one
            for name, one in types.items()
        ]
        buffer = RowBuffer(target, names, kinds, lambda reason, _key, _row, origin: self._reject(reason, origin))
        values = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
        for change, origin in changes:
            if change.kind is Effect.DELETE:
                buffer.delete([change.key.get(name) for name in names], origin)
                continue
            try:
                row = values(change.row)
            except KeyError:
                row = tuple(map(change.row.get, names))
            buffer.add(row, origin)
        buffer.flush()

    def _columns(self, types: Mapping[str, ConnectType]) -> SourceColumns:
        return SourceColumns(self.topic, self._key, {name: one.name for name, one in types.items()})

    def _types(self, changes: list[tuple[Change, MessageOrigin]]) -> dict[str, ConnectType]:
        """Return the type of each column of the changes."""
        if self._shape is not None and any(change.kind is Effect.UPSERT for change, _ in changes):
            return dict(self._shape.types)
        fields = {} if self.target is None else self.target.table.schema.by_name
        found: dict[str, list[Any]] = {name: [] for name in self._key}
        for change, _ in changes:
            for name, value in (change.row or change.key).items():
                if name not in fields:
                    found.setdefault(name, []).append(None if value is UNCHANGED else value)
                else:
                    found.setdefault(name, [])
        types = {
            name: field_type(fields[name].type) if name in fields else inferred_type(found[name]) for name in found
        }
        return {name: one for name, one in types.items() if one is not None}
