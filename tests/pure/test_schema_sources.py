"""Schemas from annotations, classes and Arrow data, and as JSON."""

import dataclasses
import datetime as dt
import enum
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import polars as pl
import pyarrow as pa
import pydantic
import pytest

from lakebed import Schema, UsageError
from lakebed.model.schema import Generated
from tests import pages


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    x: float
    y: float | None


Cents = NewType("Cents", int)


@dataclasses.dataclass
class Sale:
    shop: str
    at: dt.datetime
    number: int
    day: dt.date
    clock: dt.time
    place: Place
    colour: Colour
    side: Literal["left", "right"]
    tags: list[str]
    marks: Sequence[int | None]
    counts: dict[str, int]
    raw: bytes | None
    cents: Cents
    price: Annotated[Decimal, pa.decimal128(10, 2)]
    small: Annotated[int, pa.int8()] | None = None
    paid: bool = False


ARROW = {
    "shop": pa.string(),
    "at": pa.timestamp("us"),
    "number": pa.int64(),
    "day": pa.date32(),
    "clock": pa.time64("us"),
    "place": pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("y", pa.float64())]),
    "colour": pa.string(),
    "side": pa.string(),
    "tags": pa.list_(pa.string()),
    "marks": pa.list_(pa.int64()),
    "counts": pa.map_(pa.string(), pa.int64()),
    "raw": pa.binary(),
    "cents": pa.int64(),
    "price": pa.decimal128(10, 2),
    "small": pa.int8(),
    "paid": pa.bool_(),
}


def test_a_dataclass_gives_the_type_of_each_annotation_and_null_only_where_it_allows_none():
    schema = Schema.of(Sale, key="shop", sort_key=["at"])
    assert {field.name: field.type for field in schema.fields} == ARROW
    assert [field.name for field in schema.fields if field.nullable] == ["raw", "small"]
    assert (schema.row_key_names, schema.sort_names) == (("shop",), ("shop", "at"))


def test_a_pydantic_model_gives_its_fields_with_what_their_metadata_says():
    class Order(pydantic.BaseModel):
        id: pydantic.PositiveInt
        at: pydantic.AwareDatetime
        total: Decimal = pydantic.Field(max_digits=9, decimal_places=3)
        discount: Decimal | None = pydantic.Field(None, max_digits=5, decimal_places=1)
        part: Annotated[int, pa.int16()] = 3

    schema = Schema.of(Order, key="id")
    assert {field.name: str(field.type) for field in schema.fields} == {
        "id": "int64",
        "at": "timestamp[us, tz=UTC]",
        "total": "decimal128(9, 3)",
        "discount": "decimal128(5, 1)",
        "part": "int16",
    }
    assert [field.name for field in schema.fields if field.nullable] == ["discount"]


class Pair(NamedTuple):
    k: str
    v: int


class Typed(TypedDict):
    k: str
    v: int


@pytest.mark.parametrize(
    "source",
    [
        {"k": str, "v": pa.field("v", pa.int64(), nullable=False)},
        Pair,
        Typed,
        pa.schema([pa.field("v", pa.int64(), nullable=False), ("k", pa.large_string())]),
    ],
    ids=["dict", "named tuple", "typed dict", "Arrow"],
)
def test_all_sources_give_the_same_schema(source):
    assert Schema.of(source, key=["k"]) == Schema({"k": "string"}, (), {"v": pa.field("v", pa.int64(), nullable=False)})


def test_data_gives_the_schema_of_its_columns():
    assert Schema.of(pl.DataFrame({"k": ["a"], "v": [1.5]}), key="k") == Schema({"k": "string"}, (), {"v": "double"})
    lazy = pl.LazyFrame({"k": ["a"], "v": [1.5]}).with_columns(w=pl.col("v") > 1)
    assert Schema.of(lazy, key="k") == Schema({"k": "string"}, (), {"v": "double", "w": "bool"})
    assert Schema.of(pa.table({"k": ["a"], "v": [1.5]}), key="k") == Schema({"k": "string"}, (), {"v": "double"})


def test_python_types_stand_for_arrow_types_in_every_group():
    assert Schema({"k": int}, {"t": dt.date}, {"v": float, "w": list[str] | None}) == Schema(
        {"k": "int64"}, {"t": "date32"}, {"v": "double", "w": pa.list_(pa.string())}
    )


@dataclasses.dataclass
class Unknown:
    k: str
    v: "Missing"  # noqa: F821 - there is none


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schema.of(Sale, key="raw"), "key field raw of Sale may be None: keys are never null"),
        (lambda: Schema.of(Sale, key="zz"), "key column 'zz' is not in the data; its columns: shop, at, number"),
        (lambda: Schema.of(Sale, key="shopp"), "paid; did you mean 'shop'?"),
        (lambda: Schema.of(Place(1.0, None), key="x"), "give Place, not one of its values"),
        (lambda: Schema.of(Unknown, key="k"), "cannot resolve the annotations of Unknown: name 'Missing'"),
        (lambda: Schema.of(int, key="k"), "int has no fields; give a dataclass, a pydantic model"),
        (lambda: Schema.of(3, key="k"), "cannot read a schema from 3; give a dict of names and types"),
        (lambda: Schema.of({"k": int}, key=[]), "needs at least one row key field: give key="),
        (lambda: Schema.of({"k": int}, key=3), "key is a name, or a list of names, not 3"),
        (lambda: Schema.of({"k": int}, key=["k", "k"]), "a field is named twice"),
        (lambda: Schema.of({3: int}, key="k"), "not a name for a field: 3"),
        (lambda: Schema.of({"k": Decimal}, key="k"), "field k: a Decimal needs its digits"),
        (lambda: Schema.of({"k": int, "v": int | str}, key="k"), "field v: int | str has no Arrow type"),
        (lambda: Schema.of({"k": int, "v": Any}, key="k"), "field v: Any has no Arrow type"),
        (lambda: Schema.of({"k": int, "v": list}, key="k"), "field v: list has no Arrow type"),
        (lambda: Schema({"k": 3}), "field k: not a type: 3"),
        (lambda: Schema.of(pa.schema([("k", pa.int64())] * 2), key="k"), "duplicate column names: k"),
        (lambda: Schema.from_json({"row_key": {"k": {"type": "string", "nullable": True}}}), "cannot be nullable"),
        (lambda: Schema.from_json({"row_key": {"k": {"typ": "string"}}}), "not a type"),
    ],
)
def test_what_has_no_schema_is_refused_with_a_remedy(make, says):
    with pytest.raises(UsageError) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        Schema.of(Sale, key="shop", sort_key="at"),
        Schema({"day": Generated("date32", "cast(at as date)"), "k": "int32"}, {}, {"at": "timestamp[us, tz=UTC]"}),
        Schema({"k": "string"}),
    ],
)
def test_the_declaration_of_a_schema_is_json_that_gives_it_back(schema):
    declared = schema.declaration()
    assert Schema.from_json(json.dumps(declared)).declaration() == declared
    assert Schema.from_json(declared).arrow == schema.arrow


def test_the_code_of_the_page_on_schemas_gives_what_stands_beside_it():
    blocks = pages.blocks("docs/schemas.md", "python")
    # The names of this module: annotations are resolved in the module of their class.
    names = dict(globals())
    assert sum(pages.run(block, names) for block in blocks) == 8
