"""What is sent as JSON lines is read back as it was."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa

import lakebed
from lakebed.files.formats.json_lines import read_json_lines
from lakebed.files.formats.row_chunks import json_lines

KINDS = {
    "i": pa.uint64(),
    "f": pa.float32(),
    "t": pa.string(),
    "b": pa.binary(),
    "flag": pa.bool_(),
    "d": pa.decimal128(20, 4),
    "day": pa.date32(),
    "us": pa.timestamp("us", "UTC"),
    "ns": pa.timestamp("ns"),
    "l": pa.list_(pa.binary()),
    "s": pa.struct([("x", pa.int8()), ("y", pa.list_(pa.timestamp("ms")))]),
    "m": pa.map_(pa.string(), pa.decimal128(5, 1)),
}
ROWS = [
    {
        "i": 2**64 - 1,
        "f": float("-inf"),
        "t": 'é"\n',
        "b": b"\0\xff",
        "flag": False,
        "d": Decimal("-1234567890.1234"),
        "day": dt.date(2026, 1, 31),
        "us": dt.datetime(1900, 1, 1, 12, tzinfo=dt.UTC),
        "ns": 1_700_000_000_123_456_789,
        "l": [b"", None, b"x"],
        "s": {"x": -1, "y": [dt.datetime(2026, 1, 1)]},  # noqa: DTZ001 - a time without a zone
        "m": [("a", Decimal("1.5")), ("b", None)],
    },
    dict.fromkeys(KINDS),
    {**dict.fromkeys(KINDS), "l": [], "s": {"x": None, "y": None}, "m": []},
]


def test_all_types_survive() -> None:
    schema = lakebed.Schema({"k": "int64"}, {}, KINDS)
    columns = {"k": pa.array(range(len(ROWS)), pa.int64())}
    columns |= {name: pa.array([row[name] for row in ROWS], kind) for name, kind in KINDS.items()}
    table = pa.table(columns)
    # A batch that begins inside of its arrays, as those of a read do.
    (batch,) = table.slice(1).to_batches()
    for rows in (table.to_batches()[0], batch):
        sent = b"".join(json_lines(rows.schema, [rows]))
        found = read_json_lines(io.BufferedReader(io.BytesIO(sent)), {f.name: f.type for f in schema.fields}, "sent")
        assert pa.Table.from_batches(found).to_pylist() == pa.table(rows).to_pylist()
