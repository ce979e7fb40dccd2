"""SlateDB: keys and values are bytes, so a row's other columns are packed into one value; one process may write.

A put is an upsert. Compaction runs by itself, in the process that writes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Iterable
from typing import Any

import pyarrow as pa
from slatedb.uniffi import DbBuilder, DbReaderBuilder, KeyRange, ObjectStore, WriteBatch

from benchmarks.lookup_under_ingest.peers import NotOffered, Peer
from benchmarks.lookup_under_ingest.rows import COLUMNS

NUMBERS = struct.Struct("<qq")


def rows_from(found: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Return keys and values as rows."""
    unpacked = [(key.decode(), *NUMBERS.unpack_from(value), value[NUMBERS.size :].decode()) for key, value in found]
    columns = [list(column) for column in zip(*unpacked, strict=True)] or [[], [], [], []]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], schema=COLUMNS)


class Slate(Peer):
    packages = ("slatedb", "pyarrow")

    def wait(self, asked: Coroutine[Any, Any, Any]) -> Any:
        if not hasattr(self, "loop"):
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(asked)

    @property
    def place(self) -> tuple[str, ObjectStore]:
        return f"{self.folder}/db".lstrip("/"), ObjectStore.resolve("file:///")

    def create(self) -> None:
        self.read = self.written = self.wait(DbBuilder(*self.place).build())

    def open(self) -> None:
        self.close()
        self.read = self.wait(DbReaderBuilder(*self.place).build())

    def append(self, rows: pa.Table) -> None:
        if not hasattr(self, "written"):
            self.written = self.wait(DbBuilder(*self.place).build())
        batch = WriteBatch()
        columns = (column.to_pylist() for column in rows.columns)
        for key, ts, count, value in zip(*columns, strict=True):
            batch.put(key.encode(), NUMBERS.pack(ts, count) + value.encode())

        async def put() -> None:
            await self.written.write(batch)
            await self.written.flush()

        self.wait(put())

    def refresh(self) -> None:
        self.read = getattr(self, "written", self.read)

    def get(self, key: str) -> pa.Table:
        found = self.wait(self.read.get(key.encode()))
        return rows_from([] if found is None else [(key.encode(), found)])

    def range(self, min: str, max: str) -> pa.Table:
        async def gather() -> list[tuple[bytes, bytes]]:
            keys = KeyRange(start=min.encode(), start_inclusive=True, end=max.encode(), end_inclusive=False)
            rows, found = await self.read.scan(keys), []
            while batch := await rows.next_batch(10_000):
                found += [(row.key, row.value) for row in batch]
            return found

        return rows_from(self.wait(gather()))

    def upsert(self, rows: pa.Table) -> None:
        self.append(rows)

    def delete(self, min: str, max: str) -> None:
        if not hasattr(self, "written"):
            self.written = self.wait(DbBuilder(*self.place).build())
        batch = WriteBatch()
        for key in self.range(min, max).column("key").to_pylist():
            batch.delete(key.encode())

        async def put() -> None:
            await self.written.write(batch)
            await self.written.flush()

        self.wait(put())

    def maintain(self) -> None:
        raise NotOffered("compacts by itself while it is written")

    def count(self) -> int:
        return self.range("", "~").num_rows

    def close(self) -> None:
        for handle in {id(h): h for h in (getattr(self, "written", None), getattr(self, "read", None)) if h}.values():
            self.wait(handle.shutdown())
        for name in ("written", "read"):
            self.__dict__.pop(name, None)


PEER = Slate
