"""The online store: a table for each feature view, with the entity's join keys as its row key.

Core type: :class:`LakebedOnlineStore`. A write of features is one commit; a read of entities is one ``get_many``.

Rules:

* The table merges by ``Latest(by="sort_key")``, and its sort key is the time of the event: a row that arrives late
  never replaces a newer one. Of two rows with one time the one that was created later wins in a batch, and the one that
  arrives later otherwise.
* A row has all features of its view. A feature that a write leaves out is null.
* Views without entities, and keys of types that no key field has, are found by Feast's encoding of the entity key.
* Feast applies the TTL of a view when it reads. With ``expire`` rows that exceed it are hidden, and later deleted.

Errors: those of Lakebed; UsageError if a view has changed in a way that its table cannot follow.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from feast.feature_view import DUMMY_ENTITY_ID, DUMMY_ENTITY_VAL
from feast.infra.key_encoding_utils import serialize_entity_key
from feast.infra.online_stores.helpers import compute_table_id
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value

import lakebed
from feast_lakebed.instances import LakebedConfig, instance_of
from feast_lakebed.values import SCALARS, arrow_type, decode, encode, plain
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from feast.repo_config import RepoConfig

    Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]
    Read = tuple[datetime | None, dict[str, Value] | None]

ENTITY_KEY = "_entity_key"
EVENT_AT = "_event_timestamp"
CREATED_AT = "_created_timestamp"
_TIME = pa.timestamp("us", tz="UTC")
_NULL = Value()
# Feast reads a view without entities by this key, and writes by it or by an empty one.
_DUMMY_KEY = EntityKey(join_keys=[DUMMY_ENTITY_ID], entity_values=[Value(string_val=DUMMY_ENTITY_VAL)])


class LakebedOnlineStoreConfig(LakebedConfig):
    """The online store of ``feature_store.yaml``."""

    type: Literal["lakebed", "feast_lakebed.LakebedOnlineStore", "feast_lakebed.online.LakebedOnlineStore"] = (
        "feast_lakebed.LakebedOnlineStore"
    )

    max_staleness_s: float | None = None
    """Accept rows that were the latest this many seconds ago. By default every read asks the store for newer ones,
    which is a request."""

    expire: bool = False
    """Hide rows older than the TTL of their view, and delete them by compaction."""


class LakebedOnlineStore(OnlineStore):
    """Feast's online store in an instance of Lakebed."""

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {}

    @property
    def async_supported(self) -> SupportedAsyncMethods:
        """Both: a call runs in a thread."""
        return SupportedAsyncMethods(read=True, write=True)

    # -- rows ---------------------------------------------------------------------------------------------------

    def online_write_batch(
        self, config: RepoConfig, table: Any, data: list[Row], progress: Callable[[int], Any] | None
    ) -> None:
        """Write rows in one commit: of the features of a view, an entity key, and the times of event and creation."""
        if not data:
            return
        rows = _rows(config, table, data)

        def written(target: Any) -> None:
            # Later rows win among those with one time, so the rows that were created last come last.
            target.write(rows.sort_by([(EVENT_AT, "ascending"), (CREATED_AT, "ascending")]))

        self._with_table(config, table, written, create=True)
        if progress:
            progress(len(data))

    async def online_write_batch_async(
        self, config: RepoConfig, table: Any, data: list[Row], progress: Callable[[int], Any] | None
    ) -> None:
        """As :meth:`online_write_batch`, in a thread."""
        await asyncio.to_thread(self.online_write_batch, config, table, data, progress)

    def online_read(
        self, config: RepoConfig, table: Any, entity_keys: list[EntityKey], requested_features: list[str] | None = None
    ) -> list[Read]:
        """Return the time of the event and the features of each entity, in order; ``(None, None)`` if it has none."""
        fields = _key_fields(table)
        kinds = {one.name: one.dtype.to_value_type() for one in table.features}
        names = list(kinds) if requested_features is None else [one for one in requested_features if one in kinds]
        wanted = [_key_values(config, fields, one) for one in entity_keys]
        keys = list(dict.fromkeys(one for one in wanted if None not in one))
        if not keys:
            return [(None, None)] * len(wanted)

        def read(source: Any) -> pa.Table:
            columns = list(dict.fromkeys([*fields, EVENT_AT, *names]))
            return source.get_many(
                _keys(keys, fields), columns=columns, max_staleness=config.online_store.max_staleness_s
            )

        rows = self._with_table(config, table, read)
        found = zip(*(rows[one].cast(_stored(kind)).to_pylist() for one, kind in fields.items()), strict=True)
        places = {key: place for place, key in enumerate(found)}
        times = [datetime.fromtimestamp(one / 1_000_000, UTC) for one in rows[EVENT_AT].cast(pa.int64()).to_pylist()]
        values = {name: decode(rows[name], kinds[name]) for name in names}
        return [
            (None, None) if (place := places.get(key)) is None
            else (times[place], {name: values[name][place] for name in names})
            for key in wanted
        ]  # fmt: skip

    async def online_read_async(
        self, config: RepoConfig, table: Any, entity_keys: list[EntityKey], requested_features: list[str] | None = None
    ) -> list[Read]:
        """As :meth:`online_read`, in a thread."""
        return await asyncio.to_thread(self.online_read, config, table, entity_keys, requested_features)

    # -- tables -------------------------------------------------------------------------------------------------

    def update(
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[Any],
        tables_to_keep: Sequence[Any],
        entities_to_delete: Sequence[Any],
        entities_to_keep: Sequence[Any],
        partial: bool,
    ) -> None:
        """Make or alter the table of each view that is kept, and drop those of the others.

        Raises UsageError if the type of a feature or of a join key has changed; nothing is lost.
        """
        for view in tables_to_keep:
            self._follow(config, view)
        self.teardown(config, tables_to_delete, ())

    def teardown(self, config: RepoConfig, tables: Sequence[Any], entities: Sequence[Any]) -> None:
        """Drop the tables of the views. A table that is gone already is left out."""
        lake = self._instance(config)
        for view in tables:
            name = _table_name(config, view)
            self._tables.pop(name, None)
            if name in lake.tables():
                lake.drop_table(name)

    def _instance(self, config: RepoConfig) -> Any:
        return instance_of(config.online_store, config.repo_path, create=True)

    def _with_table(self, config: RepoConfig, view: Any, use: Callable[[Any], Any], *, create: bool = False) -> Any:
        """Use the table of a view; if it was dropped since it was opened, the one that has its name now."""
        name = _table_name(config, view)
        if (table := self._tables.get(name)) is not None:
            try:
                return use(table)
            except lakebed.NotFoundError:
                self._tables.pop(name, None)
        try:
            table = self._instance(config).table(name)
        except lakebed.NotFoundError:
            if not create:
                raise
            table = self._create(config, view)
        self._tables[name] = table
        return use(table)

    def _create(self, config: RepoConfig, view: Any) -> Any:
        values = {CREATED_AT: _TIME} | _value_fields(view)
        schema = lakebed.Schema(row_key=_key_fields(view), sort_key={EVENT_AT: _TIME}, values=values)
        return self._instance(config).create_table(
            _table_name(config, view), schema, merge=lakebed.Latest(by="sort_key"), if_not_exists=True
        )

    def _follow(self, config: RepoConfig, view: Any) -> None:
        """Give the table of a view the features that the view has now."""
        name = _table_name(config, view)
        lake = self._instance(config)
        table = lake.table(name) if name in lake.tables() else self._create(config, view)
        there = {one.name: one.type for one in table.schema.arrow}
        keys = {one: there.pop(one, None) for one in table.schema.row_key_names}
        if keys != _key_fields(view):
            raise Code.ARGUMENT_INVALID(
                f"feature view {view.name} has the key {_shown(_key_fields(view))}, but its table {name} has "
                f"{_shown(keys)}; give the view another name, or remove it with `feast apply` first"
            )
        wanted = _value_fields(view)
        for feature, kind in wanted.items():
            if there.get(feature, kind) != kind:
                raise Code.ARGUMENT_INVALID(
                    f"feature {feature} of view {view.name} is now {kind}, but {there[feature]} in its table {name}; "
                    "give the feature another name, or remove it with `feast apply` first"
                )
        changes: list[Any] = [lakebed.AddField(one, kind) for one, kind in wanted.items() if one not in there]
        changes += [lakebed.DropField(one) for one in there if one not in wanted and one not in (EVENT_AT, CREATED_AT)]
        if changes:
            table.alter(*changes)
        if config.online_store.expire and getattr(view, "ttl", None):
            table.alter(lakebed.AgeOff(EVENT_AT, seconds=int(view.ttl.total_seconds())))
        self._tables[name] = table


