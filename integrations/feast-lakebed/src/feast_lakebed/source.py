"""Tables and queries of Lakebed as data sources of Feast, and as places for saved datasets and logged features.

Core types: :class:`LakebedSource`, :class:`SavedDatasetLakebedStorage`, :class:`LakebedLoggingDestination`. They hold
names only: the offline store's configuration says in which instance the tables are.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from feast.data_source import DataSource
from feast.feature_logging import LoggingDestination
from feast.protos.feast.core.DataSource_pb2 import DataSource as DataSourceProto
from feast.protos.feast.core.FeatureService_pb2 import LoggingConfig as LoggingConfigProto
from feast.protos.feast.core.SavedDataset_pb2 import SavedDatasetStorage as SavedDatasetStorageProto
from feast.saved_dataset import SavedDatasetStorage
from feast.type_map import pa_to_feast_value_type
from feast.value_type import ValueType

from feast_lakebed.instances import instance_of
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from feast.repo_config import RepoConfig

_WIDER = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64"}
_TEXT_OR_TIME = {"date32[day]": "timestamp[s]", "large_string": "string", "large_binary": "binary"}


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


class LakebedSource(DataSource):
    """A table, at its latest version or at another one, or a query; with a column that has the time of each row."""

    def __init__(
        self,
        *,
        table: str | None = None,
        query: str | None = None,
        at: str | int | None = None,
        name: str | None = None,
        timestamp_field: str | None = None,
        created_timestamp_column: str | None = None,
        field_mapping: dict[str, str] | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        owner: str | None = None,
    ) -> None:
        """Name a ``table``, or give a ``query`` and a ``name`` for it.

        ``at`` is a version, a tag or a time of the table, as in SQL: training sets that are made again from it have the
        same rows. Raises UsageError if there is a table and a query, or neither; or a query without a name, or ``at``
        one.
        """
        if (table is None) == (query is None):
            raise Code.ARGUMENTS_CONFLICT("a source is a table or a query: give one of them")
        if query is not None and (name is None or at is not None):
            raise Code.ARGUMENTS_CONFLICT('a query needs a name, and has its versions in it: FROM "drivers@12"')
        self.table, self.query, self.at = table, query, None if at is None else str(at)
        super().__init__(
            name=name or table,
            timestamp_field=timestamp_field,
            created_timestamp_column=created_timestamp_column,
            field_mapping=field_mapping,
            description=description or "",
            tags=tags,
            owner=owner or "",
        )

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LakebedSource) and super().__eq__(other) and self._what == other._what

    @property
    def _what(self) -> tuple[str | None, str | None, str | None]:
        return self.table, self.query, self.at

    def source_type(self) -> DataSourceProto.SourceType.ValueType:
        """A source that Feast does not know itself."""
        return DataSourceProto.CUSTOM_SOURCE

    @staticmethod
    def from_proto(data_source: DataSourceProto) -> LakebedSource:
        """Return the source of a message."""
        return LakebedSource(
            **json.loads(data_source.custom_options.configuration),
            name=data_source.name,
            timestamp_field=data_source.timestamp_field,
            created_timestamp_column=data_source.created_timestamp_column,
            field_mapping=dict(data_source.field_mapping),
            description=data_source.description,
            tags=dict(data_source.tags),
            owner=data_source.owner,
        )

    def _to_proto_impl(self) -> DataSourceProto:
        options = json.dumps({"table": self.table, "query": self.query, "at": self.at}).encode()
        return DataSourceProto(
            name=self.name,
            type=DataSourceProto.CUSTOM_SOURCE,
            data_source_class_type="feast_lakebed.LakebedSource",
            field_mapping=self.field_mapping,
            custom_options=DataSourceProto.CustomSourceOptions(configuration=options),
            description=self.description,
            tags=self.tags,
            owner=self.owner,
            timestamp_field=self.timestamp_field,
            created_timestamp_column=self.created_timestamp_column,
        )

    def validate(self, config: RepoConfig) -> None:
        """Raise NotFoundError if there is no such table, UsageError if it lacks a column for a time."""
        there = {name for name, _ in self.get_table_column_names_and_types(config)}
        for column in (self.timestamp_field, self.created_timestamp_column):
            if column and column not in there:
                raise Code.COLUMN_UNKNOWN(
                    f"source {self.name} has no column {column}; it has {', '.join(sorted(there))}"
                )

    def get_table_query_string(self) -> str:
        """Return the source as an item of ``FROM``."""
        if self.query is not None:
            return f"({self.query})"
        return quoted(f"{self.table}{'' if self.at is None else f'@{self.at}'}")

    def get_table_column_names_and_types(self, config: RepoConfig) -> Iterable[tuple[str, str]]:
        """Return the columns with the names of their Arrow types."""
        lake = instance_of(config.offline_store, config.repo_path)
        with lake.sql(f"SELECT * FROM {self.get_table_query_string()} LIMIT 0") as rows:
            return [(field.name, str(field.type)) for field in rows.schema]

    @staticmethod
    def source_datatype_to_feast_value_type() -> Callable[[str], ValueType]:
        """Return the function from the name of an Arrow type to the type of a feature."""
        return value_type


def value_type(name: str) -> ValueType:
    """Return the type of a feature for an Arrow type; UNKNOWN if Feast has none."""
    name = re.sub(r"<\w+: ", "<item: ", name).replace(" not null", "")
    inner = name.removeprefix("list<item: ").removesuffix(">") if name.startswith("list<item: ") else name
    known = _WIDER.get(inner, _TEXT_OR_TIME.get(inner, inner))
    try:
        return pa_to_feast_value_type(name if inner == known else name.replace(inner, known))
    except KeyError:
        return ValueType.UNKNOWN


class SavedDatasetLakebedStorage(SavedDatasetStorage):
    """A table for a saved dataset, whose row key is the number of the row."""

    _proto_attr_name = "custom_storage"

    def __init__(self, table: str) -> None:
        self.table = table

    @staticmethod
    def from_proto(storage_proto: SavedDatasetStorageProto) -> SavedDatasetStorage:
        """Return the storage of a message."""
        return SavedDatasetLakebedStorage(json.loads(storage_proto.custom_storage.configuration)["table"])

    def to_proto(self) -> SavedDatasetStorageProto:
        """Return the storage as a message."""
        options = DataSourceProto.CustomSourceOptions(configuration=json.dumps({"table": self.table}).encode())
        return SavedDatasetStorageProto(custom_storage=options)

    def to_data_source(self) -> DataSource:
        """Return the table as a source."""
        return LakebedSource(table=self.table)


class LakebedLoggingDestination(LoggingDestination):
    """A table for logged features, whose row key is the time of the log; made by the first write."""

    _proto_kind = "lakebed"

    def __init__(self, *, table: str) -> None:
        self.table = table

    @classmethod
    def from_proto(cls, config_proto: LoggingConfigProto) -> LoggingDestination:
        """Return the destination of a message."""
        return cls(table=config_proto.custom_destination.config["table"])

    def to_proto(self) -> LoggingConfigProto:
        """Return the destination as a message."""
        made: Any = LoggingConfigProto.CustomDestination(kind=self._proto_kind, config={"table": self.table})
        return LoggingConfigProto(custom_destination=made)

    def to_data_source(self) -> DataSource:
        """Return the table as a source."""
        return LakebedSource(table=self.table, timestamp_field="__log_timestamp")
