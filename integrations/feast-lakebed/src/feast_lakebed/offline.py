"""The offline store: training sets by point-in-time joins, and the rows that are materialized.

Core types: :class:`LakebedOfflineStore`, :class:`LakebedRetrievalJob`, whose rows are a stream of Arrow batches.

A point-in-time join finds for each row of entities the newest row of each view that is not later than the entity's
time, and not older than the view's TTL. DataFusion runs it in this process. If the join keys of a view are the row key
of its table, only the rows of these entities are read, by ``get_many``. Otherwise the whole table is registered.

Times without a zone are UTC. Times are compared to the microsecond, or to the nanosecond if a column has them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionContext
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.feature_view import DUMMY_ENTITY_ID, DUMMY_ENTITY_VAL
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob, RetrievalMetadata
from feast.infra.offline_stores.offline_utils import (
    get_feature_view_query_context,
    get_pyarrow_schema_from_batch_source,
    infer_event_timestamp_from_entity_df,
)
from feast.on_demand_feature_view import OnDemandFeatureView
from feast.utils import compute_non_entity_date_range

import lakebed
from feast_lakebed.instances import LakebedConfig, instance_of
from feast_lakebed.source import LakebedLoggingDestination, LakebedSource, SavedDatasetLakebedStorage, quoted
from lakebed import clock
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from feast.data_source import DataSource
    from feast.feature_logging import LoggingConfig, LoggingSource
    from feast.feature_view import FeatureView
    from feast.infra.registry.base_registry import BaseRegistry
    from feast.repo_config import RepoConfig
    from feast.saved_dataset import SavedDatasetStorage

KEYS_MAX = 100_000
"""From this many entities on a table is read whole instead of by key."""

ROW = "_row"
"""The number of a row of entities, from which the order of the result follows; the row key of saved datasets."""


class LakebedOfflineStoreConfig(LakebedConfig):
    """The offline store of ``feature_store.yaml``."""

    type: Literal["lakebed", "feast_lakebed.LakebedOfflineStore", "feast_lakebed.offline.LakebedOfflineStore"] = (
        "feast_lakebed.LakebedOfflineStore"
    )


class LakebedRetrievalJob(RetrievalJob):
    """A query that runs when its rows are asked for."""

    def __init__(
        self,
        run: Callable[[], Any],
        lake: Any,
        *,
        full_feature_names: bool = False,
        on_demand_feature_views: list[OnDemandFeatureView] | None = None,
        metadata: RetrievalMetadata | None = None,
    ) -> None:
        self._run = run
        self._lake = lake
        self._full_feature_names = full_feature_names
        self._on_demand_feature_views = on_demand_feature_views or []
        self._metadata = metadata

    @property
    def full_feature_names(self) -> bool:
        """Whether the columns of features have the names of their views before their own."""
        return self._full_feature_names

    @property
    def on_demand_feature_views(self) -> list[OnDemandFeatureView]:
        """The views that Feast computes from the rows."""
        return self._on_demand_feature_views

    @property
    def metadata(self) -> RetrievalMetadata | None:
        """What the rows were asked for with."""
        return self._metadata

    def to_reader(self) -> pa.RecordBatchReader:
        """Run the query, and return its rows as a stream, before views on demand are computed."""
        return pa.RecordBatchReader.from_stream(self._run())

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:
        with closing(self.to_reader()) as rows:
            return rows.read_all()

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:
        return self._to_arrow_internal(timeout).to_pandas()

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:
        """Write the rows to a new table, whose row key is the number of the row.

        Raises SavedDatasetLocationAlreadyExists if the table exists, unless it may be replaced: then another one
        takes its name, in one commit, once that has all rows.
        """
        if not isinstance(storage, SavedDatasetLakebedStorage):
            raise Code.ARGUMENT_INVALID(f"cannot save to {type(storage).__name__}: give SavedDatasetLakebedStorage")
        there = storage.table in self._lake.tables()
        if there and not allow_overwrite:
            raise SavedDatasetLocationAlreadyExists(location=storage.table)
        rows = self.to_arrow(timeout=timeout)
        rows = rows.append_column(ROW, pa.array(range(rows.num_rows), pa.int64()))
        name = f"{storage.table[:90]}-{clock.new_id()}" if there else storage.table
        target = self._lake.create_table(name, lakebed.Schema.from_arrow(_nullable(rows.schema, ROW), [ROW]))
        target.write(rows)
        if there:
            self._lake.rename_table(name, storage.table, replace=True)


class LakebedOfflineStore(OfflineStore):
    """Feast's offline store in an instance of Lakebed."""

    supports_filter_by_created_timestamp = True

    @staticmethod
    def pull_latest_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
    ) -> RetrievalJob:
        """Return the newest row of each entity between two times, both inclusive."""
        times = [timestamp_field, *([created_timestamp_column] if created_timestamp_column else [])]
        by = f"PARTITION BY {', '.join(map(quoted, join_key_columns))} " if join_key_columns else ""
        order = ", ".join(f"{quoted(one)} DESC" for one in times)
        inner = f"row_number() OVER ({by}ORDER BY {order}) AS _newest"
        columns = _columns(join_key_columns, feature_name_columns, times)
        where = _between(timestamp_field, start_date, end_date)
        rows = f"SELECT *, {inner} FROM {_source(data_source)} AS s WHERE {where}"
        dummy = "" if join_key_columns else f", '{DUMMY_ENTITY_VAL}' AS {quoted(DUMMY_ENTITY_ID)}"
        return _sql_job(config, f"SELECT {columns}{dummy} FROM ({rows}) WHERE _newest = 1")

    @staticmethod
    def pull_all_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
    ) -> RetrievalJob:
        """Return all rows between two times, both inclusive."""
        times = [timestamp_field, *([created_timestamp_column] if created_timestamp_column else [])]
        columns = _columns(join_key_columns, feature_name_columns, times if timestamp_field else [])
        dummy = "" if join_key_columns else f", '{DUMMY_ENTITY_VAL}' AS {quoted(DUMMY_ENTITY_ID)}"
        where = _between(timestamp_field, start_date, end_date)
        return _sql_job(config, f"SELECT {columns}{dummy} FROM {_source(data_source)} AS s WHERE {where}")

    @staticmethod
    def get_historical_features(
        config: RepoConfig,
        feature_views: list[FeatureView],
        feature_refs: list[str],
        entity_df: pd.DataFrame | str | None,
        registry: BaseRegistry,
        project: str,
        full_feature_names: bool = False,
        filter_by_created_timestamp: bool = False,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
    ) -> RetrievalJob:
        """Return each row of entities with the features as they were at its time.

        ``entity_df`` is a frame or a query of Lakebed. Without it, the rows of the views between two times take its
        place.
        """
        lake = instance_of(config.offline_store, config.repo_path)
        if entity_df is None:
            between = compute_non_entity_date_range(feature_views, start_date=start_date, end_date=end_date)
            entities = _entities_between(lake, feature_views, *between)
        else:
            entities = _entities(lake, entity_df)
        span = _span(entities)
        contexts = get_feature_view_query_context(feature_refs, feature_views, registry, project, span)
        named = {one.projection.name_to_use(): one for one in feature_views}
        joins = [_Join.of(named[one.name], one, full_feature_names) for one in contexts]
        return LakebedRetrievalJob(
            lambda: _joined(lake, entities, joins, by_creation=filter_by_created_timestamp),
            lake,
            full_feature_names=full_feature_names,
            on_demand_feature_views=OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry),
            metadata=RetrievalMetadata(
                features=feature_refs,
                keys=[one for one in entities.rows.column_names if one != entities.at],
                min_event_timestamp=span[0],
                max_event_timestamp=span[1],
            ),
        )

    @staticmethod
    def offline_write_batch(
        config: RepoConfig, feature_view: FeatureView, table: pa.Table, progress: Callable[[int], Any] | None
    ) -> None:
        """Add rows to the table of the view's source, in one commit. Raises ValueError for other columns."""
        source = feature_view.batch_source
        if not isinstance(source, LakebedSource) or source.table is None or source.at is not None:
            raise Code.ARGUMENT_INVALID(f"cannot write to the source of {feature_view.name}: it is not a table")
        schema, names = get_pyarrow_schema_from_batch_source(config, source)
        if names != table.column_names:
            raise ValueError(f"the columns are {table.column_names}, but the source has {names}: {schema}")
        target = instance_of(config.offline_store, config.repo_path).table(source.table)
        target.write(_as_stored(table, target.schema.arrow))
        if progress:
            progress(table.num_rows)

    @staticmethod
    def write_logged_features(
        config: RepoConfig,
        data: pa.Table | Path,
        source: LoggingSource,
        logging_config: LoggingConfig,
        registry: BaseRegistry,
    ) -> None:
        """Add logged features to the table of the destination, which is made if it does not exist."""
        destination = logging_config.destination
        if not isinstance(destination, LakebedLoggingDestination):
            raise Code.ARGUMENT_INVALID(f"cannot log to {type(destination).__name__}: give LakebedLoggingDestination")
        lake = instance_of(config.offline_store, config.repo_path)
        at = source.get_log_timestamp_column()
        schema = lakebed.Schema.from_arrow(_nullable(source.get_schema(registry), at), [at])
        table = lake.create_table(destination.table, schema, if_not_exists=True)
        table.write(pq.read_table(data) if isinstance(data, Path) else data, casts="text")


