"""Random tables of random schemas, and what is true of them said in plain Python: the reference for the kernels."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakebed import Schema
from lakebed.files.parquet.layout import Layout
from lakebed.model.keys import KeyCodec

# Few values each, so that keys repeat, and the ones that orders get wrong: signs, zeros, long prefixes, code points
# that UTF-16 orders otherwise, bytes above 0x7F.
KEYS: dict[str, list[Any]] = {
    "int32": [-(2**31), -1, 0, 1, 2**31 - 1],
    "int64": [-(2**63), -256, -1, 0, 255, 2**63 - 1],
    "string": ["", "a", "a\x00", "a\x00b", "aa", "é", "\uffff", "\U0001f600", "\U0010ffff"],
    "binary": [b"", b"\x00", b"\x00\x01", b"\x7f", b"\x80", b"\xff", b"\xff\x00"],
    "date32[day]": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "timestamp[s]": [dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(2262, 1, 1)],  # noqa: DTZ001
    "timestamp[us, tz=UTC]": [dt.datetime(y, 1, 1, microsecond=y, tzinfo=dt.UTC) for y in (1, 1969, 1970, 9999)],
}


@dataclass(frozen=True)
class Case:
    """A schema, rows as tuples of its columns, and a layout small enough to cut them everywhere."""

    schema: Schema
    rows: list[tuple[Any, ...]]
    layout: Layout

    def batches(self, size: int) -> list[pa.RecordBatch]:
        return [batch_of(self.schema, self.rows[i : i + size]) for i in range(0, len(self.rows), size)]

    def sorted_keys(self) -> list[tuple[bytes, ...]]:
        return sorted(sort_keys(self.schema, batch_of(self.schema, self.rows)))


def batch_of(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema.fields)]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def keys_of(schema: Schema, rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    keys: list[bytes] = schema.codec.encode_columns(rows).to_pylist()
    return keys


def sort_keys(schema: Schema, rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """Row key and sort key as one byte string each, which compares as they do."""
    keys: list[bytes] = KeyCodec((*schema.row_key, *schema.sort_key)).encode_columns(rows).to_pylist()
    return keys


def multiset(rows: pa.Table | pa.RecordBatch) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def small_layout(schema: Schema, **changes: Any) -> Layout:
    form = {"file_bytes": 1_500, "page_rows": 3, "page_bytes": 1024, "row_group_rows": 7, "bloom_fpp": 0.01}
    return Layout(schema, **{**form, **changes})


def bench_schema() -> Schema:
    return Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})


def bench_rows(numbers: range | list[int]) -> pa.RecordBatch:
    """Rows whose key is the number's, in the order given."""
    schema = bench_schema()
    rows = [(f"user-{n:08d}", n * 7 % 1000, n % 10, f"{n * 2654435761 % 2**32:032x}") for n in numbers]
    return batch_of(schema, rows)


@st.composite
def cases(draw: st.DrawFn, rows_max: int = 60) -> Case:
    row_kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    sort_kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=1))
    schema = Schema(
        {f"row {i}": kind for i, kind in enumerate(row_kinds)},
        {f'sort."{i}': kind for i, kind in enumerate(sort_kinds)},
        {"N": "int64", "list": pa.list_(pa.string())},
    )
    keys = st.tuples(*(st.sampled_from(KEYS[kind]) for kind in (*row_kinds, *sort_kinds)))
    drawn = draw(st.lists(keys, max_size=rows_max))
    rows = [(*key, n, None if n % 3 else [str(n)]) for n, key in enumerate(drawn)]
    return Case(schema, rows, small_layout(schema, row_group_rows=draw(st.integers(1, 9))))
