"""Paimon through pypaimon: a primary-key table in four hash buckets of Parquet; it cannot compact from Python.

Rows are written by pypaimon and asked for by SQL in pypaimon-rust, the faster of its two ways to read. A table with a
primary key makes an upsert of every append.
"""

from __future__ import annotations

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon_rust.datafusion import SQLContext

from benchmarks.lookup_under_ingest.peers import NotOffered, Peer
from benchmarks.lookup_under_ingest.rows import COLUMNS

KEYED = COLUMNS.set(0, pa.field("key", pa.string(), nullable=False))


class Paimon(Peer):
    packages = ("pypaimon", "pypaimon-rust", "pyarrow")

    def create(self) -> None:
        catalog = CatalogFactory.create({"warehouse": str(self.folder)})
        catalog.create_database("d", False)
        options = {"bucket": "4", "file.format": "parquet"}
        catalog.create_table("d.t", Schema.from_pyarrow_schema(KEYED, primary_keys=["key"], options=options), False)
        self.table = catalog.get_table("d.t")
        self.open()

    def open(self) -> None:
        self.sql = SQLContext()
        self.sql.register_catalog("p", {"warehouse": str(self.folder)})

    def append(self, rows: pa.Table) -> None:
        if not hasattr(self, "table"):
            self.table = CatalogFactory.create({"warehouse": str(self.folder)}).get_table("d.t")
        builder = self.table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            write.write_arrow(rows.cast(KEYED))
            commit.commit(write.prepare_commit())
        finally:
            write.close()
            commit.close()

    def get(self, key: str) -> pa.Table:
        return self.ask(f"SELECT * FROM p.d.t WHERE key = '{key}'")

    def range(self, min: str, max: str) -> pa.Table:
        return self.ask(f"SELECT * FROM p.d.t WHERE key >= '{min}' AND key < '{max}' ORDER BY key")

    def ask(self, question: str) -> pa.Table:
        batches = self.sql.sql(question)
        return pa.Table.from_batches(batches) if batches else KEYED.empty_table()

    def upsert(self, rows: pa.Table) -> None:
        self.append(rows)

    def maintain(self) -> None:
        raise NotOffered("no compaction from Python")

    def count(self) -> int:
        return self.ask("SELECT count(*) AS n FROM p.d.t").column("n")[0].as_py()


PEER = Paimon
