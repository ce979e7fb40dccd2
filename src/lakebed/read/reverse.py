"""Rows the other way round, in bounded memory: the last batch first, and in each the last row.

What does not fit is put aside on local disk as Arrow IPC, whose batches can be read from the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakebed.sorting.sort import arrow_options
from lakebed.storage.scratch import scratch_folder, writing_to


def turned(batches: Iterable[pa.RecordBatch], hold_bytes: int) -> Generator[pa.RecordBatch]:
    """The rows of the batches, the last one first. Holds about ``hold_bytes``; raises StorageError if the disk is full.

    All are read before the first is given.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with ExitStack() as scratch:
        folder: Path | None = None
        aside: list[Path] = []
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > hold_bytes:
                folder = folder or scratch.enter_context(scratch_folder(Path(tempfile.gettempdir()), "turned"))
                aside.append(_put_aside(held, folder / f"{len(aside):06d}.arrow"))
                held, size = [], 0
        yield from map(_backwards, reversed(held))
        for path in reversed(aside):
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                for index in reversed(range(reader.num_record_batches)):
                    yield _backwards(reader.get_batch(index))


def _put_aside(batches: Iterable[pa.RecordBatch], path: Path) -> Path:
    held = list(batches)
    with writing_to(path.parent), pa.ipc.new_file(path, held[0].schema, options=arrow_options()) as writer:
        for batch in held:
            writer.write_batch(batch)
    return path


def _backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))