# -- queries ------------------------------------------------------------------------------------------------------


def _sql_job(config: RepoConfig, statement: str) -> LakebedRetrievalJob:
    lake = instance_of(config.offline_store, config.repo_path)
    return LakebedRetrievalJob(lambda: lake.sql(statement), lake)


def _source(source: DataSource) -> str:
    if not isinstance(source, LakebedSource):
        raise Code.ARGUMENT_INVALID(f"cannot read {type(source).__name__} {source.name}: give a LakebedSource")
    return source.get_table_query_string()


def _columns(keys: Sequence[str], features: Sequence[str], times: Sequence[str]) -> str:
    """Return the columns of a query: all, if no features are named."""
    return ", ".join(map(quoted, dict.fromkeys((*keys, *features, *times)))) if features else "*"


def _between(column: str, start: datetime | None, end: datetime | None) -> str:
    limits = [(">=", start), ("<=", end)]
    terms = [f"{_utc(quoted(column))} {sign} {_literal(at)}" for sign, at in limits if at is not None]
    return " AND ".join(terms) or "true"


def _utc(expression: str, unit: str = "Microsecond") -> str:
    return f"arrow_cast({expression}, 'Timestamp({unit}, Some(\"UTC\"))')"


def _literal(at: datetime) -> str:
    at = pd.Timestamp(at)
    at = at.tz_localize("UTC") if at.tzinfo is None else at.tz_convert("UTC")
    return _utc(f"'{at.isoformat()}'")


