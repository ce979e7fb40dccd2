"""Arrays made of bytes are what Arrow makes of the same values, slices and empty ones too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model import arrays

INT64 = st.lists(st.integers(-(2**63), 2**63 - 1))


@given(INT64, st.integers(0, 3))
def test_integers_go_in_and_come_out(values, skipped):
    array = arrays.of_integers(np.array(values, np.int64))
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.int64()))
    assert arrays.integers(array.slice(skipped)).tolist() == values[skipped:]


def test_numbers_that_do_not_lie_side_by_side_are_copied():
    assert arrays.of_integers(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]


@given(st.lists(st.binary(max_size=5)))
def test_bytes_become_binary(values):
    array = arrays.of_binary(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))


@given(st.lists(st.booleans()), st.integers(0, 9))
def test_booleans_come_out(values, skipped):
    assert arrays.booleans(pa.array(values, pa.bool_()).slice(skipped)).tolist() == values[skipped:]
