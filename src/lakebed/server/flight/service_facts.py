"""Facts about the service for drivers: ``GetSqlInfo``, by the numbers of the enum ``SqlInfo`` of Flight SQL. Pure.

Numbers that are missing here are limits which Lakebed does not have, or features that it lacks; drivers take a missing
one as zero or no.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from lakebed.model.version import VERSION

_LIST = pa.list_(pa.field("string_data", pa.string()))
_MAP = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_KINDS: tuple[tuple[str, pa.DataType], ...] = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", _LIST),
    ("int32_to_int32_list_map", _MAP),
)
_TEXT, _FLAG, _LONG, _INT, _TEXTS = range(5)

SCHEMA = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union([pa.field(name, kind) for name, kind in _KINDS]), nullable=False),
    ]
)

_VALUES: dict[int, tuple[int, Any]] = {
    0: (_TEXT, "Lakebed"),
    1: (_TEXT, VERSION),
    2: (_TEXT, pa.__version__),
    3: (_FLAG, False),  # read-only: SQL only reads, but bulk ingest writes
    4: (_FLAG, True),  # SQL
    5: (_FLAG, False),  # Substrait
    8: (_INT, 0),  # transactions: none
    9: (_FLAG, True),  # cancellation
    10: (_FLAG, True),  # bulk ingest
    11: (_FLAG, False),  # bulk ingest in transactions
    100: (_INT, 0),  # statement handles: never time out
    101: (_INT, 0),
    500: (_FLAG, False),  # CREATE CATALOG
    501: (_FLAG, False),  # CREATE SCHEMA
    502: (_FLAG, False),  # CREATE TABLE
    503: (_INT, 0),  # names are case-sensitive as they are written, for which there is no value
    504: (_TEXT, '"'),
    505: (_INT, 0),
    506: (_FLAG, True),  # all tables that are listed can be selected
    507: (_INT, 0),  # nulls sort high
    508: (_TEXTS, []),
    509: (_TEXTS, []),
    510: (_TEXTS, []),
    511: (_TEXTS, []),
    512: (_TEXTS, []),
    513: (_TEXT, "\\"),
    514: (_TEXT, ""),
    515: (_FLAG, True),  # AS
    516: (_FLAG, True),  # null || text is null
    518: (_FLAG, True),
    519: (_FLAG, False),
    520: (_FLAG, True),
    521: (_FLAG, True),
    522: (_INT, 0b11),
    523: (_FLAG, True),
    524: (_FLAG, True),
    525: (_INT, 0b11),
    526: (_INT, 0b1),
    527: (_FLAG, False),
    528: (_INT, 2),  # full outer joins
    529: (_TEXT, "schema"),
    530: (_TEXT, "procedure"),
    531: (_TEXT, "catalog"),
    532: (_FLAG, True),
    533: (_INT, 0),
    534: (_INT, 0),
    535: (_INT, 0),
    536: (_FLAG, False),
    537: (_FLAG, False),
    538: (_INT, 0b111),
    539: (_FLAG, True),
    540: (_INT, 0b11),
    **dict.fromkeys((*range(541, 556), *range(557, 562)), (_LONG, 0)),  # no limits
    556: (_FLAG, True),
    562: (_INT, 0),
    563: (_FLAG, False),
    564: (_INT, 0b1),
    565: (_FLAG, False),
    566: (_FLAG, False),
    567: (_INT, 0b11),
}


def facts(wanted: Collection[int]) -> pa.Table:
    """Return the values of these numbers, or all of them, in order; numbers without a value are left out."""
    found = [(number, *_VALUES[number]) for number in sorted(_VALUES) if not wanted or number in wanted]
    children: list[list[Any]] = [[] for _ in _KINDS]
    offsets = []
    for _, kind, value in found:
        offsets.append(len(children[kind]))
        children[kind].append(value)
    union = pa.UnionArray.from_dense(
        pa.array([kind for _, kind, _ in found], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values, kind) for values, (_, kind) in zip(children, _KINDS, strict=True)],
        [name for name, _ in _KINDS],
    )
    return pa.Table.from_arrays([pa.array([number for number, _, _ in found], pa.uint32()), union], schema=SCHEMA)
