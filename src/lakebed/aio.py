"""Reads for servers that run an event loop: each runs in a thread, so that the loop is never blocked.

    from lakebed import aio

    rows = await aio.get(table, "N14228")
    async for batch in aio.scan(table, KeyRange.prefix("N14228")):
        ...

The loop's default executor bounds the number of concurrent reads; set a larger one for more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pyarrow as pa

    from lakebed.model.keys import KeyRange
    from lakebed.snapshot.snapshot import Readable
    from lakebed.table.instance import Instance


async def get(table: Readable, *key: Any, **options: Any) -> pa.Table:
    """As :meth:`Table.get`."""
    return await asyncio.to_thread(table.get, *key, **options)


async def get_many(table: Readable, keys: Any, **options: Any) -> pa.Table:
    """As :meth:`Table.get_many`."""
    return await asyncio.to_thread(table.get_many, keys, **options)


async def scan(table: Readable, *ranges: KeyRange, **options: Any) -> AsyncIterator[pa.RecordBatch]:
    """As :meth:`Table.scan`, batch by batch; ends the scan when the loop over it ends for any reason."""
    reader = await asyncio.to_thread(table.scan, *ranges, **options)
    try:
        while (batch := await asyncio.to_thread(next, reader, None)) is not None:
            yield batch
    finally:
        reader.close()


async def sql(instance: Instance, statement: str, **options: Any) -> pa.Table:
    """Return all rows of :meth:`Instance.sql`, in memory; ``options`` are its ``parameters`` and limits."""
    return await asyncio.to_thread(lambda: instance.sql(statement, **options).read_all())