# -- point-in-time joins ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entities:
    """The rows to which features are joined, with the column of their times in UTC."""

    rows: pa.Table
    at: str


@dataclass(frozen=True, slots=True)
class _Join:
    """What is joined of one view: its source, the key columns there and in the entities, and columns by new names."""

    source: LakebedSource
    keys: dict[str, str]
    features: dict[str, str]
    at: str
    created: str | None
    ttl_s: int

    @classmethod
    def of(cls, view: FeatureView, context: Any, full_names: bool) -> _Join:
        source = view.batch_source
        _source(source)
        original = {new: old for old, new in source.field_mapping.items()}
        mapped = view.projection.join_key_map
        names = [one.name for one in view.entity_columns if one.name != DUMMY_ENTITY_ID]
        keys = {original.get(one, one): mapped.get(one, one) for one in names}
        features = {one: context.field_mapping.get(one, one) for one in context.features}
        if full_names:
            features = {old: f"{context.name}__{new}" for old, new in features.items()}
        return cls(
            source, keys, features, context.timestamp_field, context.created_timestamp_column or None, context.ttl
        )

    @property
    def columns(self) -> list[str]:
        """The columns of the source that the join needs."""
        return list(dict.fromkeys([*self.keys, *self.features, self.at, *([self.created] if self.created else [])]))


