"""Texts of PostgreSQL as values of Arrow; what the server would write is written here by Python."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.upkeep.follow.postgres_values import BY_OID, TEXT, numeric, parse_array
from lakebed.upkeep.follow.row_buffer import column

times = st.datetimes()
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def stamp(value):
    return value.isoformat(" ")


VALUES = {
    16: (st.booleans(), lambda one: "t" if one else "f"),
    17: (st.binary(max_size=20), lambda one: "\\x" + one.hex()),
    20: (st.integers(-(2**63), 2**63 - 1), str),
    21: (st.integers(-(2**15), 2**15 - 1), str),
    23: (st.integers(-(2**31), 2**31 - 1), str),
    701: (st.floats(allow_nan=False), lambda one: str(one).replace("inf", "Infinity")),
    1082: (times.map(dt.datetime.date), str),
    1083: (st.times(), str),
    1114: (times, stamp),
    1184: (times.map(lambda one: one.replace(tzinfo=dt.UTC)), lambda one: stamp(one).removesuffix(":00")),
    2950: (st.uuids(), str),
    3802: (st.dictionaries(texts, st.integers(), max_size=3).map(json.dumps), str),
}


@pytest.mark.parametrize("oid", VALUES)
@given(st.data())
def test_a_value_is_the_one_that_the_server_wrote(oid, data):
    strategy, written = VALUES[oid]
    wanted = data.draw(st.lists(st.none() | strategy, max_size=10))
    given_ = [None if one is None else written(one).encode() for one in wanted]
    found, wrong = column(BY_OID[oid], given_)
    assert found.to_pylist() == wanted
    assert wrong == {}


def array_text(items):
    def item(one):
        if one is None:
            return "NULL"
        return '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(item, items)) + "}"


@given(st.lists(st.none() | st.lists(st.none() | texts, max_size=5), max_size=6))
def test_an_array_has_its_items(wanted):
    given_ = [None if one is None else array_text(one).encode() for one in wanted]
    found, wrong = column(TEXT.listed(), given_)
    assert found.to_pylist() == wanted
    assert wrong == {}


@given(st.lists(st.none() | st.integers(-5, 5), max_size=6))
def test_items_without_quotes_are_read_too(wanted):
    text = "{" + ",".join("NULL" if one is None else str(one) for one in wanted) + "}"
    found, _ = column(BY_OID[23].listed(), [text.encode()])
    assert found.to_pylist() == [wanted]


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "", '{"a', "{1"])
def test_an_array_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="dimension"):
        parse_array(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BY_OID[1082], "infinity"),
        (BY_OID[1082], "0044-03-15 BC"),
        (BY_OID[1082], "10000-01-01"),
        (BY_OID[1114], "-infinity"),
        (BY_OID[1114], "0044-03-15 00:00:00 BC"),
        (BY_OID[1083], "24:00:00"),
        (BY_OID[23].listed(), "{{1},{2}}"),
        (numeric((10 << 16 | 2) + 4), "NaN"),
        (BY_OID[2950], "7f1e"),
    ],
)
def test_a_value_that_no_field_holds_is_named_and_the_others_are_there(kind, text):
    found, wrong = column(kind, [None, text.encode(), None])
    assert found.to_pylist() == [None, None, None]
    assert [*wrong] == [1]
    assert text in wrong[1]


@given(st.decimals(-(10**7), 10**7, places=2, allow_nan=False))
def test_a_numeric_is_a_decimal_of_its_precision(value):
    found, _ = column(numeric((10 << 16 | 2) + 4), [str(value).encode()])
    assert found.type == pa.decimal128(10, 2)
    assert found.to_pylist() == [Decimal(value)]


@pytest.mark.parametrize("modifier", [-1, (100 << 16 | 2) + 4, (10 << 16 | 0x7FE) + 4])
def test_a_numeric_that_no_decimal_holds_is_text(modifier):
    """Without a precision, with more than 76 digits, with a negative scale."""
    assert numeric(modifier) is TEXT


def test_uuids_beside_nulls():
    wanted = [uuid.UUID(int=5), None]
    found, _ = column(BY_OID[2950], [str(wanted[0]).encode(), None])
    assert found.to_pylist() == wanted
