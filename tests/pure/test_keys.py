"""The key encoding orders as the tuples do, and every bound decodes to values that cut where it cuts."""

import datetime as dt
import itertools
import math
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import BadKeyError, KeyRange, Schema
from lakebed.model.keys import EncodedRange, iter_ranges, shortest_separator, successor
from lakebed.model.number_keys import decimal_of

NAIVE = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - what it is that is refused

VALUES = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8"), max_size=6) | st.text("a\x00\U0001f600\uffff", max_size=4),
    "binary": st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=4).map(bytes),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
    "timestamp[us, tz=UTC]": st.datetimes(timezones=st.just(dt.UTC)),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint8": st.integers(0, 2**8 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "bool": st.booleans(),
    "float": st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf]),
    "double": st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324]),
    "decimal128(5, 2)": st.decimals(-999, 999, places=2),
    "decimal128(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal256(76, 40)": st.integers(-(10**76) + 1, 10**76 - 1).map(lambda n: decimal_of(n, 40)),
    "time32[s]": st.times().map(lambda time: time.replace(microsecond=0)),
    "time32[ms]": st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
    "time64[us]": st.times(),
    "time64[ns]": st.times(),
    "fixed_size_binary[3]": st.binary(min_size=3, max_size=3),
    "uuid": st.uuids(),
    "timestamp[s]": st.datetimes().map(lambda moment: moment.replace(microsecond=0)),
}


def sortable(value):
    """Text and UUIDs order by their bytes, NaN is above all other numbers, everything else is as Python has it."""
    match value:
        case str():
            return value.encode()
        case UUID():
            return value.bytes
        case float():
            return (True, 0.0) if math.isnan(value) else (False, value)
    return value


@st.composite
def schemas_and_keys(draw, keys=2):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    schema = Schema({f"f{i}": kind for i, kind in enumerate(kinds)})
    return schema, [tuple(draw(VALUES[kind]) for kind in kinds) for _ in range(keys)]


@given(schemas_and_keys(keys=1), st.text(max_size=3))
def test_the_row_keys_part_of_a_longer_encoding_is_its_beginning(case, more):
    schema, [key] = case
    longer = Schema({field.name: field.type for field in schema.row_key} | {"more": "string"})
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


@pytest.mark.parametrize("span", [(0, 1), (1, 2), (1, 1), (2, 1), (0, 4), (4, 0)])
def test_slices_of_text_are_encoded_as_their_values_alone(span):
    """Zeros are escaped, also where only some of the values of a slice have them."""
    schema = Schema({"text": "string", "number": "int32"})
    keys = [("plain", 1), ("", 2), ("a\0b\0", -3), ("é", 4)]
    columns = [pa.array([key[i] for key in keys], field.type) for i, field in enumerate(schema.row_key)]
    rows = pa.RecordBatch.from_arrays(columns, schema.row_key_names).slice(*span)
    expected = [schema.codec.encode_key(key) for key in keys[span[0] : sum(span)]]
    assert schema.codec.encode_columns(rows).to_pylist() == expected


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
    return field.key_type.content_of(value, field.name)


@given(schemas_and_keys())
def test_a_prefix_range_holds_exactly_the_keys_that_begin_so(case):
    """For every length of prefix."""
    schema, (key, other) = case
    for length in range(1, len(key) + 1):
        keys = schema.codec.encode_range(KeyRange.prefix(*key[:length]))
        assert keys.contains(schema.codec.encode_key(key))
        alike = [tuple(map(sortable, one[:length])) for one in (key, other)]
        assert keys.contains(schema.codec.encode_key(other)) == (alike[0] == alike[1])


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
        ("uint8", -1, "does not fit"),
        ("uint64", 2**64, "does not fit"),
        ("int8", 128, "does not fit"),
        ("bool", 1, "is int"),
        ("bool", "true", "is str"),
        ("double", "1.5", "is str"),
        ("double", True, "is bool"),
        ("double", 10**400, "does not fit"),
        ("float", 1e300, "does not fit"),
        ("decimal128(5, 2)", Decimal("1.555"), "more digits"),
        ("decimal128(5, 2)", Decimal("1E-999999"), "more digits"),
        ("decimal128(5, 2)", 1000, "does not fit"),
        ("decimal128(5, 2)", Decimal("1E+999999"), "does not fit"),
        ("decimal128(5, 2)", math.nan, "does not fit"),
        ("time32[s]", dt.time(1, 2, 3, 4), "finer"),
        ("time64[us]", dt.time(1, tzinfo=dt.UTC), "without a time zone"),
        ("time64[us]", 86_400_000_000, "does not fit"),
        ("time64[us]", NAIVE, "is datetime"),
        ("fixed_size_binary[3]", b"ab", "has 2 bytes, not 3"),
        ("uuid", "not-a-uuid", "cannot read"),
        ("uuid", b"ab", "has 2 bytes, not 16"),
        ("uuid", 5, "is int"),
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
    found = [tuple(map(sortable, row)) for row in zip(*columns.to_pydict().values(), strict=True)]
    assert found == [tuple(map(sortable, key)) for key in keys]
    assert schema.codec.encode_columns(columns).to_pylist() == encoded


