"""LanceDB: a BTree index on the key, made with the table; ``optimize()``, its maintenance, brings it up to date."""

from __future__ import annotations

import lancedb
import pyarrow as pa
from lancedb.index import BTree

from benchmarks.lookup_under_ingest.peers import Peer
from benchmarks.lookup_under_ingest.rows import COLUMNS


class Lance(Peer):
    packages = ("lancedb", "pyarrow")

    def create(self) -> None:
        self.table = lancedb.connect(str(self.folder / "lance")).create_table("t", schema=COLUMNS)
        self.table.create_index("key", config=BTree())

    def open(self) -> None:
        self.table = lancedb.connect(str(self.folder / "lance")).open_table("t")

    def append(self, rows: pa.Table) -> None:
        self.table.add(rows)

    def refresh(self) -> None:
        self.table.checkout_latest()

    def get(self, key: str) -> pa.Table:
        return self.table.search().where(f"key = '{key}'").to_arrow()

    def range(self, min: str, max: str) -> pa.Table:
        found = self.table.search().where(f"key >= '{min}' AND key < '{max}'").limit(1_000_000)
        return found.to_arrow().sort_by("key")

    def upsert(self, rows: pa.Table) -> None:
        merge = self.table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)

    def delete(self, min: str, max: str) -> None:
        self.table.delete(f"key >= '{min}' AND key < '{max}'")

    def maintain(self) -> None:
        self.table.optimize()

    def count(self) -> int:
        self.refresh()
        return self.table.count_rows()


PEER = Lance
