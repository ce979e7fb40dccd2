"""``lakebed migrate --spark``: tables of other systems through the pipeline, with the rows that a migration has that
runs in one process.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import Code, Error
from lakebed.jobs.bulk_import.migration import TASK_BYTES, bundled
from lakebed.model.schema import Schema
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.run import SYSTEMS, Selection, migrate, plan
from tests.interop import foreign_tables as foreign
from tests.soaked import few

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

KEYS = {"delta": "id", "iceberg": "id", "hive": "id", "sleeper": "device", "icedb": "user"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A small table of each system."""
    folder = tmp_path_factory.mktemp("sources")
    foreign.write_delta(folder / "delta")
    iceberg = foreign.write_iceberg(folder / "iceberg", f"sqlite:///{folder}/catalog.db")
    foreign.write_hive(folder / "hive")
    foreign.write_sleeper(folder / "sleeper")
    foreign.write_icedb(folder / "icedb")
    return {name: str(folder / name) for name in KEYS} | {"iceberg": str(iceberg)}


def opened(instance, sources, system):
    return SYSTEMS[system](SourceLocation(sources[system], instance.storage))


@pytest.mark.parametrize("system", few(["iceberg", "hive", *sorted(KEYS.keys() - {"iceberg", "hive"})], 2))
def test_the_rows_on_spark_are_those_of_one_process(system, sources, lake, pipeline):
    source = opened(lake, sources, system)
    schema = Schema.from_arrow(source.schema, [KEYS[system]])
    here, there = (lake.create_table(name, schema) for name in ("here", "there"))
    migrate(here, plan(here.state(), source, None), Selection({}), lambda _read, _total: None)
    report = pipeline.migrate(there, source, Selection({}), job_id="once")
    assert (report.rows_read, report.version, report.repeated) == (here.count().rows, there.version, False)
    assert there.to_arrow().sort_by(schema.names[0]) == here.to_arrow().sort_by(schema.names[0])
    assert there.to_arrow().num_rows >= 5
    assert pipeline.migrate(here, source, Selection({})).repeated
    again = pipeline.migrate(there, source, Selection({}), job_id="once")
    assert (again.repeated, again.version, there.version) == (True, report.version, report.version)


def test_columns_are_renamed_cast_and_left_out_on_spark(sources, lake, pipeline):
    """int64 becomes int32 unasked, since every value fits; a text becomes a number only if asked."""
    table = lake.create_table("t", Schema({"number": "int32"}, {}, {"day": "string"}))
    source = opened(lake, sources, "hive")
    with pytest.raises(Error, match="extra column name"):
        pipeline.migrate(table, source, Selection({"number": "id"}))
    chosen = Selection({"number": "id"}, ignored=frozenset({"name"}))
    pipeline.migrate(table, source, chosen)
    assert table.to_arrow()["number"].to_pylist() == [*range(11)]


def test_a_source_with_fewer_rows_than_it_says_adds_nothing(lake, pipeline, tmp_path):
    foreign.write_sleeper(tmp_path / "t")
    path = tmp_path / "t" / "data" / "partition_L" / "low.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    source = SYSTEMS["sleeper"](SourceLocation(str(tmp_path / "t"), lake.storage))
    table = lake.create_table("t", Schema.from_arrow(source.schema, ["device"]))
    with pytest.raises(Error, match="gave 5 rows, and its metadata says 6") as found:
        pipeline.migrate(table, source, Selection({}))
    assert found.value.code == Code.ROWS_LOST
    assert (table.version, table.to_arrow().num_rows) == (1, 0)


def test_delta_files_are_found_by_names_with_special_characters(lake, pipeline, tmp_path):
    """In the log they are encoded once more than in the file system, with deletion vectors and without."""
    days = ["a b/c%", "x=y"]
    rows = pa.table({"id": range(6), "day": [days[n % 2] for n in range(6)]})
    deltalake.write_deltalake(tmp_path / "d", rows, partition_by=["day"])
    foreign.hide_in_delta(tmp_path / "d", days[0], [1])
    source = SYSTEMS["delta"](SourceLocation(str(tmp_path / "d"), lake.storage))
    table = lake.create_table("t", Schema.from_arrow(source.schema, ["id"]))
    pipeline.migrate(table, source, Selection({}))
    assert table.to_arrow().select(["id", "day"]).to_pylist() == [
        {"id": n, "day": days[n % 2]} for n in (0, 1, 3, 4, 5)
    ]


def test_parts_are_read_together_up_to_a_size():
    class Part:
        def __init__(self, size_bytes):
            self.size_bytes = size_bytes

    sizes = [[part.size_bytes for part in task] for task in bundled([Part(n) for n in (1, 2, TASK_BYTES, 3)])]
    assert sizes == [[1, 2], [TASK_BYTES], [3]]


def test_the_command_runs_on_the_master_that_it_is_given(sources, tmp_path, monkeypatch, capsys, spark):
    from lakebed.cli import main

    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    lake = lakebed.create(str(tmp_path / "lake"))
    words = ["migrate", "t", sources["delta"], "--from", "delta", "--key", "id"]
    assert main([*words, "--master", "local[1]"]) == 2
    assert "add --spark" in capsys.readouterr().err
    assert main([*words, "--spark", "--job-id", "one"]) == 0
    assert "8 rows migrated, of version 2 there; as many as the source says" in capsys.readouterr().out
    assert lake.table("t").count().rows == 8
