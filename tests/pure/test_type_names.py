"""Names of types are read and printed by one grammar."""

import pyarrow as pa
import pytest

from lakebed import Schema, UsageError
from lakebed.model import types
from lakebed.model.type_names import JSON, UUID, name_of, parse_name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("int64", pa.int64()),
        ("uuid", UUID),
        ("json", JSON),
        ("decimal128(10, 2)", pa.decimal128(10, 2)),
        ("decimal256(50, 2)", pa.decimal256(50, 2)),
        ("timestamp[us, tz=UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[ns, tz=+05:30]", pa.timestamp("ns", "+05:30")),
        ("time64[ns]", pa.time64("ns")),
        ("fixed_size_binary[4]", pa.binary(4)),
        ("list<string>", pa.list_(pa.string())),
        ("list<list<uuid>>", pa.list_(pa.list_(UUID))),
        ("fixed_size_list<float>[3]", pa.list_(pa.float32(), 3)),
        ("null", pa.null()),
        ("map<string, int64>", pa.map_(pa.string(), pa.int64())),
        ("dictionary<string, indices=int8>", pa.dictionary(pa.int8(), pa.string())),
        ("dictionary<string>", pa.dictionary(pa.int32(), pa.string())),
        ("dictionary<string, ordered=1>", pa.dictionary(pa.int32(), pa.string(), True)),
        (
            'struct<x: double, y: int8 not null, "a, \\"b\\"": list<uuid>>',
            pa.struct([("x", pa.float64()), pa.field("y", pa.int8(), nullable=False), ('a, "b"', pa.list_(UUID))]),
        ),
    ],
)
def test_a_name_is_read_and_printed_again(name, kind):
    assert parse_name(name) == kind
    assert name_of(kind) == name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("decimal(50)", pa.decimal256(50, 0)),
        ("date64", pa.date32()),
        ("time", pa.time64("us")),
        ("large_string", pa.string()),
        ("list<item: string>", pa.list_(pa.string())),
        ("fixed_size_list<item: float>[3]", pa.list_(pa.float32(), 3)),
        ("dictionary<values=string, indices=int32, ordered=0>", pa.dictionary(pa.int32(), pa.string())),
        ("timestamp[us,UTC]", pa.timestamp("us", "UTC")),
    ],
)
def test_other_names_of_a_type_are_read(name, kind):
    """Arrow's own, and those of other systems."""
    assert parse_name(name) == kind


@pytest.mark.parametrize(
    "name",
    ["", "nil", "int65", "list", "list<", "list<string", "list<string>>", "decimal(1,", "decimal(99, 2)",
     "decimal256(99, 1)", "fixed_size_binary[0]", "fixed_size_binary[99999999999]",
     "struct<>", "struct<a>", "dictionary<string, x=1>",
     "dictionary<string, indices=string>", "timestamp[m]", "map<string>", "int64 not null", "ünïcode?"],
)  # fmt: skip
def test_what_is_no_name_is_refused(name):
    """With examples of names."""
    with pytest.raises(UsageError, match=r"not a type.*uuid"):
        parse_name(name)


def test_types_of_a_schema_are_those_that_tables_store():
    """Views and large types are stored as the plain ones, dates in milliseconds as days, short decimals as longer."""
    kinds = {
        "a": pa.string_view(), "b": pa.large_binary(), "c": pa.date64(), "d": pa.decimal32(5, 2), "e": pa.uuid(),
        "f": pa.json_(pa.large_string()),
    }  # fmt: skip
    schema = Schema({"k": "uuid"}, values=kinds)
    assert [name_of(f.type) for f in schema.values] == [
        "string", "binary", "date32[day]", "decimal128(5, 2)", "uuid", "json",
    ]  # fmt: skip
    assert Schema.from_json(schema.to_json()) == schema
    assert types.to_json(UUID) == "uuid"
