"""Fields whose values are a dictionary: kept in the schema, stored as plain values, and given back by every read."""

from __future__ import annotations

import datetime as dt
import io
import sys
from decimal import Decimal

import duckdb
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import AddField, KeyRange, Schema, WidenField
from lakebed.cli import main
from lakebed.errors import RejectedError
from lakebed.model import types
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from tests.processes.web.serving import serving
from tests.workers import in_process

TEXTS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = Schema({"k": "int64"}, values={"c": TEXTS, "n": "int64"})
WORDS = ["low", "mid", None, "high"]
COUNT = 60


def word(n):
    return WORDS[n % 4] if n < 40 else f"w{n % 7}"


def rows(numbers):
    return pa.table({"k": numbers, "c": pa.array(map(word, numbers), pa.string()), "n": numbers})


EXPECTED = rows(range(COUNT)).to_pylist()


@pytest.fixture
def table(lake):
    """Three files: two that overlap, and one with other words."""
    table = lake.create_table("t", SCHEMA)
    for numbers in (range(0, 40, 2), range(1, 40, 2), range(40, COUNT)):
        table.write(rows(numbers))
    return table


# -- schemas --------------------------------------------------------------------------------------------------------


def test_a_schema_keeps_it_in_documents_and_differences(lake, table):
    assert SCHEMA.by_name["c"].dictionary
    assert (SCHEMA.by_name["c"].type, SCHEMA.arrow.field("c").type) == (pa.string(), pa.string())
    assert SCHEMA.returned.field("c").type == TEXTS
    assert SCHEMA.returned.field("c").metadata == SCHEMA.arrow.field("c").metadata
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert Schema.from_json(SCHEMA.declaration()) == SCHEMA
    assert SCHEMA.to_json()["values"][0]["type"] == {"dictionary": "string"}
    assert SCHEMA.declaration()["values"]["c"] == "dictionary<string>"
    assert "dictionary" not in str(Schema({"k": "int64"}, values={"c": "string"}).to_json())
    assert Schema.from_arrow(SCHEMA.returned, ["k"]) == SCHEMA
    assert lakebed.open(lake.url).table("t").schema == SCHEMA
    with pytest.raises(lakebed.ExistsError, match=r"value c is dictionary<string>, not string"):
        lake.create_table("t", Schema({"k": "int64"}, values={"c": "string", "n": "int64"}), if_not_exists=True)


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"k": [1, 2], "c": pd.Categorical(["b", None], categories=["b", "a"], ordered=True)}),
        pl.DataFrame({"k": [1, 2], "c": pl.Series(["b", None], dtype=pl.Categorical)}),
        pl.DataFrame({"k": [1, 2], "c": pl.Series(["b", None], dtype=pl.Enum(["a", "b"]))}),
        duckdb.sql("select 1::bigint k, 'b'::enum('a', 'b') c union all select 2, null").to_arrow_table(),
        pa.table({"k": [1, 2], "c": pa.array(["b", None]).dictionary_encode()}),
        pa.table({"k": [1, 2], "c": pa.DictionaryArray.from_arrays(pa.array([1, None], pa.uint64()), ["a", "b"])}),
    ],
    ids=["pandas", "Polars categories", "Polars enum", "DuckDB enum", "Arrow", "indices without a sign"],
)
def test_categories_of_other_libraries_are_kept(lake, data):
    arrow = pa.Schema.from_pandas(data, preserve_index=False) if isinstance(data, pd.DataFrame) else data
    schema = Schema.of(arrow, key="k")
    assert schema.declaration() == {"row_key": {"k": "int64"}, "values": {"c": "dictionary<string>"}}
    table = lake.create_table("t", schema)
    table.write(data)
    table.write([{"k": 3, "c": "new"}])
    assert table.to_arrow()["c"].type == TEXTS
    assert table.to_arrow()["c"].to_pylist() == ["b", None, "new"]