def _entities(lake: Any, given: pd.DataFrame | str) -> _Entities:
    frame = lake.sql(given).to_pandas() if isinstance(given, str) else given
    if not isinstance(frame, pd.DataFrame):
        raise Code.ARGUMENT_INVALID(f"entity_df is a {type(frame).__name__}; give a pandas frame or a query")
    at = infer_event_timestamp_from_entity_df(dict(zip(frame.columns, frame.dtypes, strict=True)))
    frame = frame.assign(**{at: pd.to_datetime(frame[at], utc=True)})
    return _Entities(pa.Table.from_pandas(frame, preserve_index=False), at)


def _entities_between(lake: Any, views: Sequence[FeatureView], start: datetime, end: datetime) -> _Entities:
    """Return the entities of some views, at the times of their rows between two times."""
    parts, at = [], "event_timestamp"
    for view in views:
        source = view.batch_source
        original = {new: old for old, new in source.field_mapping.items()}
        names = sorted(one.name for one in view.entity_columns if one.name != DUMMY_ENTITY_ID)
        keys = [
            f"{quoted(original.get(one, one))} AS {quoted(view.projection.join_key_map.get(one, one))}" for one in names
        ]
        time = f"{_utc(quoted(source.timestamp_field))} AS {at}"
        where = _between(source.timestamp_field, start, end)
        parts.append((names, f"SELECT DISTINCT {', '.join([*keys, time])} FROM {_source(source)} AS s WHERE {where}"))
    if any(names != parts[0][0] for names, _ in parts):
        raise Code.ARGUMENT_INVALID("the views have different entities; give the rows of entities as entity_df")
    statement = " UNION ".join(one for _, one in parts)
    return _Entities(lake.sql(f"SELECT * FROM ({statement}) ORDER BY {at}").read_all(), at)


def _span(entities: _Entities) -> tuple[datetime, datetime]:
    times = entities.rows[entities.at].to_pandas()
    if times.empty or times.isna().any():
        what = "has no rows" if times.empty else f"has a row without {entities.at}"
        raise Code.ARGUMENT_INVALID(f"entity_df {what}; give each entity and a time")
    return times.min().to_pydatetime(), times.max().to_pydatetime()


def _joined(lake: Any, entities: _Entities, joins: Sequence[_Join], *, by_creation: bool) -> Any:
    """Run the joins; return a stream of the rows of the entities, in their order, with the features after them."""
    context = SessionContext()
    rows = entities.rows.append_column(ROW, pa.array(range(entities.rows.num_rows), pa.int64()))
    context.register_record_batches("entities", [rows.to_batches() or [_empty(rows.schema)]])
    parts, columns = [], [f"entities.{quoted(one)}" for one in entities.rows.column_names]
    for number, join in enumerate(joins):
        name = f"features_{number}"
        _register(context, f"source_{number}", lake, join, entities)
        parts.append(f"{name} AS ({_newest(f'source_{number}', join, entities, by_creation=by_creation)})")
        columns += [f"{name}.{quoted(new)}" for new in join.features.values()]
    sides = "".join(f" LEFT JOIN features_{one} ON entities.{ROW} = features_{one}.{ROW}" for one in range(len(joins)))
    with_parts = f"WITH {', '.join(parts)} " if parts else ""
    return context.sql(f"{with_parts}SELECT {', '.join(columns)} FROM entities{sides} ORDER BY entities.{ROW}")


