"""JSON values as columns: as they are decoded where they are of one class, and value by value otherwise."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.formats.json_columns import WrittenFloat, decode_array


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
