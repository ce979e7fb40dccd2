"""The configuration with which Feast's own tests run on Lakebed, named by FULL_REPO_CONFIGS_MODULE."""

from __future__ import annotations

import tempfile
import uuid

import pyarrow as pa
from feast_lakebed import (
    LakebedLoggingDestination,
    LakebedOfflineStoreConfig,
    LakebedSource,
    SavedDatasetLakebedStorage,
)
from tests.universal.feature_repos.universal.data_source_creator import DataSourceCreator
from tests.universal.feature_repos.universal.online_store_creator import OnlineStoreCreator

import lakebed


def _folder():
    return tempfile.mkdtemp(prefix="lakebed-feast-")


class LakebedDataSourceCreator(DataSourceCreator):
    """Sources as tables, whose row key is the entity where the frame has one."""

    def __init__(self, project_name, *args, **kwargs):
        super().__init__(project_name)
        self.url = _folder()
        self.lake = lakebed.create(self.url)

    def create_data_source(
        self, df, destination_name, created_timestamp_column="created_ts", field_mapping=None, timestamp_field="ts"
    ):
        rows = pa.Table.from_pandas(df, preserve_index=False)
        keys = [one for one in rows.column_names if one.endswith("_id") and not rows[one].null_count] or [
            timestamp_field
        ]
        name = f"{destination_name.replace('.', '_')[:80]}_{uuid.uuid4().hex}"
        schema = pa.schema([one.with_nullable(one.name not in keys) for one in rows.schema.remove_metadata()])
        self.lake.create_table(name, lakebed.Schema.from_arrow(schema, keys[:1])).write(rows)
        return LakebedSource(
            table=name,
            timestamp_field=timestamp_field,
            created_timestamp_column=created_timestamp_column,
            field_mapping=field_mapping or {"ts_1": "ts"},
        )

    def create_offline_store_config(self):
        return LakebedOfflineStoreConfig(url=self.url)

    def create_saved_dataset_destination(self):
        return SavedDatasetLakebedStorage(f"saved-{uuid.uuid4().hex}")

    def create_logged_features_destination(self):
        return LakebedLoggingDestination(table=f"logged-{uuid.uuid4().hex}")

    def teardown(self):
        for name in self.lake.tables():
            self.lake.drop_table(name)


class LakebedOnlineStoreCreator(OnlineStoreCreator):
    """An instance of its own for each store."""

    def create_online_store(self):
        return {"type": "feast_lakebed.LakebedOnlineStore", "url": _folder()}

    def teardown(self):
        pass


AVAILABLE_OFFLINE_STORES = [("local", LakebedDataSourceCreator)]
AVAILABLE_ONLINE_STORES = {"lakebed": ({"type": "feast_lakebed.LakebedOnlineStore"}, LakebedOnlineStoreCreator)}
