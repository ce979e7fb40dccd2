"""The worker process of one statement with limits: the other end of :mod:`lakebed.read.sql.limited`.

The first message has the location of the instance, as JSON. The worker loads its libraries, opens the instance, and
waits for the second, the statement. The answer is a message when the statement begins, and then an Arrow IPC stream. An
error is the last line of stderr, and the stream then has no end.
"""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import pyarrow as pa

from lakebed.errors import encode_error
from lakebed.model.arrays import empty_batch, leave_pandas_out
from lakebed.model.documents import dump, load
from lakebed.read.sql.limited import ERROR_MARK
from lakebed.storage.worker_process import answer_pipe, requests, write_message
from lakebed.system import held_bytes, reserved_bytes
from lakebed.table import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.read.sql.query import SqlEngine
    from lakebed.table.instance import Instance

HEADROOM_BYTES = 512 * 1024 * 1024
"""Memory that the process may reserve beyond the limit: reservations are not used yet, such as stacks of threads."""

POOL_SHARE = 2
"""The engine's pool has this part of the limit: rows being read and batches in transit are outside of it."""

_LOADED = (
    "lakebed.read.rows.datafusion_scan",
    "lakebed.read.rows.page_read",
    "lakebed.read.rows.point_lookup",
    "lakebed.read.rows.sequential_scan",
    "lakebed.read.snapshot.restricted",
)
"""Modules that reads import when they need them."""

_FAILED = 1


def main(engine_of: Callable[[Instance, Any], tuple[SqlEngine, int]] | None = None) -> NoReturn:
    """Answer the request on stdin, and end the process.

    ``engine_of`` gives the engine for a request, and the memory of its pool; by default that of the instance.
    """
    answer = answer_pipe()
    leave_pandas_out()
    messages = requests()
    place = load(next(messages))
    lake = None
    with suppress(Exception):
        # The error is raised again by the statement.
        lake = _prepared(place)
    request = load(next(messages))
    try:
        _answer(lake or opening.open(**place), request, answer, engine_of or (lambda opened, _: opened.sql_engine()))
    except BrokenPipeError:
        os._exit(_FAILED)
    except BaseException as error:  # noqa: BLE001 - every failure is reported to the caller
        _report(error)
        os._exit(_FAILED)
    # Skip the interpreter's shutdown, which threads of the engine can disturb.
    os._exit(0)


def _prepared(place: Mapping[str, Any]) -> Instance:
    """Return the instance, with all that a statement needs loaded: libraries, threads of the engine, the catalog."""
    for name in _LOADED:
        importlib.import_module(name)
    lake = opening.open(**place)
    _warm(*lake.sql_engine())
    lake.tables()
    return lake


def _answer(
    lake: Instance,
    request: Mapping[str, Any],
    answer: BinaryIO,
    engine_of: Callable[[Instance, Any], tuple[SqlEngine, int]],
) -> None:
    limit_bytes: int | None = request["memory_limit_bytes"]
    engine, pool_bytes = engine_of(lake, request)
    if limit_bytes is not None:
        pool_bytes = max(1, limit_bytes // POOL_SHARE)
    _warm(engine, pool_bytes)
    if limit_bytes is not None:
        _set_backstop(limit_bytes + HEADROOM_BYTES)
    write_message(answer, dump({"held_bytes": held_bytes(os.getpid())}))
    with engine.run(request["statement"], pool_bytes) as rows, pa.PythonFile(answer, "w") as sink:
        stream = pa.ipc.new_stream(sink, rows.schema)
        # The writer sends the schema with the first batch. This one has no rows, so that the caller need not wait for
        # them; the other end drops it.
        stream.write_batch(empty_batch(rows.schema))
        answer.flush()
        for batch in rows:
            stream.write_batch(batch)
            answer.flush()
        # Only here: a stream without an end is one that failed.
        stream.close()


def _report(error: BaseException) -> None:
    document = encode_error(error)
    try:
        text = dump(document)
    except (TypeError, ValueError):
        # A fact that JSON does not have, such as NaN. The message names it.
        text = dump(document | {"facts": {}})
    line = b"\n" + ERROR_MARK.encode() + text + b"\n"
    with suppress(OSError):
        while line:
            line = line[os.write(2, line) :]


def _warm(engine: SqlEngine, pool_bytes: int) -> None:
    """Make the engine start its threads, so that no statement has to wait for them."""
    engine.run("SELECT 1", pool_bytes).read_all()


def _set_backstop(bytes_max: int) -> None:
    """Limit the address space to this many bytes more than the process has now."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = reserved_bytes() + bytes_max
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with suppress(OSError, ValueError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
