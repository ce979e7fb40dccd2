"""The page of one table: its key space, sizes over time, schema, settings, switches, history and tags.

Rule: for principals that may read all rows; switches and settings are for admins, by forms of this service. Each
``Shown…`` is one row of a list on the page, made from the state of the table: no data file is read. Templates only
print these values, so a test of a page's content needs no HTML. Keys are text, and hex digits in links. Errors:
AccessError, NotFoundError; UsageError for keys that no link has. Source: docs/pages.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from litestar import Response, post
from litestar.di import NamedDependency
from litestar.params import FromQuery

from lakebed.errors import Code
from lakebed.model import settings
from lakebed.model.checks import shown
from lakebed.model.files import PartitionFile
from lakebed.model.keys import EncodedRange, KeyCodec
from lakebed.model.operations import OPERATIONS
from lakebed.model.schema import Schema
from lakebed.model.settings import Described
from lakebed.model.state.sums import UnreferencedFiles, unreferenced_files
from lakebed.model.state.table_state import TableState
from lakebed.model.type_names import name_of
from lakebed.read.drawing.key_space import Colour, KeyCell, KeySpace, Scale, Share, layout, part_of
from lakebed.read.inspect.history import HistoryRow
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.service.status import OperationStatus, TableStatus
from lakebed.server.web.access import AnyRequest, FormBody, PathText, ThePrincipal, TheService, TheTables
from lakebed.server.web.pages import charts, rendering
from lakebed.server.web.pages.lineage import Lineage, lineage_of
from lakebed.server.web.pages.page_memory import PageMemory, SizeAt
from lakebed.server.web.pages.table_health import UNREAD, Health, health_of
from lakebed.server.web.request_authentication import check_form
from lakebed.table.table import Table


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
    """A setting and its value; ``own`` is the one that the table has set itself, None if it takes the instance's.

    ``text`` is the value with its unit for people, ``own_text`` as it can be typed.
    """

    setting: Described
    value: Any
    own: Any
    text: str
    own_text: str


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


def fields_of(schema: Schema) -> tuple[ShownField, ...]:
    """Return the fields in their order."""
    keys = dict.fromkeys(schema.row_key_names, "row key") | {one.name: "sort key" for one in schema.sort_key}
    return tuple(
        ShownField(one.name, name_of(one.returned_type), keys.get(one.name, ""), one.nullable, one.expression)
        for one in schema.fields
    )


def settings_of(in_force: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[ShownSetting, ...]:
    """Return every setting."""
    return tuple(
        ShownSetting(
            one,
            in_force[one.name],
            own.get(one.name),
            one.shown(in_force[one.name]),
            one.typed(own[one.name]) if one.name in own else "",
        )
        for one in settings.describe()
    )


def key_text(codec: KeyCodec, bound: bytes) -> str:
    """Return a key, or a bound that has some of its fields, as text."""
    return rendering.key(codec.decode_values(bound))


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


HISTORY_ROWS = 12

TICKS = 5

WAIT_S = 0.1
"""For the replay of earlier versions."""


@dataclass(frozen=True, slots=True)
class ShownKeySpace:
    """A part of the key space, from ``first`` up to ``last`` by the positions of partitions. Of a single one also its
    ``files``, and the ``parents`` that it was made of.
    """

    share: Share
    colour: Colour
    scale: Scale
    whole: ShownCell
    is_part: bool
    wider: tuple[str | None, str | None]
    groups: tuple[ShownCell, ...]
    cells: tuple[ShownCell, ...]
    ticks: tuple[str, ...]
    files: tuple[ShownFile, ...]
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShownPublication:
    """The version that other engines read, how many versions it is behind, and why the latest is not published."""

    version: int
    behind: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TablePage:
    """What the page shows."""

    name: str
    id: str
    size: SizeAt
    online: bool
    health: Health
    files_max: int
    unreferenced: UnreferencedFiles
    publication: ShownPublication | None
    jobs: int
    requests: int
    merge: str
    key_space: ShownKeySpace
    sizes: tuple[SizeAt, ...]
    charts: tuple[charts.LineChart, ...]
    fields: tuple[ShownField, ...]
    settings: tuple[ShownSetting, ...]
    operations: tuple[OperationStatus, ...]
    paused: tuple[str, ...]
    history: tuple[HistoryRow, ...]
    tags: Mapping[str, int]
    lineage: Lineage


def range_of(low: str | None, high: str | None) -> EncodedRange:
    """Return the range between two keys in hex digits, as links have them. Raises UsageError for others."""
    try:
        keys = EncodedRange(bytes.fromhex(low or ""), None if high is None else bytes.fromhex(high))
    except ValueError as error:
        raise Code.ARGUMENT_INVALID("from and to: must be keys in hex digits, as the links of the page have") from error
    if keys.empty:
        raise Code.KEY_RANGE_INVALID("from must be below to; follow the links of the picture")
    return keys


def shown_key_space(
    state: TableState, space: KeySpace, keys: EncodedRange, share: Share, colour: Colour
) -> ShownKeySpace:
    """Return the part of the key space that has these keys."""
    part = part_of(space, keys)
    icicle = layout(space, part, share, colour)
    codec = state.created.codec
    cells = tuple(shown_cell(space, codec, one) for one in icicle.cells)
    margin = max(1, len(part))
    wider = range(max(0, part.start - margin), min(len(space.partitions), part.stop + margin))
    low, high = space.partitions.range_at(wider.start).min, space.partitions.range_at(wider.stop - 1).max
    files: tuple[ShownFile, ...] = ()
    parents: tuple[int, ...] = ()
    if len(part) == 1:
        partition = space.partitions.ids[part.start]
        files = files_of(state, partition, space.partitions.range_at(part.start))
        parents = state.partitions.parents.get(partition, ())
    return ShownKeySpace(
        share=share,
        colour=colour,
        scale=icicle.scale,
        whole=shown_cell(space, codec, icicle.whole),
        is_part=len(part) < len(space.partitions),
        wider=(low.hex() or None, None if high is None else high.hex()),
        groups=tuple(shown_cell(space, codec, one) for one in icicle.groups),
        cells=cells,
        ticks=_ticks(cells),
        files=files,
        parents=parents,
    )


def _ticks(cells: tuple[ShownCell, ...]) -> tuple[str, ...]:
    """Return the least keys of the cells at evenly spaced places, from the left edge to the right one.

    A key stands once: the places of a wide cell after its first are empty.
    """
    found: list[str] = []
    for number in range(TICKS):
        at = 1000 * number / TICKS
        low = next(one.low for one in reversed(cells) if one.cell.x <= at) or "start"
        found.append("" if low in found else low)
    return tuple(found)


def _publication_of(status: TableStatus) -> ShownPublication | None:
    """Return what other engines read of a table; None if it is not published."""
    if status.published is None:
        return None
    return ShownPublication(status.published, status.published_lag or 0, status.publication_error)


def page_of(
    table: Table,
    service: Service,
    memory: PageMemory,
    principal: Principal,
    *,
    keys: EncodedRange,
    share: Share,
    colour: Colour,
) -> TablePage:
    """Return the page of a table for a principal, with the part of its key space that has these keys."""
    state = table.state()
    space = memory.key_space(state)
    instance, status = service.instance, service.status().table(table.name)
    size = SizeAt(
        version=state.version,
        at=table.log.last_modified_or_epoch(state.version),
        rows=int(space.rows.sum()),
        size_bytes=int(space.size_bytes.sum()),
        files=int(space.files.sum()),
        partitions=len(space.partitions),
    )
    sizes = memory.sizes(table).upto(size, WAIT_S)
    return TablePage(
        name=table.name,
        id=table.id,
        size=size,
        online=instance.is_online(table.name),
        health=UNREAD if status is None else health_of(status),
        files_max=int(space.files.max()),
        unreferenced=unreferenced_files(state),
        publication=None if status is None else _publication_of(status),
        jobs=len(state.jobs),
        requests=len(state.open_requests),
        merge=str(state.merge),
        key_space=shown_key_space(state, space, keys, share, colour),
        sizes=tuple(sizes),
        charts=_charts(sizes),
        fields=fields_of(state.created),
        settings=settings_of(table.settings(), state.settings),
        operations=() if status is None else status.operations,
        paused=tuple(sorted(instance.paused(table.name))),
        history=tuple(table.history_rows(HISTORY_ROWS)),
        tags=dict(sorted(state.tags.items())),
        lineage=lineage_of(service, principal, table, status, memory.copies(table)),
    )


def _charts(sizes: list[SizeAt]) -> tuple[charts.LineChart, ...]:
    lines = (
        charts.line("Rows", "", [(one.at, one.rows) for one in sizes]),
        charts.line("Stored", "bytes", [(one.at, one.size_bytes) for one in sizes]),
        charts.line("Files a partition", "mean", [(one.at, one.files / one.partitions) for one in sizes]),
    )
    return tuple(line for line in lines if line is not None)


@rendering.page("/tables/{name:str}")
def table_page(
    *,
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    memory: NamedDependency[PageMemory],
    principal: ThePrincipal,
    name: PathText,
    share: FromQuery[Share] = "rows",
    colour: FromQuery[Colour] = "files",
) -> Response[bytes]:
    """One table, or a part of its key space: ``from`` and ``to`` are keys in hex digits."""
    name = name.removesuffix(".json")
    principal.require_all_rows(name)
    keys = range_of(request.query_params.get("from"), request.query_params.get("to"))
    table = tables.table(principal, Permission.READ, name)
    found = page_of(table, service, memory, principal, keys=keys, share=share, colour=colour)
    can_edit = principal.permission(name) is Permission.ADMIN
    operations = tuple(OPERATIONS.values())
    return rendering.answer(request, "table.html", found, principal, can_edit=can_edit, all_operations=operations)


# -- forms, for admins of the table ------------------------------------------------------------------------------------


@post("/tables/{name:str}/settings", sync_to_thread=True, include_in_schema=False)
def change_settings(
    request: AnyRequest, tables: TheTables, principal: ThePrincipal, name: PathText, data: FormBody
) -> Response[bytes]:
    """Set what differs from the values that the table has of its own; an empty value takes the instance's again."""
    check_form(request)
    table = tables.table(principal, Permission.ADMIN, name)
    own = table.state().settings
    given = {setting: text.strip() for setting, text in data.items()}
    wanted = settings.validate({setting: text or None for setting, text in given.items()})
    changes = {setting: value for setting, value in wanted.items() if value != own.get(setting)}
    if changes:
        table.set(**changes)
    return rendering.see(rendering.table_link(name) + "#settings")


@post("/tables/{name:str}/switch", sync_to_thread=True, include_in_schema=False)
def switch(
    request: AnyRequest, service: TheService, principal: ThePrincipal, name: PathText, data: FormBody
) -> Response[bytes]:
    """Pause or resume operations, or take the table offline or back."""
    check_form(request)
    principal.require(Permission.ADMIN, name)
    _switch(service, name, data.get("action", ""), data.get("operation", ""))
    return rendering.see(rendering.table_link(name) + "#maintenance")


def _switch(service: Service, name: str, action: str, operation: str) -> None:
    instance = service.instance
    match action:
        case "pause":
            instance.pause(name, operation)
        case "resume":
            instance.resume(name, operation)
        case "online" | "offline":
            instance.set_online(name, action == "online")
        case _:
            raise Code.ARGUMENT_INVALID(f"action = {shown(action)}: is one of pause, resume, online, offline")
