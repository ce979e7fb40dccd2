"""The key encoding orders as the tuples do, and every bound decodes to values that cut where it cuts."""

import datetime as dt
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import BadKeyError, KeyRange, Schema
from lakebed.model.keys import EncodedRange, iter_ranges, shortest_separator, successor

NAIVE = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - what it is that is refused

VALUES = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8"), max_size=6) | st.text("a\x00\U0001f600\uffff", max_size=4),
    "binary": st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=4).map(bytes),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
    "timestamp[us, tz=UTC]": st.datetimes(timezones=st.just(dt.UTC)),
}


def sortable(value):
    """Text orders by its UTF-8 bytes, everything else as Python has it."""
    return value.encode() if isinstance(value, str) else value


@st.composite
def schemas_and_keys(draw, keys=2):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    schema = Schema({f"f{i}": kind for i, kind in enumerate(kinds)})
    return schema, [tuple(draw(VALUES[kind]) for kind in kinds) for _ in range(keys)]


@given(schemas_and_keys(keys=1), st.text(max_size=3))
def test_the_row_keys_part_of_a_longer_encoding_is_its_beginning(case, more):
    schema, [key] = case
    longer = Schema({field.name: str(field.type) for field in schema.row_key} | {"more": "string"})
    assert schema.codec.beginning(longer.codec.encode((*key, more))) == schema.codec.encode(key)
    assert schema.codec.beginning(schema.codec.encode(key[:1])) == schema.codec.encode(key[:1])


@given(schemas_and_keys())
def test_encodings_compare_as_the_tuples_do(case):
    """Less, equal, greater: the same on both sides, for every type and any number of fields."""
    schema, (a, b) = case
    x, y = schema.codec.encode_key(a), schema.codec.encode_key(b)

    tuples = tuple(map(sortable, a)), tuple(map(sortable, b))
    assert (x < y, x == y) == (tuples[0] < tuples[1], tuples[0] == tuples[1])


@given(schemas_and_keys(keys=5))
def test_columns_encode_as_single_keys_do(case):
    """The vectorised encoding, the one of an Arrow row and the one of Python values agree."""
    schema, keys = case
    columns = {f.name: pa.array([key[i] for key in keys], f.type) for i, f in enumerate(schema.row_key)}
    table = pa.table(columns).slice(1)
    expected = [schema.codec.encode_key(key) for key in keys[1:]]

    assert schema.codec.encode_columns(table).to_pylist() == expected
    assert [schema.codec.encode_row(table, i) for i in range(len(expected))] == expected


@given(schemas_and_keys(), st.integers(0, 60), st.booleans())
def test_a_cut_or_succeeding_bound_decodes_to_values_that_cut_alike(case, length, after):
    """Any beginning of a key at a character border, or its successor, is the same cut as bytes and as values."""
    schema, (key, other) = case
    bound = schema.codec.encode_key(key)
    if after:
        bound = successor(bound)
    else:
        bound = bound[:length]
        while bound and len(bound) < len(schema.codec.encode_key(key)) and _inside_character(schema, key, len(bound)):
            bound = bound[:-1]
    if bound is None:
        return
    decoded = schema.codec.decode_bound(bound)

    values = tuple(_raw(field, value) for field, value in zip(schema.row_key, other, strict=True))
    prefix = tuple(map(sortable, values))[: len(decoded.values)]
    wanted = tuple(map(sortable, decoded.values))
    above = prefix > wanted if decoded.after else prefix >= wanted
    assert above == (schema.codec.encode_key(other) >= bound)


def _inside_character(schema, key, length):
    return schema.codec.encode_key(key)[length] & 0xC0 == 0x80


def _raw(field, value):
    return field.to_integer(value) if isinstance(value, dt.date) else value


@given(schemas_and_keys())
def test_a_prefix_range_holds_exactly_the_keys_that_begin_so(case):
    """For every length of prefix."""
    schema, (key, other) = case
    for length in range(1, len(key) + 1):
        keys = schema.codec.encode_range(KeyRange.prefix(*key[:length]))
        assert keys.contains(schema.codec.encode_key(key))
        assert keys.contains(schema.codec.encode_key(other)) == (other[:length] == key[:length])


@given(VALUES["string"], VALUES["string"])
def test_starts_with_is_the_range_of_texts_that_begin_so(stem, text):
    """Also beyond the basic plane, where a UTF-16 order would be another."""
    schema = Schema({"k": "string"})
    keys = schema.codec.encode_range(KeyRange.starts_with(stem))
    assert keys.contains(schema.codec.encode_key((text,))) == text.startswith(stem)


@given(schemas_and_keys())
def test_a_separator_divides_two_keys_and_is_no_longer_than_needed(case):
    """Above the lower one, at most the upper one."""
    schema, keys = case
    low, high = sorted(map(schema.codec.encode_key, keys))
    if low == high:
        return
    separator = shortest_separator(low, high)
    assert low < separator <= high
    assert high.startswith(separator)


@given(st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=5), st.binary(max_size=3))
def test_joined_ranges_hold_what_any_of_them_holds_once(pairs, key):
    """In order, apart from each other."""
    ranges = [EncodedRange(low, high) for low, high in pairs]
    joined = list(iter_ranges(ranges))

    assert sum(r.contains(key) for r in joined) == any(r.contains(key) for r in ranges)
    assert all(a.max is not None and a.max < b.min for a, b in itertools.pairwise(joined))


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("int32", 2**31, "does not fit"),
        ("int64", 1.0, "is float"),
        ("int64", True, "is bool"),
        ("string", b"a", "is bytes"),
        ("string", "\ud800", "surrogate"),
        ("string", None, "null"),
        ("string", "x" * 8192, "8192"),
        ("binary", "a", "is str"),
        ("date32[day]", NAIVE, "is datetime"),
        ("timestamp[s]", NAIVE.replace(microsecond=1), "finer"),
        ("timestamp[s, tz=UTC]", NAIVE, "time zone"),
        ("timestamp[s]", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "without"),
    ],
)
def test_a_value_that_the_key_cannot_hold_is_named(kind, value, says):
    """The message names the field and what is wrong with the value."""
    with pytest.raises(BadKeyError, match=says):
        Schema({"k": kind}).codec.encode_key((value,))


def test_ranges_that_make_no_sense_are_refused_and_empty_ones_are_not():
    """Upside down is an error; equal bounds hold nothing."""
    codec = Schema({"a": "string", "b": "int64"}).codec
    with pytest.raises(BadKeyError, match="above its maximum"):
        codec.encode_range(KeyRange(("b",), ("a",)))
    with pytest.raises(BadKeyError, match="2 fields"):
        codec.encode_range(KeyRange(("b", 1, 2), None))
    assert codec.encode_range(KeyRange(("a", 5), ("a",), max_inclusive=True)).contains(codec.encode_key(("a", 7)))
    assert codec.encode_range(KeyRange("a", "a")).empty
    assert codec.encode_range(KeyRange()) == EncodedRange()


@given(schemas_and_keys(keys=5))
def test_whole_keys_become_the_columns_they_were_encoded_of(case):
    schema, keys = case
    encoded = [schema.codec.encode_key(key) for key in keys]
    columns = schema.codec.decode_columns(encoded)
    assert columns.schema.types == [field.type for field in schema.row_key]
    assert [tuple(row.values()) for row in columns.to_pylist()] == keys
    assert schema.codec.encode_columns(columns).to_pylist() == encoded
