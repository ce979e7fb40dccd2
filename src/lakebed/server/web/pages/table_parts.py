"""What the page of a table shows beside the picture of its key space, as values.

Each ``Shown…`` is one row of a list on the page, made from the state of the table: no data file is read. Templates only
print these values, so a test of a page's content needs no HTML. Keys are text, and hex digits in links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakebed.model import settings
from lakebed.model.files import PartitionFile
from lakebed.model.keys import EncodedRange, KeyCodec
from lakebed.model.schema import Schema
from lakebed.model.settings import Described
from lakebed.model.state.table_state import TableState
from lakebed.model.type_names import name_of
from lakebed.read.drawing.key_space import KeyCell, KeySpace
from lakebed.server.web.pages import texts


@dataclass(frozen=True, slots=True)
class ShownField:
    """A field of the schema."""

    name: str
    type: str
    role: str
    nullable: bool
    expression: str


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting and its value; ``own`` is the one that the table has set itself, None if it takes the instance's."""

    setting: Described
    value: Any
    own: Any


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A cell with the keys at its ends as text, and as hex digits for links; None: no bound."""

    cell: KeyCell
    low: str
    high: str
    low_hex: str | None
    high_hex: str | None
    newest_at: datetime | None
    partition: int | None


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file inside one partition. ``x`` and ``width`` place its keys among the bounds of all files of the partition,
    in thousandths; the bounds are evenly spaced.
    """

    id: str
    rows: int
    exact: bool
    size_bytes: int
    low: str
    high: str
    run: str
    added: int
    written_at: datetime
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class ShownView:
    """What a table is fed from; ``source`` is None if that table was dropped."""

    source: str | None
    select: str
    version: int


def fields_of(schema: Schema) -> tuple[ShownField, ...]:
    """Return the fields in their order."""
    keys = dict.fromkeys(schema.row_key_names, "row key") | {one.name: "sort key" for one in schema.sort_key}
    return tuple(
        ShownField(one.name, name_of(one.returned_type), keys.get(one.name, ""), one.nullable, one.expression)
        for one in schema.fields
    )


def settings_of(in_force: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[ShownSetting, ...]:
    """Return every setting."""
    return tuple(ShownSetting(one, in_force[one.name], own.get(one.name)) for one in settings.describe())


def key_text(codec: KeyCodec, bound: bytes) -> str:
    """Return a key, or a bound that has some of its fields, as text."""
    return texts.key(codec.decode_values(bound))


def shown_cell(space: KeySpace, codec: KeyCodec, cell: KeyCell) -> ShownCell:
    """Return the cell with its keys."""
    low = space.partitions.range_at(cell.first).min
    high = space.partitions.range_at(cell.last - 1).max
    return ShownCell(
        cell=cell,
        low=key_text(codec, low) if low else "",
        high="" if high is None else key_text(codec, high),
        low_hex=low.hex() if low else None,
        high_hex=None if high is None else high.hex(),
        newest_at=datetime.fromtimestamp(cell.newest_us / 1e6, UTC) if cell.newest_us else None,
        partition=space.partitions.ids[cell.first] if cell.partitions == 1 else None,
    )


def files_of(state: TableState, partition: int, keys: EncodedRange) -> tuple[ShownFile, ...]:
    """Return the files of a partition, in the order of arrival, with their keys inside of it."""
    held = state.held_by(partition)
    bounds = sorted({bound for one in held for bound in _clipped(one, keys)})
    places = {bound: index for index, bound in enumerate(bounds)}
    step = 1000 / max(1, len(bounds))
    codec = state.created.codec
    found = []
    for one in held:
        low, high = (places[bound] for bound in _clipped(one, keys))
        file = one.file
        found.append(
            ShownFile(
                id=file.id,
                rows=one.rows,
                exact=one.exact,
                size_bytes=file.size_bytes,
                low=key_text(codec, file.min_key),
                high=key_text(codec, file.max_key),
                run=one.run,
                added=state.files[file.id].added,
                written_at=datetime.fromtimestamp(file.last_modified_us / 1e6, UTC),
                x=round(low * step, 2),
                width=round((high - low + 1) * step, 2),
            )
        )
    return tuple(found)


def _clipped(one: PartitionFile, keys: EncodedRange) -> tuple[bytes, bytes]:
    high = one.file.max_key if keys.max is None else min(one.file.max_key, keys.max)
    return max(one.file.min_key, keys.min), high
