"""The adapter: what dbt asks of a database, in terms of the store.

Only what dbt renders as SQL is SQL. Lists of relations, columns, and builds of tables are calls of the store, so that
they work alike with an instance that is opened directly and one of a service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dbt.adapters.base import available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.lakebed.connections import LakebedConnectionManager
from dbt.adapters.lakebed.relation import (
    DATABASE,
    PLAIN_SCHEMA,
    LakebedColumn,
    LakebedRelation,
    identifier_in,
    sql_type,
    stored_name,
)
from dbt.adapters.lakebed.store import BuildError, Key, Store
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

import lakebed

if TYPE_CHECKING:
    import agate

_CATALOG = (
    "table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner",
    "column_name", "column_index", "column_type", "column_comment",
)  # fmt: skip


class LakebedAdapter(SQLAdapter):
    """dbt on Lakebed."""

    ConnectionManager = LakebedConnectionManager
    Relation = LakebedRelation
    Column = LakebedColumn

    CONSTRAINT_SUPPORT = {  # noqa: RUF012 - as the class above has it
        ConstraintType.check: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.not_null: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }

    _capabilities = CapabilityDict({Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full)})

    @property
    def store(self) -> Store:
        """The store of the connection of this thread."""
        store: Store = self.connections.get_thread_connection().handle.store
        return store

    @classmethod
    def date_function(cls) -> str:
        """Return the function for the current time."""
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        """Return False: a statement of another thread ends by itself."""
        return False

    def debug_query(self) -> None:
        """Check that the instance answers (`dbt debug`)."""
        with self.connections.exception_handler("debug"):
            self.store.tables()

    # -- schemas and relations ----------------------------------------------------------------------------------

    def list_schemas(self, database: str) -> list[str]:
        """Return the schemas that have tables or views, and the one of plain names."""
        names = [*self.store.tables(), *self.store.views()]
        found = {name.partition("-")[0] for name in names if "-" in name}
        return sorted({PLAIN_SCHEMA} | found)

    @available.parse(lambda *_, **__: False)
    def check_schema_exists(self, database: str, schema: str) -> bool:
        """Return True: a schema is the beginning of names, and there is nothing to create."""
        return True

    def create_schema(self, relation: LakebedRelation) -> None:
        """Create nothing: a schema is there as soon as a table is."""
        if relation.schema:
            stored_name(relation.schema, "x")

    def drop_schema(self, relation: LakebedRelation) -> None:
        """Drop all tables and views of a schema. Raises for the schema of plain names: others use it, too."""
        schema = str(relation.schema)
        if schema == PLAIN_SCHEMA:
            raise DbtRuntimeError(f"the schema {PLAIN_SCHEMA} has all tables of the instance, and is not dropped")
        store = self.store
        with self.connections.exception_handler("drop schema"):
            for name in (*store.tables(), *store.views()):
                if identifier_in(schema, name) is not None:
                    store.drop(name)
        self.cache.drop_schema(relation.database, schema)

    def list_relations_without_caching(self, schema_relation: LakebedRelation) -> list[LakebedRelation]:
        """Return the tables and views of a schema."""
        schema = str(schema_relation.schema)
        with self.connections.exception_handler("list relations"):
            views = self.store.views()
            kinds = dict.fromkeys(self.store.tables(), RelationType.Table) | dict.fromkeys(views, RelationType.View)
        named = {identifier_in(schema, name): kind for name, kind in kinds.items()}
        return [
            self.Relation.create(database=DATABASE, schema=schema, identifier=name, type=kind)
            for name, kind in sorted(named.items(), key=lambda one: str(one[0]))
            if name is not None
        ]

    def drop_relation(self, relation: LakebedRelation) -> None:
        """Drop a table or view, if it is there."""
        self.cache_dropped(relation)
        with self.connections.exception_handler(f"drop {relation}"):
            self.store.drop(relation.stored_name)

    def truncate_relation(self, relation: LakebedRelation) -> None:
        """Remove all rows of a table, in one commit."""
        with self.connections.exception_handler(f"truncate {relation}"):
            self.store.instance.table(relation.stored_name).remove(lakebed.KeyRange())

    def rename_relation(self, from_relation: LakebedRelation, to_relation: LakebedRelation) -> None:
        """Rename a table or view."""
        self.cache_renamed(from_relation, to_relation)
        with self.connections.exception_handler(f"rename {from_relation}"):
            self.store.rename(from_relation.stored_name, to_relation.stored_name)

    def get_columns_in_relation(self, relation: LakebedRelation) -> list[LakebedColumn]:
        """Return the columns of a table or view; none if it is not there."""
        with self.connections.exception_handler(f"columns of {relation}"):
            found = self.store.columns(relation.stored_name)
        return [] if found is None else [self.Column.of(one) for one in found]

    def get_column_schema_from_query(self, sql: str) -> list[LakebedColumn]:
        """Return the columns of a query."""
        with self.connections.exception_handler(sql), self.store.query(sql) as rows:
            return [self.Column.of(one) for one in rows.schema]

    def expand_column_types(self, goal: LakebedRelation, current: LakebedRelation) -> None:
        """Expand nothing: texts have no greatest length."""

    def alter_column_type(self, relation: LakebedRelation, column_name: str, new_column_type: str) -> None:
        """Widen a column. Raises if its values would not all fit the new type."""
        with self.connections.exception_handler(f"alter {relation}"):
            (kind,) = self.store.sql_types([new_column_type])
            self.store.alter(relation.stored_name, [lakebed.WidenField(column_name, kind)])

    @available.parse_none
    def add_remove_columns(
        self, relation: LakebedRelation, add: list[LakebedColumn] | None, remove: list[LakebedColumn] | None
    ) -> None:
        """Add columns to a table, null in the rows that it has, and drop others; in one commit."""
        with self.connections.exception_handler(f"alter {relation}"):
            kinds = self.store.sql_types(one.dtype for one in add) if add else []
            added = [lakebed.AddField(one.name, kind) for one, kind in zip(add or [], kinds, strict=True)]
            dropped = [lakebed.DropField(one.name) for one in remove or []]
            self.store.alter(relation.stored_name, [*added, *dropped])

    # -- builds -------------------------------------------------------------------------------------------------

    @available.parse(lambda *_, **__: None)
    def table_key(self, model: Mapping[str, Any], *, required: bool = True) -> Key | None:
        """Return the key of a model, a seed, a snapshot or a test, by its configuration.

        Raises DbtRuntimeError if there is none, unless it is not required.
        """
        found = key_of(model)
        if found is None and required:
            raise DbtRuntimeError(
                f"{model['name']} has no key, and every table of Lakebed has one: set `primary_key` (each key has one "
                "row) or `key` (rows are sorted by it, and may repeat) to a column or a list of columns in its config"
            )
        return found

    @available.parse(lambda *_, **__: "")
    def key_clause(self, key: Key) -> str:
        """Return a key as the statement of a table that is no model says it."""
        columns = ", ".join(f'"{one}"' for one in (*key.columns, *key.sort))
        return f"{'primary ' if key.unique else ''}key ({columns})"

    @available.parse(lambda *_, **__: 0)
    def build_table(self, relation: LakebedRelation, sql: str, key: Key) -> int:
        """Make or replace a table by the rows of a query; returns their number."""
        with self.connections.exception_handler(sql):
            return self.store.build(relation.stored_name, key, self.store.query(sql))

    @available.parse(lambda *_, **__: 0)
    def stage_rows(self, relation: LakebedRelation, sql: str, target: LakebedRelation, key: Key) -> LakebedRelation:
        """Make a table beside another one, with the key of that, by the rows of a query; returns the table."""
        staged = relation.incorporate(type="table")
        with self.connections.exception_handler(sql):
            known = self.store.key_of(target.stored_name)
            if (known.columns, known.sort) != (key.columns, key.sort):
                raise BuildError(
                    f"the table has the key {', '.join((*known.columns, *known.sort))}, and the model "
                    f"{', '.join((*key.columns, *key.sort))}: run with --full-refresh"
                )
            self.store.stage(staged.stored_name, Key(key.columns, key.unique, key.sort), self.store.query(sql))
        return staged

    @available.parse(lambda *_, **__: 0)
    def add_rows(self, relation: LakebedRelation, sql: str, *, replace: bool) -> int:
        """Add the rows of a query to a table in one commit, in place of rows with the same key or beside them."""
        with self.connections.exception_handler(sql):
            return self.store.add(relation.stored_name, self.store.query(sql), replace=replace)

    @available.parse(lambda *_, **__: 0)
    def build_seed(self, relation: LakebedRelation, rows: agate.Table, model: Mapping[str, Any], key: Key) -> int:
        """Make or replace a table by the rows of a CSV file; returns their number."""
        override = model["config"].get("column_types") or {}
        names = [override.get(name) or self.convert_type(rows, index) for index, name in enumerate(rows.column_names)]
        with self.connections.exception_handler(f"seed {relation}"):
            kinds = self.store.sql_types(names)
            columns = [
                _column([row[index] for row in rows.rows], kind, name)
                for index, (name, kind) in enumerate(zip(rows.column_names, kinds, strict=True))
            ]
            return self.store.build(relation.stored_name, key, pa.table(columns, names=list(rows.column_names)))

    # -- the catalog --------------------------------------------------------------------------------------------

    def _get_one_catalog(self, information_schema: Any, schemas: Iterable[str], used_schemas: Any) -> agate.Table:
        relations = [
            relation
            for schema in sorted(schemas)
            for relation in self.list_relations_without_caching(self.Relation.create(database=DATABASE, schema=schema))
        ]
        return self._get_one_catalog_by_relations(information_schema, relations, used_schemas)

    def _get_one_catalog_by_relations(
        self, information_schema: Any, relations: Iterable[LakebedRelation], used_schemas: Any
    ) -> agate.Table:
        from dbt_common.clients.agate_helper import table_from_data_flat

        views = self.store.views()
        rows = []
        for relation in relations:
            found = self.store.columns(relation.stored_name)
            kind = "view" if relation.stored_name in views else "table"
            for index, one in enumerate(found or [], 1):
                where = (DATABASE, relation.schema, relation.identifier, kind, None, None)
                rows.append(dict(zip(_CATALOG, (*where, one.name, index, sql_type(one.type), None), strict=True)))
        table = table_from_data_flat(rows, list(_CATALOG))
        return self._catalog_filter_table(table, used_schemas)

    # -- seeds --------------------------------------------------------------------------------------------------

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a column of texts."""
        return "varchar"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a column of numbers."""
        import agate

        return "double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a column of whole numbers."""
        return "bigint"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a column of times."""
        return "timestamp(6)"

    def valid_incremental_strategies(self) -> list[str]:
        """Return the strategies that need no macro of the project."""
        return ["append", "merge"]

    def timestamp_add_sql(self, add_to: str, number: int = 1, interval: str = "hour") -> str:
        """Return a time later by an interval."""
        return f"{add_to} + interval '{number} {interval}'"


def key_of(model: Mapping[str, Any]) -> Key | None:
    """Return the key of a node by its configuration and constraints; None if it has none.

    ``primary_key``, the ``unique_key`` of an incremental model, and a constraint ``primary_key`` mean that each key has
    one row. ``key`` may repeat. A snapshot has a row for each ``dbt_scd_id``.
    """
    config = model["config"]
    options = {"sort": _names(config.get("sort_key")), "settings": config.get("settings") or {}}
    if model.get("resource_type") == "snapshot":
        names = config.get("snapshot_meta_column_names") or {}
        return Key((names.get("dbt_scd_id") or "dbt_scd_id",), unique=True, settings=options["settings"])
    primary = _names(config.get("primary_key"))
    if not primary and config.get("materialized") == "incremental" and config.get("incremental_strategy") != "append":
        primary = _names(config.get("unique_key"))
    if primary := primary or _constrained(model):
        return Key(primary, unique=True, **options)
    found = _names(config.get("key"))
    return Key(found, unique=False, **options) if found else None


def _names(value: Any) -> tuple[str, ...]:
    """Return one or several names of a configuration."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(","))
    return tuple(value or ())


def _constrained(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of a constraint ``primary_key`` of a model or of its columns."""
    for one in model.get("constraints") or []:
        if one["type"] == "primary_key":
            return tuple(one.get("columns") or ())
    columns = (model.get("columns") or {}).values()
    return tuple(
        column["name"]
        for column in columns
        if any(one["type"] == "primary_key" for one in column.get("constraints") or [])
    )


def _column(values: list[Any], kind: pa.DataType, name: str) -> pa.Array:
    """Return the values of a seed's column. Raises BuildError for one that is not of the type."""
    try:
        if any(isinstance(value, str) for value in values):
            return pa.array(values, pa.string()).cast(kind)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            number = int if pa.types.is_integer(kind) else float
            return pa.array([None if value is None else number(value) for value in values], kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BuildError(f"the column {name} of the seed has a value that is not {sql_type(kind)}: {error}") from error