def test_a_dictionary_key_is_its_values(lake):
    """As those of a frame are, whose key columns are often categories."""
    frame = pd.DataFrame({"country": pd.Categorical(["se", "no"]), "n": [1, 2]})
    table = lake.create_table("t", Schema.of(pa.Schema.from_pandas(frame, preserve_index=False), key="country"))
    table.write(frame)
    assert table.schema.declaration()["row_key"] == {"country": "string"}
    assert table.get("se")["n"].to_pylist() == [1]
    key = lakebed.Field(1, "k", TEXTS)
    assert Schema([key]).row_key[0].dictionary is False
    assert lakebed.Field(2, "v", pa.list_(pa.string()), dictionary=True).dictionary is False


VALUES = {
    "bool": [True, None],
    "int8": [1, None],
    "uint64": [2**64 - 1, 0],
    "float": [0.5, None],
    "double": [float("inf"), 0.0],
    "binary": [b"\xff", b""],
    "fixed_size_binary[2]": [b"ab", None],
    "decimal128(10, 2)": [Decimal("1.50"), None],
    "date32": [dt.date(2026, 1, 31), None],
    "time32[s]": [dt.time(12, 30), None],
    "time64[ns]": [dt.time(12, 30), None],
    "timestamp[us, tz=UTC]": [dt.datetime(2026, 1, 31, tzinfo=dt.UTC), None],
}


def test_values_of_every_plain_type_are_in_dictionaries(lake):
    schema = Schema({"k": "int64"}, values={name: f"dictionary<{name}>" for name in VALUES})
    assert all(field.dictionary for field in schema.values)
    table = lake.create_table("t", schema)
    given = pa.table([range(2), *(pa.array(VALUES[f.name], f.type) for f in schema.values)], names=schema.names)
    table.write(given)
    found = table.to_arrow()
    assert found.schema == schema.returned
    assert found.to_pylist() == given.to_pylist()
    assert table.to_pandas().shape == table.to_polars().shape == (2, 1 + len(VALUES))


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (pa.dictionary(pa.int8(), pa.uuid()), "uuid"),
        (pa.dictionary(pa.int8(), pa.json_()), "json"),
        (pa.dictionary(pa.int8(), pa.float16()), "halffloat"),
        (pa.dictionary(pa.int8(), pa.decimal256(50, 2)), "decimal256(50, 2)"),
        (pa.dictionary(pa.int8(), pa.null()), "null"),
        (pa.dictionary(pa.int8(), pa.list_(pa.int8())), "list<int8>"),
        (pa.list_(TEXTS), "list<string>"),
        (pa.struct([("x", TEXTS)]), "struct<x: string>"),
        (pa.map_(pa.string(), TEXTS), "map<string, string>"),
    ],
)
def test_other_dictionaries_are_their_values(kind, plain):
    for schema in (
        Schema({"k": "int64"}, values={"v": kind}),
        Schema.of(pa.schema({"k": "int64", "v": kind}), key="k"),
    ):
        assert schema.declaration()["values"]["v"] == plain
        assert not schema.dictionaries
    assert Schema({"k": "int64"}, values={"v": pa.field("v", kind)}).declaration()["values"]["v"] == plain


# -- reads ----------------------------------------------------------------------------------------------------------


def test_every_read_gives_it_back(table, lake):
    assert table.to_arrow().schema == table.scan().schema == SCHEMA.returned
    assert table.to_arrow().to_pylist() == EXPECTED
    assert table.scan(reverse=True).read_all().to_pylist() == EXPECTED[::-1]
    for found in (
        table.get(5),
        table.get(5, columns=["n", "c"]),
        table.get(5, raw=True),
        table.get(5, apply=lambda rows: rows),
        table.snapshot().get(5),
        table.get_many([5]),
        table.scan(KeyRange.prefix(5), columns=["c", "n"]).read_all(),
        table.scan(where="c = 'mid' and k = 5").read_all(),
        table.scan(KeyRange.prefix(5), apply=lambda rows: rows).read_all(),
        table.scan(KeyRange.prefix(5), raw=True).read_all(),
        table.snapshot().scan(KeyRange.prefix(5)).read_all(),
        table.at(version=table.version).get_many(pa.array([5])),
        pa.table(table).slice(5, 1),
        pa.table(table.changes(0, columns=["c", "n"], ranges=[KeyRange.prefix(5)])).select(["c", "n"]),
    ):
        assert found.schema.field("c").type == TEXTS
        assert (found["c"].to_pylist(), found["n"].to_pylist()) == (["mid"], [5])
    for empty in (table.get(-1), table.get_many([]), table.scan(limit=0).read_all(), table.sample(0)):
        assert empty.schema.field("c").type == TEXTS
        assert empty.num_rows == 0
    assert table.get(2)["c"].to_pylist() == [None]
    assert table.sample(COUNT).to_pylist() == EXPECTED
    assert table.get(1, columns=["k"]).schema.names == ["k"]
    assert table.explain(5).rows == 1


