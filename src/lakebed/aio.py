"""Reads for servers that run an event loop: each runs in a thread, so that the loop is never blocked.

    from lakebed import aio

    rows = await aio.get(table, "N14228")
    async for batch in aio.scan(table, KeyRange.prefix("N14228")):
        ...

The loop's default executor bounds the number of concurrent reads; set a larger one for more. A task that is cancelled
ends at once; what its thread is reading then is read to its end, and dropped.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pyarrow as pa

    from lakebed.model.keys import KeyRange
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.snapshot import Readable
    from lakebed.table.instance import Instance


async def get(table: Readable, *key: Any, **options: Any) -> pa.Table:
    """As :meth:`Table.get`."""
    return await asyncio.to_thread(table.get, *key, **options)


async def get_many(table: Readable, keys: Any, **options: Any) -> pa.Table:
    """As :meth:`Table.get_many`."""
    return await asyncio.to_thread(table.get_many, keys, **options)


async def scan(table: Readable, *ranges: KeyRange, **options: Any) -> AsyncIterator[pa.RecordBatch]:
    """As :meth:`Table.scan`, batch by batch; ends the scan when the loop over it ends for any reason."""
    rows = _Rows(lambda: table.scan(*ranges, **options))
    try:
        while (batch := await asyncio.to_thread(rows.next)) is not None:
            yield batch
    finally:
        if not rows.closed_at_once():
            # Not awaited: the task was cancelled, and the batch that its thread reads may take long.
            asyncio.get_running_loop().run_in_executor(None, rows.close)


async def sql(instance: Instance, statement: str, **options: Any) -> pa.Table:
    """Return all rows of :meth:`Instance.sql`, in memory; ``options`` are its ``parameters`` and limits."""
    return await asyncio.to_thread(lambda: instance.sql(statement, **options).read_all())


class _Rows:
    """A scan that threads read in turn. It is closed after the batch that a thread is reading, since a generator that
    runs cannot be closed.
    """

    def __init__(self, scan: Callable[[], RowStream]) -> None:
        self._scan = scan
        self._turn = threading.Lock()
        self._reader: RowStream | None = None
        self._closed = False

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch; None after the last one, or after the end."""
        with self._turn:
            if self._closed:
                return None
            if self._reader is None:
                self._reader = self._scan()
            return next(self._reader, None)

    def close(self) -> None:
        """End the scan, once no thread reads it."""
        with self._turn:
            self._end()

    def closed_at_once(self) -> bool:
        """End the scan if no thread reads it; False if one does."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._end()
        finally:
            self._turn.release()
        return True

    def _end(self) -> None:
        self._closed = True
        if self._reader is not None:
            self._reader.close()
