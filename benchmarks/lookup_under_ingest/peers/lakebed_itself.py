"""Lakebed: one table with the default settings, of which the newest row of a key counts. Writes are durable; every read
looks for newer commits first.
"""

from __future__ import annotations

import pyarrow as pa

import lakebed
from benchmarks.lookup_under_ingest.peers import Peer
from lakebed import KeyRange


class Lakebed(Peer):
    packages = ("lakebed", "pyarrow", "datafusion")

    @property
    def url(self) -> str:
        return str(self.folder / "lake")

    def create(self) -> None:
        schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
        self.table = lakebed.create(self.url).create_table("t", schema, merge=lakebed.Latest())

    def open(self) -> None:
        self.table = lakebed.open(self.url).table("t")

    def append(self, rows: pa.Table) -> None:
        self.table.write(rows)

    def get(self, key: str) -> pa.Table:
        return self.table.get(key)

    def range(self, min: str, max: str) -> pa.Table:
        return self.table.scan(KeyRange(min, max)).read_all()

    def upsert(self, rows: pa.Table) -> None:
        self.table.write(rows)

    def delete(self, min: str, max: str) -> None:
        self.table.delete(where=f"key >= '{min}' AND key < '{max}'")

    def maintain(self) -> None:
        from lakebed import Pipeline

        with Pipeline(lakebed.open(self.url), launcher="in-process") as pipeline:
            pipeline.compact("t", strategy="full")

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.table.scan(columns=["key"]))


PEER = Lakebed