def test_batches_of_a_stream_have_dictionaries_of_their_own(table):
    batches = list(table.scan())
    assert len({tuple(batch.column("c").dictionary.to_pylist()) for batch in batches}) > 1
    assert [row for batch in batches for row in batch.to_pylist()] == EXPECTED


def test_a_table_in_memory_has_one_dictionary(table):
    """So that Arrow writes it as a file, which has one dictionary of a column."""
    found = table.to_arrow()
    assert found["c"].num_chunks > 1
    assert len({tuple(chunk.dictionary.to_pylist()) for chunk in found["c"].chunks}) == 1
    written = io.BytesIO()
    with pa.ipc.new_file(written, found.schema) as file:
        file.write_table(found)
    assert pa.ipc.open_file(written.getvalue()).read_all().to_pylist() == EXPECTED


def test_streams_are_written_and_read_by_other_libraries(table):
    stream = table.scan()
    written = io.BytesIO()
    with pa.ipc.new_stream(written, stream.schema) as sink:
        for batch in stream:
            sink.write_batch(batch)
    again = pa.ipc.open_stream(written.getvalue()).read_all()
    assert (again.schema, again.to_pylist()) == (SCHEMA.returned, EXPECTED)
    words = [row["c"] for row in EXPECTED]
    assert table.scan().to_pandas()["c"].dtype == "category"
    assert [None if pd.isna(one) else one for one in table.to_pandas()["c"]] == words
    for frame in (table.to_polars(), pl.DataFrame(table.scan()), table.lazy_polars().collect()):
        assert frame.schema["c"] == pl.Categorical
        assert frame["c"].to_list() == words
    assert table.lazy_polars().filter(pl.col("c") == "w3").select("k").collect()["k"].to_list() == [45, 52, 59]
    relation = duckdb.from_arrow(table.scan())
    assert relation.filter("c = 'w3'").aggregate("c, count(*)").fetchall() == [("w3", 3)]
    assert table.to_duckdb().filter("c = 'w3'").count("*").fetchall() == [(3,)]
    pq.write_table(table.to_arrow(), written := io.BytesIO())
    assert pq.read_schema(written).field("c").type == TEXTS


def test_sql_computes_with_values(table, lake):
    found = lake.sql("select c, count(*) n from t where c like 'w%' group by c order by c").to_arrow()
    assert found.schema.field("c").type == pa.string()
    assert found.to_pylist()[0] == {"c": "w0", "n": 3}
    shown = lake.sql("describe t").to_arrow().to_pylist()
    assert "dictionary<string>" in str(shown)


def test_a_reader_of_a_part_gets_it_too(table, lake):
    hidden = Role("reader", Permission.READ, frozenset({"t"}), where="c = 'mid'")
    masked = Role("masked", Permission.READ, frozenset({"t"}), masks=(("c", "'?'"),))
    part, mask = (Principal("p", (role,)).readable(lake.table("t")) for role in (hidden, masked))
    assert part.schema.by_name["c"].dictionary
    for found in (part.get(5), part.get_many([5]), part.scan(KeyRange.prefix(5)).read_all()):
        assert found.schema.field("c").type == TEXTS
        assert found.to_pylist() == [EXPECTED[5]]
    assert part.get(4).num_rows == part.get_many([4]).num_rows == 0
    assert part.sample(100).num_rows == part.scan(where="c <> 'low'").read_all().num_rows == 10
    assert set(mask.to_arrow()["c"].to_pylist()) == set(mask.get(5)["c"].to_pylist()) == {"?"}
    for reader, values in ((part, {"mid"}), (mask, {"?"})):
        changed = pa.table(reader.changes(0))
        assert changed.schema.field("c").type == TEXTS
        assert set(changed["c"].to_pylist()) == values