def _table_name(config: RepoConfig, view: Any) -> str:
    return compute_table_id(config.project, view, config.registry.enable_online_feature_view_versioning)


def _shown(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields.items())


def _key_fields(view: Any) -> dict[str, pa.DataType]:
    """Return the row key of a view's table: its join keys and their types."""
    # Feast has the dummy entity of a view without entities in some of its copies of the view only.
    names = [one for one in getattr(view, "entity_columns", ()) if one.name != DUMMY_ENTITY_ID]
    columns = [(one.name, one.dtype.to_value_type()) for one in names]
    if not columns or any(kind not in SCALARS for _, kind in columns):
        return {ENTITY_KEY: pa.binary()}
    return {name: SCALARS[kind][1] for name, kind in columns}


def _value_fields(view: Any) -> dict[str, pa.DataType]:
    """Return the fields for the features of a view. A feature that is also a join key is in the row key."""
    keys = _key_fields(view)
    return {one.name: arrow_type(one.dtype.to_value_type()) for one in view.features if one.name not in keys}


def _key_values(config: RepoConfig, fields: dict[str, pa.DataType], key: EntityKey) -> tuple[Any, ...]:
    """Return the values of a key, in the order of the fields; None where the entity has none."""
    if ENTITY_KEY in fields:
        return (serialize_entity_key(key if key.join_keys else _DUMMY_KEY, config.entity_key_serialization_version),)
    values = dict(zip(key.join_keys, key.entity_values, strict=True))
    return tuple(None if name not in values else plain(values[name]) for name in fields)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type whose Python values Feast has: whole seconds for times."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _keys(keys: Sequence[tuple[Any, ...]], fields: dict[str, pa.DataType]) -> Any:
    """Return keys for a lookup, as Arrow data, or as tuples if one has another type: the lookup then says which."""
    try:
        columns = zip(*keys, strict=True)
        return pa.table(
            [pa.array(one, _stored(kind)).cast(kind) for one, kind in zip(columns, fields.values(), strict=True)],
            names=list(fields),
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return list(keys)


def _rows(config: RepoConfig, view: Any, data: Sequence[Row]) -> pa.Table:
    """Return the rows of a batch: the key, the times, and a column for each feature of the view."""
    fields = _key_fields(view)
    columns: dict[str, Any] = {}
    keys = zip(*(_key_values(config, fields, key) for key, *_ in data), strict=True)
    for (name, kind), values in zip(fields.items(), keys, strict=True):
        columns[name] = _column(name, kind, lambda values=values, kind=kind: pa.array(values, _stored(kind)).cast(kind))
    columns[EVENT_AT] = _times(at for *_, at, _ in data)
    columns[CREATED_AT] = _times(created for *_, created in data)
    for one in view.features:
        if one.name in fields:
            continue
        kind = one.dtype.to_value_type()
        given = [values.get(one.name, _NULL) for _, values, *_ in data]
        columns[one.name] = _column(one.name, arrow_type(kind), lambda given=given, kind=kind: encode(given, kind))
    return pa.table(columns)


def _column(name: str, kind: pa.DataType, made: Callable[[], pa.Array]) -> pa.Array:
    try:
        return made()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Code.COLUMN_TYPE_MISMATCH(
            f"column {name} is {kind}, and a value of the batch does not fit: {error}", column=name
        ) from error


def _times(times: Iterable[datetime | None]) -> pa.Array:
    """Return times as a column. A time without a zone is UTC, as Feast has it."""
    return pa.array([None if at is None else at if at.tzinfo else at.replace(tzinfo=UTC) for at in times], _TIME)
