"""A reflected table is the table: its columns, types, key and indexes; made again, it is the same."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy_lakebed import CATEGORY, FIXED_BINARY, NAMED, TIME, TIMESTAMP, TINYINT, UNSIGNED, VECTOR

import lakebed
from lakebed.model.type_names import name_of, parse_name

UTC = dt.UTC
NOON = dt.datetime(2026, 1, 31, 12, 30, 5, 123456)  # noqa: DTZ001 - a time without a zone

TYPES = {
    "bool": (sa.BOOLEAN, True),
    "int8": (TINYINT, -128),
    "int16": (sa.SMALLINT, -5),
    "int32": (sa.INTEGER, 2**31 - 1),
    "int64": (sa.BIGINT, -(2**63)),
    "uint8": (UNSIGNED, 255),
    "uint16": (UNSIGNED, 5),
    "uint32": (UNSIGNED, 2**32 - 1),
    "uint64": (UNSIGNED, 2**64 - 1),
    "float": (sa.REAL, 1.5),
    "double": (getattr(sa, "DOUBLE", sa.FLOAT), 0.1),
    "decimal128(10, 2)": (sa.DECIMAL, Decimal("12345678.90")),
    "decimal256(60, 5)": (sa.DECIMAL, Decimal("1.00001")),
    "string": (sa.VARCHAR, "ä'\\%"),
    "binary": (sa.BLOB, b"\x00'"),
    "fixed_size_binary[3]": (FIXED_BINARY, b"abc"),
    "uuid": (getattr(sa, "UUID", NAMED), UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
    "date32[day]": (sa.DATE, dt.date(1, 1, 1)),
    "time32[s]": (TIME, dt.time(1, 2, 3)),
    "time32[ms]": (TIME, dt.time(1, 2, 3, 4000)),
    "time64[us]": (sa.TIME, dt.time(1, 2, 3, 4)),
    "time64[ns]": (TIME, dt.time(1, 2, 3, 4)),
    "timestamp[s]": (TIMESTAMP, NOON.replace(microsecond=0)),
    "timestamp[ms]": (TIMESTAMP, NOON.replace(microsecond=5000)),
    "timestamp[us]": (sa.TIMESTAMP, NOON),
    "timestamp[ns]": (TIMESTAMP, NOON),
    "timestamp[us, tz=UTC]": (sa.TIMESTAMP, NOON.replace(tzinfo=UTC)),
    "timestamp[ns, tz=Europe/Berlin]": (TIMESTAMP, NOON.replace(tzinfo=UTC)),
}
VALUES = {
    "json": (sa.JSON, {"a": [1, None]}),
    "halffloat": (NAMED, 1.5),
    "list<string>": (sa.ARRAY, ["a", None]),
    "list<list<int64>>": (sa.ARRAY, [[1], []]),
    "list<timestamp[us, tz=UTC]>": (sa.ARRAY, [NOON.replace(tzinfo=UTC)]),
    "fixed_size_list<float>[2]": (VECTOR, [1.5, 2.0]),
    "struct<x: double, y: string>": (NAMED, {"x": 1.5, "y": None}),
    "list<struct<x: int64>>": (sa.ARRAY, [{"x": 1}]),
    "map<string, int64>": (NAMED, None),
    "dictionary<string>": (CATEGORY, "a"),
    "dictionary<int64>": (NAMED, 5),
}


def reflected(engine, name):
    return sa.Table(name, sa.MetaData(), autoload_with=engine)


@pytest.mark.parametrize("kind", [*TYPES, *VALUES])
def test_each_type_is_reflected_made_again_written_and_read(engine, lake, kind):
    wanted, value = (TYPES | VALUES)[kind]
    lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": kind}), merge=lakebed.Latest())
    table = reflected(engine, "t")
    assert type(table.columns.v.type) is wanted
    with engine.connect() as connection:
        table.drop(connection)
        table.create(connection)
        assert name_of(lake.table("t").schema.fields[1].returned_type) == name_of(parse_name(kind))
        connection.execute(table.insert(), {"k": 1, "v": value})
        connection.execute(table.insert(), [{"k": 2, "v": value}, {"k": 3, "v": None}])
        rows = connection.execute(sa.select(table).order_by(table.columns.k)).all()
        assert rows == [(1, value), (2, value), (3, None)]
        if kind in TYPES:
            found = sa.select(table.columns.k).where(table.columns.v == value).order_by(table.columns.k)
            assert connection.scalars(found).all() == [1, 2]
            literals = found.compile(engine, compile_kwargs={"literal_binds": True})
            assert connection.scalars(sa.text(str(literals))).all() == [1, 2]


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_of_a_key_is_that_of_a_primary_key(engine, lake, kind):
    value = TYPES[kind][1]
    lake.create_table("t", lakebed.Schema({"k": kind}, values={"v": "int64"}), merge=lakebed.Latest())
    table = reflected(engine, "t")
    assert [one.name for one in table.primary_key] == ["k"]
    with engine.connect() as connection:
        table.drop(connection)
        table.create(connection)
        assert lake.table("t").schema.row_key[0].type == parse_name(kind)
        connection.execute(table.insert(), {"k": value, "v": 1})
        assert connection.execute(table.update().where(table.columns.k == value).values(v=2)).rowcount == 1
        assert connection.execute(sa.select(table)).all() == [(value, 2)]


GENERIC = {
    sa.Boolean(): "bool",
    sa.SmallInteger(): "int16",
    sa.Integer(): "int32",
    sa.BigInteger(): "int64",
    sa.Float(): "double",
    sa.Float(24): "float",
    sa.Float(53): "double",
    sa.Numeric(12, 3): "decimal128(12, 3)",
    sa.Numeric(40, 3): "decimal256(40, 3)",
    sa.Numeric(): "decimal128(38, 10)",
    sa.String(20): "string",
    sa.Text(): "string",
    sa.Unicode(20): "string",
    sa.UnicodeText(): "string",
    sa.CHAR(3): "string",
    sa.NVARCHAR(3): "string",
    sa.Enum("a", "b", name="ab"): "string",
    sa.LargeBinary(): "binary",
    sa.VARBINARY(3): "binary",
    sa.Date(): "date32[day]",
    sa.Time(): "time64[us]",
    sa.DateTime(): "timestamp[us]",
    sa.DateTime(timezone=True): "timestamp[us, tz=UTC]",
    sa.Interval(): "timestamp[us]",
    sa.JSON(): "json",
    sa.PickleType(): "binary",
    VECTOR(sa.Float(), 3): "fixed_size_list<double>[3]",
}
# SQLAlchemy 1.4 has not these.
if hasattr(sa, "Double"):
    GENERIC |= {sa.Double(): "double", sa.Uuid(): "uuid", sa.Uuid(native_uuid=False): "string"}
    GENERIC |= {sa.ARRAY(sa.Uuid()): "list<uuid>"}


@pytest.mark.parametrize("kind", GENERIC, ids=repr)
def test_generic_types_are_those_of_lakebed(engine, lake, kind):
    sa.Table("t", sa.MetaData(), sa.Column("k", sa.Integer, primary_key=True), sa.Column("v", kind)).create(engine)
    assert name_of(lake.table("t").schema.fields[1].type) == GENERIC[kind]


def test_keys_settings_and_indexes_are_made_and_found(engine, lake):
    columns = [
        sa.Column("v", sa.Integer),
        sa.Column("at", sa.DateTime),
        sa.Column("k", sa.String, primary_key=True),
        sa.Column("j", sa.String, primary_key=True),
        sa.Index("by_v", "v"),
    ]
    options = {"lakebed_sort_key": "at", "lakebed_merge": "latest_by_sort_key", "lakebed_split_rows": 500_000}
    sa.Table("t", sa.MetaData(), *columns, **options).create(engine)
    table = lake.table("t")
    assert (table.schema.names, table.schema.row_key_names) == (("k", "j", "at", "v"), ("k", "j"))
    assert table.settings()["split_rows"] == 500_000
    assert lake.indexes("t") == {"by_v": ["v"]}
    found = reflected(engine, "t")
    assert [one.name for one in found.primary_key] == ["k", "j"]
    assert [(one.name, [column.name for column in one.columns]) for one in found.indexes] == [("by_v", ["v"])]
    assert [one.nullable for one in found.columns] == [False, False, False, True]
    with engine.connect() as connection:
        found.drop(connection)
        found.create(connection)
    assert lake.table("t").state().merge == lakebed.Latest(by="sort_key")
    assert sa.inspect(engine).get_table_names() == ["t"]
    assert lake.tables() == ["by_v", "t"]


@pytest.mark.parametrize(
    ("merge", "primary", "options"),
    [
        (lakebed.KeepAll(), [], {"lakebed_key": "k", "lakebed_sort_key": "at"}),
        (lakebed.Latest(), ["k"], {"lakebed_sort_key": "at"}),
        (lakebed.First(), ["k"], {"lakebed_sort_key": "at", "lakebed_merge": '{"mode": "first"}'}),
        (
            lakebed.Aggregate({"v": "sum"}),
            ["k", "at"],
            {"lakebed_sort_key": "at", "lakebed_merge": '{"mode": "aggregate", "functions": {"v": "sum"}}'},
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_primary_key_is_what_no_two_rows_share(engine, lake, merge, primary, options):
    schema = lakebed.Schema({"k": "string"}, {"at": "int64"}, {"v": "int64"})
    lake.create_table("t", schema, merge=merge)
    table = reflected(engine, "t")
    assert [one.name for one in table.primary_key] == primary
    assert dict(table.dialect_kwargs) == options
    table.drop(engine)
    table.create(engine)
    made = lake.table("t")
    assert (made.schema, made.state().merge) == (schema, merge)


def test_a_table_without_a_primary_key_keeps_all_rows_by_its_index_or_its_first_column(engine, lake):
    for columns, key in (
        ([sa.Column("a", sa.JSON), sa.Column("b", sa.Integer), sa.Column("c", sa.Integer)], ("b",)),
        ([sa.Column("a", sa.Integer), sa.Column("b", sa.Integer, index=True)], ("b",)),
    ):
        table = sa.Table("t", sa.MetaData(), *columns)
        table.create(engine)
        assert (lake.table("t").schema.row_key_names, lake.table("t").state().merge) == (key, lakebed.KeepAll())
        table.drop(engine)


def test_views_are_found_with_their_query(engine, lake):
    lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "int64"}))
    lake.create_view_table("large", source="t", select="SELECT k, v FROM source WHERE v > 5", row_key=["k"])
    inspector = sa.inspect(engine)
    assert (inspector.get_table_names(), inspector.get_view_names()) == (["t"], ["large"])
    assert inspector.get_view_definition("large") == "SELECT k, v FROM source WHERE v > 5"
    assert [one["name"] for one in inspector.get_columns("large")] == ["k", "v"]
    with pytest.raises(exc.NoSuchTableError):
        inspector.get_view_definition("t")


def test_the_one_schema_may_be_named(engine, lake):
    lake.create_table("t", lakebed.Schema({"k": "int64"}))
    inspector = sa.inspect(engine)
    assert (inspector.get_schema_names(), inspector.default_schema_name) == (["tables"], "tables")
    assert inspector.get_table_names("tables") == ["t"]
    assert (inspector.get_table_names("other"), inspector.has_table("t", "other")) == ([], False)
    table = sa.Table("t", sa.MetaData(), schema="tables", autoload_with=engine)
    with engine.connect() as connection:
        connection.execute(table.insert(), {"k": 1})
        assert connection.execute(sa.select(table)).all() == [(1,)]
    with pytest.raises(exc.NoSuchTableError):
        sa.Table("t", sa.MetaData(), schema="other", autoload_with=engine)
    with pytest.raises(exc.NoSuchTableError):
        reflected(engine, "nowhere")


def test_all_tables_are_reflected_at_once(engine, lake):
    for name in ("a", "b-c", "D"):
        lake.create_table(name, lakebed.Schema({"k": "int64"}, values={"Odd name": "int64", 'a"b': "int64"}))
    metadata = sa.MetaData()
    metadata.reflect(engine)
    assert sorted(metadata.tables) == ["D", "a", "b-c"]
    with engine.connect() as connection:
        for table in metadata.tables.values():
            connection.execute(table.insert(), {"k": 1, "Odd name": 2, 'a"b': 3})
            assert connection.execute(sa.select(table)).all() == [(1, 2, 3)]
    metadata.drop_all(engine)
    assert lake.tables() == []
