"""The exchange of an executor whose tasks run on this machine: pieces travel in files on its local disk.

    map task n  ->  one file: payload, payload, … records by reducer: chunk, part, offset, size; first record of each

A map task writes one file, whatever the number of reducers, with an index at its end. A reduce task maps one file after
another into memory and takes its own pieces. So the number of open files does not depend on the size of the input, and
pieces stay in the system's page cache as far as that has room. Together they take about the size of the rows, lightly
compressed, in a folder below TMPDIR that is deleted when the call ends. Folders of processes that were killed are
deleted when the next exchange begins.

*Failures.* After the first error of a task no other task begins. A task whose process dies is tried again, at most
:data:`ATTEMPTS_MAX` times in all, and writes another file; only files that a map task has returned are read.

Core types: :class:`PieceFiles`. Errors: those of tasks; StorageError if the disk is full.

Source: docs/decisions/0081-pieces-travel-by-an-exchange.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.jobs.executor import Piece
from lakebed.jobs.job_progress import Callback, Progress
from lakebed.storage.disk_space import delete_abandoned_folders, scratch_folder, writing_to
from lakebed.system import available_memory_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakebed.jobs.executor import Executor, MapReduce, T, TableCall, Work

ATTEMPTS_MAX = 3
"""How often a task is run whose process dies: a crash may be the system's, three are the task's."""

_DIED = (Code.WORKER_KILLED, Code.WORKER_FAILED)

_WORD = 8
_RECORD = ("chunk", "part", "offset", "size")


_UNCOMPRESSED_SHARE = 0.1
"""The size of an input, as a share of the machine's memory, whose pieces are not compressed. They take some four times
as many bytes, which the page cache then has room for beside the tasks. Larger ones are written to disk in part."""


class PieceFiles:
    """The exchange of an executor; see :class:`lakebed.jobs.executor.Exchange`."""

    piece_bytes_max = sys.maxsize
    """Reduce tasks read pieces where they lie, which need not be in one part for that alone."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @staticmethod
    def compression(size_bytes: int) -> str | None:
        """As :meth:`lakebed.jobs.executor.Exchange.compression`."""
        return None if size_bytes <= _UNCOMPRESSED_SHARE * available_memory_bytes() else "lz4"

    def run_all(self, values: Sequence[Any], work: Work[T], made: type[T], call: TableCall) -> list[T]:
        """As :meth:`lakebed.jobs.executor.Exchange.run_all`."""
        with scratch_folder("tasks") as folder:
            return self._run(values, work, made, call, folder, rows=0)

    def map_reduce(self, work: MapReduce[T], call: TableCall) -> list[tuple[int, T]]:
        """As :meth:`lakebed.jobs.executor.Exchange.map_reduce`."""
        delete_abandoned_folders()
        # Each kind of task counts for the share of the rows that it is of all tasks.
        maps = work.rows * len(work.values) // (len(work.values) + work.reducers)
        with scratch_folder("pieces") as folder:
            send = partial(_send, folder, work.map, work.reducers)
            sending = replace(call, progress=_within(call.progress, 0, work.rows))
            names = self._run(list(enumerate(work.values)), send, str, sending, folder, rows=maps)
            reduce = partial(_reduce, folder, tuple(names), work.reduce, work.reducers)
            reducing = replace(call, progress=_within(call.progress, maps, work.rows))
            # None of a reducer without pieces.
            made = cast("type[T | None]", work.made | None)
            found = self._run(range(work.reducers), reduce, made, reducing, folder, rows=work.rows - maps)
        return [(reducer, result) for reducer, result in enumerate(found) if result is not None]

    def _run(  # noqa: PLR0913 - tasks, and how many rows of the call are theirs
        self, values: Sequence[Any], work: Work[T], made: type[T], call: TableCall, folder: Path, *, rows: int
    ) -> list[T]:
        """Return the results of all tasks; those whose processes died are run again. Raises the first error."""
        limit = call.table.settings_in_force().memory_limit_bytes
        results: dict[int, T] = {}
        waiting = list(range(len(values)))
        for attempt in range(1, ATTEMPTS_MAX + 1):
            failed = folder / f"failed-{clock.random_token()}"
            found = self._executor.run(
                [values[item] for item in waiting],
                partial(_unless_failed, failed, work),
                cast("type[T | None]", made | None),
                call.stop,
                memory_limit_bytes=limit,
                # The first attempt has reported all tasks as done.
                progress=call.progress if attempt == 1 else None,
                rows=rows,
                run=call.run,
            )
            died = []
            for item, result in zip(waiting, found, strict=True):
                if isinstance(result, Error):
                    if result.code not in _DIED or attempt == ATTEMPTS_MAX:
                        raise result
                    died.append(item)
                else:
                    # None where another task failed, whose error is raised.
                    results[item] = cast("T", result)
            if not died:
                break
            # A task that failed, and died before it could say why, has kept others from their work.
            waiting = waiting if failed.exists() else died
        return [results[item] for item in range(len(values))]


