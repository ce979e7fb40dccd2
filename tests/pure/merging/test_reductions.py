"""Reductions by NumPy give what Arrow's own aggregates of groups give."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.files.merging.aggregates import Groups, reduced

DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))
VALUES: dict[pa.DataType, Any] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.uint8(): st.integers(0, 2**8 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.integers(0, 9),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): DAYS,
    pa.timestamp("us"): DAYS.map(lambda day: dt.datetime(day.year, day.month, day.day)),  # noqa: DTZ001
    pa.time64("us"): st.times(),
}
FINITE = st.floats(0, 2.0**60, width=32)
"""Of one sign: the order of additions shows in the last bits only."""

SUMMED = [kind for kind in VALUES if not pa.types.is_temporal(kind)]
CASES = [(name, kind) for name in ("min", "max") for kind in VALUES] + [("sum", kind) for kind in SUMMED]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=str)
@settings(max_examples=settings.default.max_examples // 3)
@given(data=st.data())
def test_a_reduction_is_that_of_arrow(name, kind, data):
    of = FINITE if name == "sum" and pa.types.is_floating(kind) else VALUES[kind]
    values = data.draw(st.lists(of | st.none() if data.draw(st.booleans()) else of, min_size=1))
    column = pa.concat_arrays([pa.nulls(1, kind), pa.array(values, kind)]).slice(1)
    begins = sorted({0, *data.draw(st.sets(st.integers(0, len(values) - 1)))})
    groups = Groups(np.array(begins), len(values))

    found = reduced(name, column, groups)

    if found is None:
        large = pa.types.is_integer(kind) and any(abs(value or 0) * len(values) > 2**63 - 1 for value in values)
        assert (name == "sum" and large) or (pa.types.is_floating(kind) and None in values)
        return
    wide = pa.float64() if name == "sum" and pa.types.is_floating(kind) else kind
    rows = pa.table({"group": groups.numbers(), "value": column.cast(wide)})
    wanted = rows.group_by("group", use_threads=False).aggregate([("value", name)])[f"value_{name}"].to_pylist()
    if name == "sum" and pa.types.is_floating(kind):
        # The additions are the same ones in another order.
        assert found.to_pylist() == pytest.approx(wanted, rel=1e-9, nan_ok=True)
    else:
        assert list(map(shown, found.to_pylist())) == list(map(shown, wanted))


def shown(value: Any) -> str:
    """NaN equals itself so, and the two zeros each other."""
    return repr(value + 0 if isinstance(value, float) else value)


def test_what_numpy_does_not_hold_is_left_to_others():
    groups = Groups(np.array([0]), 2)
    assert reduced("max", pa.array(["a", "b"]), groups) is None
    assert reduced("sum", pa.array([1, 2], pa.decimal128(5)), groups) is None
    assert reduced("sum", pa.array([2**62, 2**62]), groups) is None
    assert reduced("sum", pa.array([2**63, 1], pa.uint64()), groups) is None
    assert reduced("min", pa.array([1.0, None]), groups) is None
