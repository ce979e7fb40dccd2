"""Where a value lies in an ascending key column: as a plain list says, for every type of key."""

import pyarrow as pa
import pytest

from lakebed.model.schema import Field
from lakebed.read.rows.point_lookup import equal_range

COLUMNS = {
    "int32": [-(2**31), -5, -5, 0, 7, 7, 7, 2**31 - 1],
    "int64": [-(2**63), -1, 0, 0, 3, 2**40, 2**63 - 1, 2**63 - 1],
    "date32": [-700_000, 0, 0, 19_000],
    "timestamp[us, tz=UTC]": [-1, 0, 0, 10**15],
    "string": ["", "", "a", "a\x00", "a\x00b", "ab", "z", "ä", "ä", "\U0001f600"],
    "binary": [b"", b"\x00", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff"],
}
TYPES = {"date32": pa.date32(), "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC")}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_value_is_found_as_in_a_list(kind):
    values = COLUMNS[kind]
    # Whatever is looked up fits the type of its field.
    between = {one + 1 if isinstance(one, int) else one + one for one in values if one != values[-1]}
    column = pa.array([values[0], *values], TYPES.get(kind, kind)).slice(1)
    field = Field(1, "k", column.type)
    for value in [*values, *between]:
        for low in range(len(values) + 1):
            for high in range(low, len(values) + 1):
                first, last = equal_range(field, column, value, low, high)
                assert range(first, last) == range(
                    low + sum(one < value for one in values[low:high]),
                    low + sum(one <= value for one in values[low:high]),
                )


def test_a_column_without_rows_has_no_value():
    for kind, value in (("string", "a"), ("int64", 1), ("binary", b"")):
        column = pa.array([], kind)
        assert equal_range(Field(1, "k", column.type), column, value, 0, 0) == (0, 0)