@pytest.mark.parametrize(
    ("kind", "value", "same"),
    [
        ("double", -0.0, 0.0),
        ("float", -0.0, 0.0),
        ("double", -math.nan, math.nan),
        ("double", 1, 1.0),
        ("float", 0.1, 0.10000000149011612),
        ("decimal128(5, 2)", 1.1, Decimal("1.10")),
        ("decimal128(5, 2)", 2, Decimal("2.00")),
        ("uuid", "6F9619FF-8B86-D011-B42D-00C04FC964FF", UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
        ("uuid", bytes(16), UUID(int=0)),
        ("time64[us]", 45_000_000_000, dt.time(12, 30)),
    ],
)
def test_values_that_are_written_in_several_ways_are_one_key(kind, value, same):
    """Of floats, one zero and one NaN; a float of four bytes is rounded to one."""
    codec = Schema({"k": kind}).codec
    assert codec.encode_key((value,)) == codec.encode_key((same,))


def test_floats_encode_in_total_order():
    """Negative NaNs and negative zeros become the others; the bytes are those of the format."""
    codec = Schema({"k": "double"}).codec
    values = [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.5, math.inf, math.nan]
    encodings = [codec.encode_key((value,)).hex() for value in values]
    assert encodings == sorted(encodings)
    assert encodings[0] == "000fffffffffffff"
    assert encodings[3] == "8000000000000000"
    assert encodings[-1] == "fff8000000000000"
    held = pa.table({"k": pa.array([-0.0, -math.nan])})
    assert codec.encode_columns(held).to_pylist() == [codec.encode_key((value,)) for value in (0.0, math.nan)]


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("timestamp[ns]", "2020-01-01T00:00:00.000000001", 1_577_836_800_000_000_001),
        ("timestamp[ns, tz=UTC]", "2020-01-01T00:00:00.000000001Z", 1_577_836_800_000_000_001),
        ("timestamp[s]", "0000-01-01T00:00:00", -62_167_219_200),
        ("date32", "0000-01-01", -719_528),
        ("date32", "+10000-01-01", 2_932_897),
    ],
)
def test_text_of_a_key_may_name_a_time_that_python_lacks(kind: str, text: str, number: int) -> None:
    field = Schema({"k": kind}, values={"v": "int64"}).row_key[0]
    assert field.parse(text) == number


def test_text_of_a_key_that_is_finer_than_its_type_is_refused() -> None:
    field = Schema({"k": "timestamp[us]"}, values={"v": "int64"}).row_key[0]
    with pytest.raises(BadKeyError, match="cannot read"):
        field.parse("2020-01-01T00:00:00.0000001")


@pytest.mark.parametrize("text", ["1_000", "\uff11\uff12", "\u0663", "1\u00a0", "0x1f", "1,5", "", " ", "+ 1", "1e"])
@pytest.mark.parametrize("kind", ["int64", "uint8", "double", "float", "decimal128(5, 2)"])
def test_text_of_a_key_is_a_number_only_in_the_forms_of_a_file(kind: str, text: str) -> None:
    """Python reads 1_000 and digits of any script, so that a delete named another row than its text says."""
    field = Schema({"k": kind}, values={"v": "int64"}).row_key[0]
    with pytest.raises(BadKeyError, match="cannot read"):
        field.parse(text)


def test_text_of_a_key_beyond_its_floats_is_not_infinity() -> None:
    field = Schema({"k": "double"}, values={"v": "int64"}).row_key[0]
    assert field.parse("-inf") == -math.inf
    with pytest.raises(BadKeyError, match="cannot read '1e999'"):
        field.parse("1e999")


@pytest.mark.parametrize(
    ("kind", "text", "value"), [("int64", " 007 ", 7), ("double", "1e3", 1e3), ("float", "+.5", 0.5)]
)
def test_text_of_a_key_may_have_blanks_zeros_and_signs(kind: str, text: str, value: float) -> None:
    field = Schema({"k": kind}, values={"v": "int64"}).row_key[0]
    assert field.parse(text) == value
