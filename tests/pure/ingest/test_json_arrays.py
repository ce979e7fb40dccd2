"""Arrays of JSON, whose elements are read from pieces of any size."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest

from lakebed.errors import SchemaMismatchError
from lakebed.files.formats.json_lines import line_of, read_json_lines

ROWS = [{"n": n, "s": 'é[{"\\\\' * n, "x": [{"y": -1.5e3}] * (n % 3), "ok": None if n % 2 else True} for n in range(40)]


def read(data: bytes, **how: Any) -> list[dict[str, object]]:
    file = io.BufferedReader(io.BytesIO(data))
    return [row for batch in read_json_lines(file, {}, "in", **how) for row in batch.to_pylist()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_elements_are_found_wherever_the_pieces_end(size: int, indent: int | None) -> None:
    data = json.dumps(ROWS, indent=indent, ensure_ascii=False).encode()
    assert read(data, piece_bytes=size) == ROWS
    begun = [number for number, line in enumerate(data.splitlines(), 1) if line.startswith(b"  {")]
    for row in (0, 5, 39):
        assert line_of(io.BufferedReader(io.BytesIO(data)), row, piece_bytes=size) == (begun[row] if indent else 1)


def test_of_a_part_of_a_file_the_whole_elements_are_read() -> None:
    data = json.dumps(ROWS).encode()
    for end in range(1, len(data), 97):
        found = read(data[:end], whole=False)
        assert found == ROWS[: len(found)]
    assert len(read(data[:-2], whole=False)) == len(ROWS) - 1


def test_a_fault_at_the_beginning_is_found_without_the_rest_of_the_file() -> None:
    data = b'[{"n": oops}' + b" " * 30_000_000 + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(SchemaMismatchError, match="line 1 is not JSON: Expecting value"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