@pytest.mark.parametrize("row_format", ["table", "csv", "json", "jsonl", "markdown", "arrow", "parquet"])
def test_the_command_line_prints_it_in_every_format(lake, table, row_format, capfdbinary):
    for words in (["get", "t", "5"], ["scan", "t", "--where", "k = 5"]):
        assert main(["-i", lake.url, *words, "--format", row_format]) == 0
        sys.stdout.flush()
        out = capfdbinary.readouterr().out
        if row_format in ("arrow", "parquet"):
            source = io.BytesIO(out)
            found = pa.ipc.open_stream(source).read_all() if row_format == "arrow" else pq.read_table(source)
            assert found.schema.field("c").type == TEXTS
            assert found["c"].to_pylist() == ["mid"]
        else:
            assert b"mid" in out


def test_a_service_gives_it_back(lake, table):
    with serving(lake) as url, lakebed.connect(url) as connected:
        remote = connected.table("t")
        assert remote.schema == SCHEMA
        for found in (remote.get(5), remote.get_many([5]), remote.scan(KeyRange.prefix(5)).read_all()):
            assert found.schema.field("c").type == TEXTS
            assert found.to_pylist() == [EXPECTED[5]]
        assert remote.to_arrow().to_pylist() == EXPECTED
        assert len({tuple(chunk.dictionary.to_pylist()) for chunk in remote.to_arrow()["c"].chunks}) == 1
        assert remote.to_pandas()["c"].dtype == "category"
        assert remote.to_polars().schema["c"] == pl.Categorical
        made = connected.create_table("u", SCHEMA)
        made.write(table.to_arrow())
        made.alter(AddField("d", TEXTS))
        assert lake.table("u").get(5).to_pylist() == [EXPECTED[5] | {"d": None}]
        assert lake.table("u").schema.by_name["d"].dictionary
        scanned = f"{url}/v1/tables/t/scan"
        for accept in ("application/x-ndjson", "application/json", "text/csv", "application/vnd.apache.parquet"):
            answer = httpx.post(scanned, json={"ranges": []}, headers={"accept": accept})
            assert answer.status_code == 200, answer.text
            parquet = accept.endswith("parquet")
            found = str(pq.read_table(io.BytesIO(answer.content)).to_pylist()) if parquet else answer.text
            assert found.count("w3") == 3


# -- writes, merging, files ------------------------------------------------------------------------------------------


def test_values_are_cast_from_and_to_dictionaries(lake):
    table = lake.create_table("t", Schema({"k": "int64"}, values={"c": TEXTS, "p": "string", "i": "dictionary<int16>"}))
    table.write([{"k": 1, "c": "text", "p": "x", "i": 7}])
    numbers = pa.array([7, None]).dictionary_encode()
    table.write({"k": [2, 3], "c": numbers, "p": pa.array(["y", None]).dictionary_encode(), "i": numbers}, casts=["c"])
    assert [row["c"] for row in table.to_arrow().to_pylist()] == ["text", "7", None]
    assert [row["i"] for row in table.to_arrow().to_pylist()] == [7, 7, None]
    with pytest.raises(lakebed.SchemaMismatchError, match=r"holds a value that int16 cannot keep.*40000"):
        table.write({"k": [4], "i": pa.array([40_000]).dictionary_encode()})
    with pytest.raises(lakebed.SchemaMismatchError, match="the table has string, and values are cast only if asked"):
        table.write({"k": [4], "c": [1]})


def test_merge_modes_see_values(lake):
    table = lake.create_table("m", SCHEMA, merge=lakebed.Latest())
    table.write(rows(range(20)))
    table.write([{"k": 5, "c": "newer"}], partial=True)
    table.write([{"k": 6, "c": None, "n": 6}])
    assert table.get(5).to_pylist() == [{"k": 5, "c": "newer", "n": 5}]
    assert table.get(6)["c"].type == TEXTS
    assert table.get(5, raw=True).schema.field("c").type == TEXTS
    assert table.to_arrow()["c"].to_pylist()[4:8] == [word(4), "newer", None, word(7)]


