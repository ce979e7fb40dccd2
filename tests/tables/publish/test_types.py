"""Values of every type that is published are read as they were written; other types are refused by name."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.table import StaticTable
from pyiceberg.types import IcebergType

import lakebed
from lakebed.errors import Code
from lakebed.model.field_ids import INNER_MAX, first_inner_id
from lakebed.model.published_types import RULES, rule_of
from lakebed.model.schema import Field
from lakebed.model.type_names import JSON, UUID
from lakebed.model.types import parse, with_inner
from lakebed.upkeep.publish.run import current, publish

UTC = dt.UTC
INTEGERS = {bits: [-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1e-45, math.inf, math.nan]
TIMES = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(9999, 12, 31, 23, 59)]  # noqa: DTZ001
TEXTS = ["", "a", "é€𝄞", "\x00", "z" * 15 + "é" * 20, "\U0010ffff" * 20]

VALUES: dict[str, list[Any]] = {
    "bool": [False, True],
    **{f"int{bits}": values for bits, values in INTEGERS.items()},
    "float": FLOATS,
    "double": [*FLOATS, 5e-324, 1.7976931348623157e308],
    **{
        f"decimal128({digits}, {scale})": [
            Decimal(0), Decimal(f"-{'9' * digits}E-{scale}"), Decimal(f"{'9' * digits}E-{scale}"),
            Decimal(f"-128E-{scale}"), Decimal(f"1E-{scale}"),
        ]
        for digits, scale in ((5, 0), (9, 2), (10, 10), (18, 4), (19, 0), (38, 6))
    },
    "date32[day]": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "time64[us]": [dt.time(0), dt.time(23, 59, 59, 999_999)],
    "timestamp[us]": TIMES,
    "timestamp[us, tz=UTC]": [time.replace(tzinfo=UTC) for time in TIMES],
    "timestamp[us, tz=+00:00]": [time.replace(tzinfo=UTC) for time in TIMES],
    "string": TEXTS,
    "json": ['{"a": [1, "é"]}', "null", '""'],
    "uuid": [b"\x00" * 16, b"\xff" * 16, b"\x80" + b"\x00" * 15],
    "binary": [b"", b"\x00", b"\xff" * 20, b"\xff\xfe" + b"a" * 30],
    "fixed_size_binary[3]": [b"\x00\x00\x00", b"\xff\xff\xff"],
    "fixed_size_binary[20]": [b"\x80" * 20],
    "list<int64>": [[], [1, None], [None]],
    "struct<x: string, y: list<double>>": [{"x": "", "y": [-0.0, math.nan]}, {"x": None, "y": None}],
    "struct<x: int64 not null>": [{"x": 1}],
    "map<string, int64>": [[], [("é", 1), ("", None)]],
    "map<int32, list<list<string>>>": [[(1, [["a", None], None, []])], []],
    "list<list<struct<a: int8, b: map<string, date32>>>>": [[[{"a": 1, "b": [("k", dt.date(1969, 1, 1))]}], []]],
    "list<map<string, struct<a: struct<b: uuid>>>>": [[[("k", {"a": {"b": b"0123456789abcdef"}}), ("l", None)], None]],
}  # fmt: skip
"""Values at the edges of each type that is published, besides null."""

REFUSED = (
    "uint8", "uint16", "uint32", "uint64", "halffloat", "null", "decimal256(40, 2)", "time32[s]", "time32[ms]",
    "time64[ns]", "timestamp[s]", "timestamp[ms]", "timestamp[ns]", "timestamp[ns, tz=UTC]",
    "timestamp[us, tz=Europe/Berlin]", "timestamp[us, tz=+01:00]", "fixed_size_list<float>[2]",
)  # fmt: skip
INSIDE = ("list<{}>", "struct<a: int64, b: {}>", "map<string, {}>")


def published(table: lakebed.Table) -> StaticTable:
    publish(table)
    found = current(table)
    assert found is not None
    return StaticTable.from_metadata(found.metadata_location)


def new_table(folder: Path, schema: lakebed.Schema, **options: Any) -> lakebed.Table:
    return lakebed.create(str(folder / "lake")).create_table("t", schema, **options)


def pipeline_of(folder: Path) -> lakebed.Pipeline:
    return lakebed.Pipeline(lakebed.open(str(folder / "lake")), launcher="this-thread")


PUBLISHED = {"settings": {"publish": "iceberg"}}


def values_of(rows: pa.Table, name: str) -> list[str]:
    """The values as texts, which tell zeros apart, and are equal for two NaN."""
    order = pc.sort_indices(rows.column("k"))
    values = rows.column(name).combine_chunks().take(order).to_pylist()
    return [repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for value in values]


def arrow_rows(rows: list[dict[str, Any]], schema: lakebed.Schema) -> pa.Table:
    """The rows as a table, with bytes for UUIDs. Arrow makes no arrays of UUIDs, and those of JSON by a cast alone."""
    table = pa.Table.from_pylist(rows, pa.schema([column.with_type(plain(column.type)) for column in schema.arrow]))
    for place, field in enumerate(schema.fields):
        if "json" in str(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.stored_type))
    return table


def plain(kind: pa.DataType) -> pa.DataType:
    return pa.binary(16) if kind == UUID else pa.string() if kind == JSON else with_inner(kind, plain)


def test_there_are_values_for_each_rule() -> None:
    assert {rule_of(parse(kind)).names for kind in (*VALUES, *REFUSED)} == {rule.names for rule in RULES}
    assert not any(rule_of(parse(kind)).why_not for kind in VALUES)
    assert all(rule_of(parse(kind)).why_not for kind in REFUSED)


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_read_as_they_were_written(tmp_path: Path, kind: str) -> None:
    """Each in a file of its own, and all in one, as values and inside of others."""
    inner = {name: shape.format(kind) for name, shape in zip(("l", "s", "m"), INSIDE, strict=True)}
    table = new_table(tmp_path, lakebed.Schema({"k": "int64"}, values={"v": kind} | inner), **PUBLISHED)
    values = [None, *VALUES[kind]]
    rows = [{"k": k, "v": v, "l": [v], "s": {"a": k, "b": v}, "m": [("", v)]} for k, v in enumerate(values)]
    for row in rows:
        table.write(arrow_rows([row], table.schema))
    table.write(arrow_rows([{**row, "k": 100 + row["k"]} for row in rows], table.schema))
    iceberg, expected = published(table), pa.table(table.scan())
    assert expected.num_rows == 2 * len(rows)
    found = iceberg.scan().to_arrow()
    for name in table.schema.names:
        assert values_of(found, name) == values_of(expected, name)
    frame = pl.scan_iceberg(iceberg.metadata_location).collect().sort("k")
    assert list(map(repr, frame.to_dicts())) == list(map(repr, pl.DataFrame(expected).sort("k").to_dicts()))
    check_statistics(iceberg, expected)


def check_statistics(iceberg: StaticTable, rows: pa.Table) -> None:
    """The counts and bounds of each data file are true of its rows."""
    by_key = {row["k"]: row["v"] for row in rows.to_pylist()}
    fields = {field.field_id: field.field_type for field in iceberg.schema().fields}
    for task in iceberg.scan().plan_files():
        file = task.file
        low, high = (from_bytes(fields[1], bounds[1]) for bounds in (file.lower_bounds, file.upper_bounds))
        values = [by_key[k] for k in range(low, high + 1) if k in by_key]
        assert len(values) == file.record_count == file.value_counts[1]
        assert set(file.lower_bounds) == set(file.upper_bounds) <= {1, 2}
        assert set(file.null_value_counts) <= {1, 2}
        if 2 in file.null_value_counts:
            assert file.null_value_counts[2] == sum(value is None for value in values)
        if 2 in file.lower_bounds:
            assert not any(value != value for value in values)  # noqa: PLR0124 - NaN
            least, most = (from_bytes(fields[2], bounds[2]) for bounds in (file.lower_bounds, file.upper_bounds))
            for value in map(lambda one: as_bounds_are(fields[2], one), values):  # noqa: C417
                assert value is None or least <= value <= most


def as_bounds_are(kind: IcebergType, value: Any) -> Any:
    """A value as PyIceberg decodes that of a bound."""
    if str(kind) == "boolean" or value is None:
        return value
    if isinstance(value, dt.datetime):
        zero = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - zero) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value.bytes if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize("shape", ["{}", *INSIDE])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_is_not_published_is_refused_by_name(tmp_path: Path, kind: str, shape: str) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": shape.format(kind)}))
    reason = rule_of(parse(kind)).why_not
    with pytest.raises(lakebed.RejectedError, match="field v is") as caught:
        table.set(publish="iceberg")
    assert reason in caught.value.message
    with pytest.raises(lakebed.UsageError, match="field v is"):
        lake.create_table("u", table.schema, settings={"publish": "iceberg"})
    plain = lake.create_table("p", lakebed.Schema({"k": "int64"}), settings={"publish": "iceberg"})
    with pytest.raises(lakebed.RejectedError, match="field v2 is"):
        plain.alter(lakebed.AddField("v2", shape.format(kind)))


NESTED = lakebed.Schema(
    {"k": "int64"},
    values={"s": "struct<x: int64, y: list<string>>", "m": "map<string, struct<q: double>>", "l": "list<int32>"},
)
ROWS: list[dict[str, Any]] = [
    {"k": 1, "s": {"x": 1, "y": ["a", None]}, "m": [("a", {"q": 0.5}), ("b", None)], "l": [1]},
    {"k": 2, "s": None, "m": [], "l": None},
]


def test_inner_columns_have_the_ids_of_the_schema_in_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, NESTED, **PUBLISHED)
    table.write(ROWS)
    iceberg = published(table)
    [task] = iceberg.scan().plan_files()
    elements = str(pq.ParquetFile(task.file.file_path.removeprefix("file://")).schema)
    for field_id in (first_inner_id(2), first_inner_id(2) + 2, first_inner_id(3) + 2, first_inner_id(4)):
        assert f"field_id={field_id} " in elements
        assert iceberg.schema().find_field(field_id)
    assert iceberg.metadata.last_column_id == iceberg.schema().highest_field_id == first_inner_id(4)


def test_inner_columns_follow_a_field_that_is_renamed_and_not_one_of_the_same_name(tmp_path: Path) -> None:
    table = new_table(tmp_path, NESTED, **PUBLISHED)
    table.write(ROWS)
    table.alter(lakebed.RenameField("s", "t"), lakebed.DropField("l"), lakebed.AddField("s", "struct<x: int64>"))
    table.alter(lakebed.AddField("l", "list<int32>"))
    table.write([{"k": 3, "t": {"x": 3, "y": []}, "m": [], "s": {"x": 7}, "l": [9]}])
    iceberg, expected = published(table), pa.table(table.scan())
    found = iceberg.scan().to_arrow()
    for name in table.schema.names:
        assert values_of(found, name) == values_of(expected, name)
    assert iceberg.scan(row_filter="t.x > 1").to_arrow().column("k").to_pylist() == [3]
    assert iceberg.scan(row_filter="s.x > 1").to_arrow().column("k").to_pylist() == [3]


def test_a_column_with_a_dot_is_no_inner_column(tmp_path: Path) -> None:
    """Parquet names inner columns by paths with dots, which have no statistics here."""
    schema = lakebed.Schema({"k": "int64"}, values={"s": "struct<x: int64>", "s.y": "int64"})
    table = new_table(tmp_path, schema, **PUBLISHED)
    table.write([{"k": 1, "s": {"x": 5}, "s.y": 8}])
    [task] = published(table).scan().plan_files()
    assert task.file.lower_bounds[3] == task.file.upper_bounds[3] == (8).to_bytes(8, "little")
    assert set(task.file.value_counts) == {1, 3}


def test_paths_that_iceberg_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    schema = lakebed.Schema({"k": "int64"}, values={"s": "struct<x: int64>", "s.x": "int64"})
    with pytest.raises(lakebed.UsageError, match=r"two columns have the path s\.x"):
        new_table(tmp_path, schema, **PUBLISHED)


def test_too_many_inner_columns_are_refused(tmp_path: Path) -> None:
    kind = pa.struct([(f"m{number}", pa.int8()) for number in range(INNER_MAX)])
    table = new_table(tmp_path, lakebed.Schema({"k": "int64"}, values={"s": kind}), **PUBLISHED)
    with pytest.raises(lakebed.RejectedError, match="more than 2,048 inner columns"):
        table.alter(lakebed.AddField("l", pa.list_(kind)))
    table.set(publish=None)
    table.alter(lakebed.AddField("l", pa.list_(kind)))
    table.write([{"k": 1, "l": [{"m0": 5}]}])
    assert pa.table(table.scan(columns=["l"])).column("l")[0].as_py()[0]["m0"] == 5


def test_fields_whose_inner_columns_share_ids_are_refused(tmp_path: Path) -> None:
    ids = {"k": 1, "a": 2, "b": 2 + 2**17}
    key, a, b = (Field(number, name, parse("list<int64>" if name != "k" else "int64")) for name, number in ids.items())
    with pytest.raises(lakebed.UsageError, match="fields a and b have the same ids"):
        new_table(tmp_path, lakebed.Schema([key], values=[a, b]), **PUBLISHED)


def sorted_file(folder: Path, schema: lakebed.Schema, rows: list[dict[str, Any]]) -> str:
    """A sorted file as others write it, and as Lakebed did: only top-level columns have ids."""
    path = str(folder / "sorted.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema.arrow), path)
    return path


def test_files_without_ids_of_inner_columns_are_rewritten_when_it_is_asked_for(tmp_path: Path) -> None:
    table = new_table(tmp_path, NESTED, **PUBLISHED)
    with pipeline_of(tmp_path) as pipeline:
        pipeline.attach("t", sorted_file(tmp_path, NESTED, ROWS))
    table.tag("before")
    with pytest.raises(lakebed.RejectedError, match="the inner columns of s have no field ids") as caught:
        publish(table)
    assert caught.value.code is Code.FILE_NOT_PUBLISHABLE
    assert current(table) is None
    with pipeline_of(tmp_path) as pipeline:
        pipeline.publish(table, compact=True)
    table.tag("after")
    iceberg = published(table)
    assert iceberg.scan().to_arrow().sort_by("k").to_pylist() == [*ROWS[:1], {**ROWS[1], "m": []}]
    assert set(iceberg.refs()) == {"main", "after"}


def test_files_whose_arrow_schema_has_json_are_rewritten(tmp_path: Path) -> None:
    """As Lakebed wrote it before, which PyIceberg refuses."""
    schema = lakebed.Schema({"k": "int64"}, values={"j": "json"})
    table = new_table(tmp_path, schema, **PUBLISHED)
    path = str(tmp_path / "sorted.parquet")
    pq.write_table(arrow_rows([{"k": 1, "j": '{"a": 1}'}], schema).cast(schema.arrow), path)
    with pipeline_of(tmp_path) as pipeline:
        pipeline.attach("t", path)
        with pytest.raises(lakebed.RejectedError, match="type of its column j, json"):
            publish(table)
        pipeline.publish(table, compact=True)
    assert published(table).scan().to_arrow().to_pylist() == [{"k": 1, "j": '{"a": 1}'}]


def test_files_with_a_dropped_column_that_engines_cannot_read_are_rewritten(tmp_path: Path) -> None:
    table = new_table(tmp_path, lakebed.Schema({"k": "int64"}, values={"v": "string", "old": "timestamp[ns]"}))
    table.write([{"k": 1, "v": "a", "old": dt.datetime(2026, 1, 1)}])  # noqa: DTZ001
    table.alter(lakebed.DropField("old"))
    table.set(publish="iceberg")
    with pytest.raises(lakebed.RejectedError, match=r"type of its column old, timestamp\[ns\]"):
        publish(table)
    with pipeline_of(tmp_path) as pipeline:
        pipeline.publish(table, compact=True)
    assert published(table).scan().to_arrow().to_pylist() == [{"k": 1, "v": "a"}]


def test_pyiceberg_reads_a_null_list_or_map_of_structs_as_an_empty_one(tmp_path: Path) -> None:
    """Its fault, of which docs/open.md warns; Polars, Spark and DuckDB read null."""
    schema = lakebed.Schema({"k": "int64"}, values={"l": "list<struct<x: int64>>", "m": "map<int32, struct<x: int64>>"})
    table = new_table(tmp_path, schema, **PUBLISHED)
    table.write([{"k": 1, "l": None, "m": None}])
    iceberg = published(table)
    assert iceberg.scan().to_arrow().to_pylist() == [{"k": 1, "l": [], "m": []}]
    assert pl.scan_iceberg(iceberg.metadata_location).collect().to_dicts() == [{"k": 1, "l": None, "m": None}]


def test_the_page_has_each_type() -> None:
    page = Path("docs/open.md").read_text()
    assert types_table() in page


def types_table() -> str:
    """The table of types in docs/open.md."""
    rows = [(rule.names, f"`{rule.iceberg}`" if rule.iceberg else f"refused: {rule.why_not}") for rule in RULES]
    return "".join(["| in Lakebed | in Iceberg |\n|---|---|\n", *(f"| `{names}` | {end} |\n" for names, end in rows)])