def _within(progress: Callback | None, first: int, total: int) -> Callback | None:
    """Return the callback for tasks before which ``first`` rows of ``total`` were done."""
    if progress is None:
        return None

    def report(made: Progress) -> None:
        progress(Progress(first + made.rows_done, total, made.phase))

    return report


# -- in tasks ---------------------------------------------------------------------------------------------------


def _unless_failed(mark: Path, work: Work[T], value: Any) -> T | None:
    """Do the work of a task, unless another one has failed: then there is no result, which nothing reads."""
    if mark.exists():
        return None
    try:
        return work(value)
    except Exception:
        # The disk may be full.
        with suppress(OSError):
            mark.touch()
        raise


def _send(folder: Path, map_task: Callable[[int, Any], Iterator[Piece]], reducers: int, item: tuple[int, Any]) -> str:
    """Run a map task, and write its pieces into a file of this folder, whose name is returned."""
    import numpy as np
    import pyarrow as pa

    number, value = item
    for left in folder.glob(f"{number}-*"):
        # Of an attempt whose process died.
        left.unlink(missing_ok=True)
    name = f"{number}-{clock.random_token()}"
    with writing_to(folder):
        # Without a buffer, whose bytes would be written when the file is closed.
        file = pa.OSFile(str(folder / name), "wb")
    records: list[tuple[int, int, int, int, int]] = []
    offset = 0
    with file:
        for piece in map_task(number, value):
            _append(file, folder, piece.payload)
            records.append((piece.reducer, piece.chunk, piece.part, offset, piece.payload.size))
            offset += piece.payload.size
        index = np.array(records, np.int64).reshape(-1, 1 + len(_RECORD))
        index = index[np.argsort(index[:, 0], kind="stable")]
        starts = np.searchsorted(index[:, 0], np.arange(reducers + 1))
        _append(file, folder, np.ascontiguousarray(index[:, 1:]).data)
        _append(file, folder, starts.astype(np.int64).data)
    return name


def _append(file: pa.NativeFile, folder: Path, content: Any) -> None:
    with writing_to(folder):
        file.write(content)


def _reduce(
    folder: Path,
    names: Sequence[str],
    reduce_task: Callable[[int, Iterator[Piece]], T | None],
    reducers: int,
    reducer: int,
) -> T | None:
    """Run a reduce task on its pieces in these files."""
    return reduce_task(reducer, _pieces_of(folder, names, reducers, reducer))


def _pieces_of(folder: Path, names: Sequence[str], reducers: int, reducer: int) -> Iterator[Piece]:
    """Return the pieces of a reducer in the files of the map tasks. A payload may outlive the iteration."""
    import numpy as np
    import pyarrow as pa

    from lakebed.files.sorting.range_pieces import FileBytes

    for number, name in enumerate(names):
        with pa.memory_map(str(folder / name)) as file:

            def words(offset: int, count: int, file: pa.MemoryMappedFile = file) -> Any:
                file.seek(offset)
                return np.frombuffer(file.read_buffer(count * _WORD), np.int64)

            starts_at = file.size() - (reducers + 1) * _WORD
            starts = words(starts_at, reducers + 1)
            first, end, count = starts[reducer], starts[reducer + 1], starts[-1]
            records_at = starts_at - int(count - first) * len(_RECORD) * _WORD
            records = words(records_at, int(end - first) * len(_RECORD)).reshape(-1, len(_RECORD))
            for chunk, part, offset, size in records.tolist():
                file.seek(offset)
                at = FileBytes(folder / name, offset, size)
                yield Piece(reducer, number, chunk, part, file.read_buffer(size), at)
