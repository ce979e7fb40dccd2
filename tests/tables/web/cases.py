"""A service over a small table, and a client of its application in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from litestar.testing import TestClient

import lakebed
from lakebed.server.security.principal import Authenticator
from lakebed.server.service.service import Service
from lakebed.server.web.app import RequestLimits, make_app
from lakebed.storage import Storage
from tests.tables.retention.cases import through

SCHEMA = lakebed.Schema({"k": "string", "n": "int64"}, {}, {"v": "double", "b": "binary"})
ROWS = pa.table(
    {
        "k": ["a", "a", "b", "c"],
        "n": pa.array([1, 2, 1, 1], pa.int64()),
        "v": [0.5, None, float("inf"), 2.0],
        "b": pa.array([b"\0\1", None, b"", b"x"], pa.binary()),
    }
)
ARROW = "application/vnd.apache.arrow.stream"
JSON_LINES = "application/x-ndjson"


def arrow_bytes(rows: pa.Table) -> bytes:
    """The rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


@contextmanager
def served(
    folder: Path,
    *,
    authenticator: Authenticator | None = None,
    limits: RequestLimits | None = None,
    store: Callable[[Storage], Storage] = lambda storage: storage,
) -> Iterator[TestClient[Any]]:
    """A client of a service whose instance has the table ``t`` with four rows; ``store`` makes its storage."""
    lake = lakebed.create(str(folder / "lake"))
    lake.create_table("t", SCHEMA, split_points=[("b", 0)]).write(ROWS)
    lake = through(lake, store(lake.storage))
    with Service(lake, maintain=False) as service, TestClient(make_app(service, authenticator, limits)) as client:
        yield client