def _newest(table: str, join: _Join, entities: _Entities, *, by_creation: bool) -> str:
    """Return the query for the newest row of one source for each row of entities that has one."""
    unit = "Nanosecond" if _nanoseconds(entities.rows.schema.field(entities.at).type) else "Microsecond"
    at, row_at = _utc(f"e.{quoted(entities.at)}", unit), _utc(f"s.{quoted(join.at)}", unit)
    terms = [f"e.{quoted(there)} = s.{quoted(here)}" for here, there in join.keys.items()]
    terms.append(f"{row_at} <= {at}")
    if join.ttl_s:
        terms.append(f"{row_at} >= {at} - INTERVAL '{join.ttl_s} seconds'")
    order = [f"{row_at} DESC"]
    if join.created:
        order.append(f"s.{quoted(join.created)} DESC")
        if by_creation:
            terms.append(f"{_utc(f's.{quoted(join.created)}', unit)} <= {at}")
    features = "".join(f", s.{quoted(old)} AS {quoted(new)}" for old, new in join.features.items())
    newest = f"row_number() OVER (PARTITION BY e.{ROW} ORDER BY {', '.join(order)}) AS _newest"
    found = f"SELECT e.{ROW}{features}, {newest} FROM entities AS e JOIN {table} AS s ON {' AND '.join(terms)}"
    return f"SELECT * FROM ({found}) WHERE _newest = 1"


def _register(context: SessionContext, name: str, lake: Any, join: _Join, entities: _Entities) -> None:
    """Let the context read the rows of a source: of the entities alone where these are its keys."""
    if join.source.table is None:
        columns = ", ".join(map(quoted, join.columns))
        rows = lake.sql(f"SELECT {columns} FROM {join.source.get_table_query_string()} AS s").read_all()
    else:
        handle = lake.table(join.source.table)
        handle = handle.snapshot() if join.source.at is None else handle.at(join.source.at)
        keys = _keys(join, entities, handle.schema)
        if keys is None and hasattr(handle, "register"):
            handle.register(context, name)
            return
        rows = (
            handle.scan(columns=join.columns).read_all()
            if keys is None
            else handle.get_many(keys, columns=join.columns)
        )
    context.register_record_batches(name, [rows.to_batches() or [_empty(rows.schema)]])


def _keys(join: _Join, entities: _Entities, schema: lakebed.Schema) -> pa.Table | None:
    """Return the distinct keys of the entities in a table; None if they are not its row key, or too many."""
    if set(schema.row_key_names) != set(join.keys):
        return None
    keys = pa.table({one: entities.rows[join.keys[one]] for one in schema.row_key_names}).drop_null()
    keys = keys.group_by(list(schema.row_key_names)).aggregate([])
    if keys.num_rows > KEYS_MAX:
        return None
    try:
        return keys.cast(pa.schema([pa.field(one.name, one.type) for one in schema.row_key]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _as_stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with times and floats as a schema has them: pandas has other zones, units and sizes.

    A time without a zone is UTC. A double is rounded to a float.
    """
    for place, field in enumerate(rows.schema):
        there = schema.field(field.name).type if field.name in schema.names else field.type
        same_kind = any(of(field.type) and of(there) for of in (pa.types.is_timestamp, pa.types.is_floating))
        if same_kind and field.type != there:
            rows = rows.set_column(place, field.name, rows[field.name].cast(there, safe=False))
    return rows


def _nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def _nullable(schema: pa.Schema, key: str) -> pa.Schema:
    """Return a schema in which every field but the key may be null, without what pandas wrote about it."""
    return pa.schema([one.with_nullable(one.name != key) for one in schema.remove_metadata()])
