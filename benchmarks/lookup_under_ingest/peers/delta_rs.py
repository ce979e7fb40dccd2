"""Delta Lake through delta-rs: appends, SQL by its own QueryBuilder, MERGE, and Z-order as its maintenance."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.lookup_under_ingest.peers import Peer
from benchmarks.lookup_under_ingest.rows import COLUMNS


class DeltaRs(Peer):
    packages = ("deltalake", "pyarrow")

    @property
    def path(self) -> str:
        return str(self.folder / "delta")

    def create(self) -> None:
        write_deltalake(self.path, COLUMNS.empty_table())
        self.open()

    def open(self) -> None:
        self.table = DeltaTable(self.path)
        self.sql = QueryBuilder().register("t", self.table)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.path, rows, mode="append")

    def refresh(self) -> None:
        self.open()

    def get(self, key: str) -> pa.Table:
        return pa.table(self.sql.execute(f"SELECT * FROM t WHERE key = '{key}'").read_all())

    def range(self, min: str, max: str) -> pa.Table:
        found = self.sql.execute(f"SELECT * FROM t WHERE key >= '{min}' AND key < '{max}' ORDER BY key")
        return pa.table(found.read_all())

    def upsert(self, rows: pa.Table) -> None:
        self.refresh()
        merge = self.table.merge(rows, "t.key = s.key", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, min: str, max: str) -> None:
        self.refresh()
        self.table.delete(f"key >= '{min}' AND key < '{max}'")

    def maintain(self) -> None:
        self.refresh()
        self.table.optimize.z_order(["key"])

    def count(self) -> int:
        self.refresh()
        return pa.table(self.sql.execute("SELECT count(*) AS n FROM t").read_all()).column("n")[0].as_py()


PEER = DeltaRs
