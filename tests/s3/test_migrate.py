"""Tables of other systems in a bucket: read by their libraries and by Lakebed, here and in tasks elsewhere."""

import pickle

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.schema import Schema
from lakebed.storage import connect
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.iceberg import _properties
from lakebed.upkeep.migration.run import SYSTEMS, Selection, migrate, plan
from tests.interop import foreign_tables as foreign

pytest.importorskip("deltalake")

KEYS = {"delta": "id", "hive": "id", "sleeper": "device", "icedb": "user"}
LIVE = {"delta": 8, "hive": 11, "sleeper": 6, "icedb": 5}


@pytest.mark.parametrize("system", KEYS)
def test_a_table_in_a_bucket_is_migrated_with_the_options_of_the_instance(s3_server, tmp_path, system):
    bucket = s3_server.new_bucket()
    getattr(foreign, f"write_{system}")(tmp_path / "table")
    store = connect(bucket, s3_server.storage_options)
    for path in sorted((tmp_path / "table").rglob("*")):
        if path.is_file():
            store.replace(f"table/{path.relative_to(tmp_path / 'table')}", path.read_bytes())
    lake = lakebed.create(f"{bucket}/lake", storage_options=s3_server.storage_options)
    source = SYSTEMS[system](SourceLocation(f"{bucket}/table", lake.storage))
    table = lake.create_table("t", Schema.from_arrow(source.schema, [KEYS[system]]))
    migrate(table, plan(table.state(), source, None), Selection({}), lambda _done, _total: None)
    assert table.to_arrow().num_rows == LIVE[system]
    # A task gets the parts pickled, and opens the bucket by itself.
    parts = pickle.loads(pickle.dumps(source.parts()))
    rows = pa.Table.from_batches([batch for part in parts for batch in part.batches()])
    names = table.schema.names
    order = [(name, "ascending") for name in names]
    assert rows.select(names).cast(table.to_arrow().schema).sort_by(order) == table.to_arrow().sort_by(order)


def test_an_iceberg_table_in_a_bucket_is_migrated_with_the_options_of_the_instance(s3_server, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    bucket, options = s3_server.new_bucket(), s3_server.storage_options
    lake = lakebed.create(f"{bucket}/lake", storage_options=options)
    properties = _properties(SourceLocation(f"{bucket}/warehouse", lake.storage))
    assert properties["s3.endpoint"].startswith("http://")
    warehouse = f"{bucket}/warehouse"
    catalog = catalogs.SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse, **properties)
    catalog.create_namespace("shop")
    trips = catalog.create_table("shop.trips", foreign.ROWS.schema)
    trips.append(foreign.ROWS)
    source = SYSTEMS["iceberg"](SourceLocation(trips.metadata_location, lake.storage))
    table = lake.create_table("t", Schema.from_arrow(source.schema, ["id"]))
    migrate(table, plan(table.state(), source, None), Selection({}), lambda _done, _total: None)
    assert table.to_arrow()["id"].to_pylist() == [*range(10)]
    parts = pickle.loads(pickle.dumps(source.parts()))
    assert sum(batch.num_rows for part in parts for batch in part.batches()) == 10
