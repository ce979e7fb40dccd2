"""Iceberg through pyiceberg: a SQL catalog in SQLite, appends, filtered scans, upserts; it has no maintenance."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan

from benchmarks.lookup_under_ingest.peers import NotOffered, Peer
from benchmarks.lookup_under_ingest.rows import COLUMNS


class Iceberg(Peer):
    packages = ("pyiceberg", "pyarrow", "sqlalchemy")

    @property
    def catalog(self) -> SqlCatalog:
        warehouse = self.folder / "warehouse"
        warehouse.mkdir(exist_ok=True)
        return SqlCatalog("local", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{warehouse}")

    def create(self) -> None:
        catalog = self.catalog
        catalog.create_namespace("n")
        self.table = catalog.create_table(("n", "t"), COLUMNS)

    def open(self) -> None:
        self.table = self.catalog.load_table(("n", "t"))

    def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def refresh(self) -> None:
        self.table.refresh()

    def get(self, key: str) -> pa.Table:
        return self.table.scan(row_filter=EqualTo("key", key)).to_arrow()

    def range(self, min: str, max: str) -> pa.Table:
        inside = And(GreaterThanOrEqual("key", min), LessThan("key", max))
        return self.table.scan(row_filter=inside).to_arrow().sort_by("key")

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows, join_cols=["key"])

    def delete(self, min: str, max: str) -> None:
        self.table.delete(And(GreaterThanOrEqual("key", min), LessThan("key", max)))

    def maintain(self) -> None:
        raise NotOffered("no compaction from Python")

    def count(self) -> int:
        self.refresh()
        return self.table.scan().count()


PEER = Iceberg
