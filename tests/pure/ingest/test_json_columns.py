"""JSON values as columns: as they are decoded where they are of one class, and value by value otherwise."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from lakebed.errors import SchemaMismatchError
from lakebed.files.formats.json_lines import WrittenFloat, decode_array, read_json_lines


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, -3], pa.int32(), [1, None, -3]),
        ([1, "2", None], pa.int64(), [1, 2, None]),
        ([1.5, None], pa.float64(), [1.5, None]),
        ([1, 2.5, "NaN", WrittenFloat("0.5")], pa.float32(), [1.0, 2.5, float("nan"), 0.5]),
        (["a", None], pa.string(), ["a", None]),
        ([True, None], pa.bool_(), [True, None]),
        ([None, None], pa.int8(), [None, None]),
        ([], pa.float64(), []),
        (["00ff", "", None, "ABcd"], pa.binary(), [b"\x00\xff", b"", None, b"\xab\xcd"]),
        (["00ff", None], pa.binary(2), [b"\x00\xff", None]),
        ([{"x": [WrittenFloat("1.50")]}, "2", None], pa.json_(), ['{"x":[1.50]}', "2", None]),
    ],
)
def test_values_of_one_class_and_of_several_become_the_same_column(values, kind, expected):
    found = decode_array(values, kind)

    assert found.type == kind
    assert str(found.to_pylist()) == str(expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, True], pa.int64()),
        ([1, 1.5], pa.int64()),
        ([1, 2**40], pa.int32()),
        ([1.5, False], pa.float64()),
        ([1.5, "1,5"], pa.float64()),
        (["a", 1], pa.string()),
        (["2026-01-01", 20260101], pa.date32()),
        (["00ff", "YWJj"], pa.binary()),
        (["00ff", "00f"], pa.binary()),
        (["00ff", "00 ff"], pa.binary()),
        (["00ff", 12], pa.binary()),
    ],
)
def test_a_value_of_another_class_is_refused(values, kind):
    for given in (values, values[1:]):
        with pytest.raises((TypeError, ValueError, KeyError, pa.ArrowException)):
            decode_array(given, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1e-999", pa.float64()),
        ("[1, 1e-999]", pa.list_(pa.float64())),
        ('{"x": 1e-999}', pa.struct([("x", pa.float64())])),
        ('{"x": 1e-999}', pa.map_(pa.string(), pa.float64())),
        ("0." + "0" * 400 + "1", pa.float64()),
        ("1e-999", None),
        ("1e999", pa.float64()),
        ("1e39", pa.float32()),
        ("70000", pa.float16()),
        ("9007199254740993", pa.float64()),
    ],
)
@pytest.mark.parametrize("form", ['{{"x": {}, "y": 1.5}}\n', '[{{"x": {}, "y": 1.5}}]'])
@pytest.mark.parametrize("other", [pa.float64(), pa.decimal128(5, 2)])
def test_a_number_that_a_float_cannot_hold_is_refused(text, kind, form, other):
    fields = {"y": other} if kind is None else {"x": kind, "y": other}

    with pytest.raises(SchemaMismatchError, match=r"line 1(, column x| is not JSON)"):
        list(read_json_lines(io.BufferedReader(io.BytesIO(form.format(text).encode())), fields, "x.json"))


def test_zeros_of_any_form_are_zeros():
    lines = '{"x": 0.0}\n{"x": 0}\n{"x": -0.0e-999}\n{"x": 0.000}\n'

    (rows,) = read_json_lines(io.BufferedReader(io.BytesIO(lines.encode())), {"x": pa.float64()}, "x.json")
    assert rows["x"].to_pylist() == [0.0] * 4


TWICE = [
    '{"x": 1, "x": 2}',
    '{"x": 1, "x": 1}',
    '{"x": 1, "x" \t:2, "s": "\\":"}',
    '{"x": 1, "\\u0078": 2}',
    '{"o": {"a": 1, "a": 2}}',
    '{"m": {"a": 1, "a": 2}}',
    '{"l": [{"a": 1}, {"a": 1, "a": 2}]}',
    '{"j": {"a": {"b": 1, "b": 2}}}',
    '{"u": [{"a": 1, "a": 2}]}',
]
ONCE = ['{"x": 1, "s": "\\":"}', '{"x" : 1}', '{"o": {"a": 1}, "l": [{"a": 1}, {"a": 1}]}', '{"j": {"a": {"a": 1}}}']
TYPES = {
    "x": pa.int64(),
    "s": pa.string(),
    "o": pa.struct([("a", pa.int64())]),
    "m": pa.map_(pa.string(), pa.int64()),
    "l": pa.list_(pa.struct([("a", pa.int64())])),
}


@pytest.mark.parametrize("form", ["{}\n", "[{}]"])
@pytest.mark.parametrize("others", [{}, {"j": pa.json_()}], ids=["fast", "exact"])
def test_an_object_with_two_members_of_a_name_is_refused(form, others):
    for text in TWICE:
        with pytest.raises(SchemaMismatchError, match=r"line 1 is not JSON: an object has the member '[xab]' twice"):
            list(read_json_lines(io.BufferedReader(io.BytesIO(form.format(text).encode())), TYPES | others, "a.json"))
    for text in ONCE:
        assert list(
            read_json_lines(io.BufferedReader(io.BytesIO(form.format(text).encode())), TYPES | others, "a.json")
        )


INSIDE = [
    (pa.list_, []),
    (pa.list_, None),
    (lambda kind: pa.map_(pa.string(), kind), {}),
    (lambda kind: pa.struct([("a", pa.list_(kind))]), {}),
    (lambda kind: pa.struct([("a", pa.map_(pa.string(), kind))]), {"a": {}}),
]
KINDS = [
    pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal256(50, 2), pa.int8(), pa.uint64(),
    pa.bool_(), pa.string(), pa.binary(), pa.binary(2),
    pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "UTC"),
    pa.uuid(), pa.json_(),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_lists_and_maps_without_items_are_read_for_every_type_of_item(kind):
    for around, value in INSIDE:
        assert len(decode_array([value, value], around(kind))) == 2
