"""Makes the Bloom filter over whole keys that a file has if its key has several fields (docs/format.md, section 7).

Arrow makes filters only for columns, so the encoded keys are written as a column, of which only the filter is kept.
:mod:`lakebed.files.parquet.bloom_filters` reads it.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_FILTER_PAGE_BYTES = 64 * 1024
"""Bytes of a page of encoded keys, which are not kept: small enough to stay in the processor's cache."""


def key_filter(keys: pa.Array, fpp: float) -> pa.Buffer:
    """Return a Bloom filter over encoded keys with its Parquet header, extracted from a file that Arrow writes."""
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    options |= {"data_page_size": _FILTER_PAGE_BYTES, "bloom_filter_options": {"key": {"ndv": len(keys), "fpp": fpp}}}
    sink = _Tail()
    table = pa.table({"key": keys})
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=len(keys))
        begin = sink.begin()
    chunk = writer.writer.metadata.row_group(0).column(0)
    return pa.py_buffer(sink.content).slice(chunk.bloom_filter_offset - begin, chunk.bloom_filter_length)


class _Tail(io.RawIOBase):
    """A file in memory that keeps only the bytes after :meth:`begin`."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._at = 0
        self._keeps = False

    def begin(self) -> int:
        """Keep all bytes written from now on; return their position."""
        self._keeps = True
        return self._at

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any) -> int:
        self._at += len(content)
        if self._keeps:
            self.content += content
        return len(content)