def test_it_survives_maintenance_and_export(table, lake, tmp_path):
    with in_process(lake) as pipeline:
        pipeline.compact(table, strategy="full")
        assert (table.to_arrow().schema, table.to_arrow().to_pylist()) == (SCHEMA.returned, EXPECTED)
        pipeline.export(table, str(tmp_path / "out"))
        pipeline.export(table, str(tmp_path / "csv"), format="csv")
        attached = lake.create_table("attached", SCHEMA)
        pipeline.attach(attached, str(tmp_path / "out"))
        assert attached.to_arrow().to_pylist() == EXPECTED
        read = lake.create_table("read", SCHEMA)
        read.write(next((tmp_path / "csv").glob("part-*")))
        assert read.to_pandas()["c"].dtype == "category"
        pipeline.rewrite(table, delete_where="c = 'mid'", set={"c": "upper(c)"}, where="c = 'w3'")
    assert table.count(exact=True).rows == COUNT - 10
    assert table.scan(where="c = 'W3'").read_all()["k"].to_pylist() == [45, 52, 59]


def test_views_of_a_table_see_values(table, lake):
    select = "SELECT c, count(*) AS n FROM source WHERE c IS NOT NULL GROUP BY c"
    merge = lakebed.Aggregate({"n": "sum"})
    view = lake.create_view_table("v", source="t", select=select, row_key=["c"], merge=merge)
    with in_process(lake) as pipeline:
        pipeline.refresh("v")
        table.write([{"k": 100, "c": "mid", "n": 0}])
        pipeline.refresh("v")
    assert view.get("mid").to_pylist() == [{"c": "mid", "n": 11}]


# -- changes of the schema -------------------------------------------------------------------------------------------


def test_a_field_becomes_a_dictionary_and_ceases_to_be_one(table):
    file = next(iter(table.state().files))
    table.alter(WidenField("c", "string"))
    assert table.get(1)["c"].type == pa.string()
    table.alter(WidenField("c", "dictionary<string>"), AddField("d", TEXTS), WidenField("n", "dictionary<int64>"))
    found = table.get(1)
    assert found.schema.types == [pa.int64(), TEXTS, pa.dictionary(pa.int32(), pa.int64()), TEXTS]
    assert found.to_pylist() == [{"k": 1, "c": "mid", "n": 1, "d": None}]
    assert file in table.state().files
    with pytest.raises(RejectedError, match=r"c is dictionary<string> and cannot become dictionary<int64>"):
        table.alter(WidenField("c", "dictionary<int64>"))
    with pytest.raises(RejectedError, match=r"cannot become dictionary<string>"):
        table.alter(WidenField("c", pa.dictionary(pa.int8(), pa.large_string())))


def test_a_column_widens_inside_a_dictionary(lake):
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": "dictionary<int8>"}))
    table.write({"k": [1], "v": [1]})
    table.alter(WidenField("v", "dictionary<int64>"))
    table.write({"k": [2], "v": [2**40]})
    assert table.to_arrow()["v"].type == pa.dictionary(pa.int32(), pa.int64())
    assert table.to_arrow()["v"].to_pylist() == [1, 2**40]


def test_new_columns_are_dictionaries_if_they_come_as_such(lake):
    table = lake.create_table("t", Schema({"k": "int64"}), settings={"schema_growth": "add"})
    table.write({"k": [1], "c": pa.array(["a"]).dictionary_encode(), "p": ["x"]})
    table.write({"k": [2], "c": ["b"], "p": pa.array(["y"]).dictionary_encode()})
    assert table.schema.declaration()["values"] == {"c": "dictionary<string>", "p": "string"}
    assert table.to_arrow()["c"].to_pylist() == ["a", "b"]


def test_indices_and_order_are_not_kept():
    assert types.parse("dictionary<string, indices=int8, ordered=1>") == TEXTS
    assert types.from_json({"dictionary": {"list": "int8"}}) == pa.list_(pa.int8())
