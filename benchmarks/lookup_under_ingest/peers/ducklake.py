"""DuckLake in DuckDB: a table sorted by key, the catalog a DuckDB file, or SQLite where several processes write.

The extensions come as packages, so that nothing is fetched while it runs. Maintenance merges adjacent files.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.lookup_under_ingest.peers import Peer

COLUMNS = "key VARCHAR, ts BIGINT, count BIGINT, value VARCHAR"


def extension(name: str) -> Path:
    """Return the file of an extension that was installed as a package."""
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package duckdb-extension-{name} is not installed")
    return Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"


class DuckLake(Peer):
    packages = ("duckdb", "duckdb-extension-ducklake", "pyarrow")

    @property
    def shared(self) -> Path:
        return self.folder / "catalog.sqlite"

    def create(self) -> None:
        self.attach(f"ducklake:{self.folder}/catalog.ducklake")
        self.make_table()

    def create_for_many(self) -> None:
        self.attach(f"ducklake:sqlite:{self.shared}")
        self.make_table()

    def make_table(self) -> None:
        self.connection.execute(f"CREATE TABLE lake.t ({COLUMNS})")
        self.connection.execute("ALTER TABLE lake.t SET SORTED BY (key ASC)")

    def open(self) -> None:
        self.close()
        self.attach(
            f"ducklake:sqlite:{self.shared}" if self.shared.exists() else f"ducklake:{self.folder}/catalog.ducklake"
        )

    def attach(self, catalog: str) -> None:
        self.connection = duckdb.connect()
        if catalog.startswith("ducklake:sqlite:"):
            self.connection.execute(f"LOAD '{extension('sqlite_scanner')}'")
        self.connection.execute(f"LOAD '{extension('ducklake')}'")
        self.connection.execute(f"ATTACH '{catalog}' AS lake (DATA_PATH '{self.folder}/data')")

    def append(self, rows: pa.Table) -> None:
        self.connection.register("new_rows", rows)
        self.connection.execute("INSERT INTO lake.t SELECT * FROM new_rows")

    def get(self, key: str) -> pa.Table:
        return self.connection.execute("SELECT * FROM lake.t WHERE key = ?", [key]).to_arrow_table()

    def range(self, min: str, max: str) -> pa.Table:
        question = "SELECT * FROM lake.t WHERE key >= ? AND key < ? ORDER BY key"
        return self.connection.execute(question, [min, max]).to_arrow_table()

    def upsert(self, rows: pa.Table) -> None:
        self.connection.register("new_rows", rows)
        self.connection.execute(
            "MERGE INTO lake.t USING new_rows AS s ON t.key = s.key "
            "WHEN MATCHED THEN UPDATE SET ts = s.ts, count = s.count, value = s.value "
            "WHEN NOT MATCHED THEN INSERT VALUES (s.key, s.ts, s.count, s.value)"
        )

    def delete(self, min: str, max: str) -> None:
        self.connection.execute("DELETE FROM lake.t WHERE key >= ? AND key < ?", [min, max])

    def maintain(self) -> None:
        self.connection.execute("CALL ducklake_merge_adjacent_files('lake')")

    def count(self) -> int:
        return self.connection.execute("SELECT count(*) FROM lake.t").fetchone()[0]

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()


PEER = DuckLake
