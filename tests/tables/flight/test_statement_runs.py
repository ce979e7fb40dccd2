"""What a statement holds whose caller does not read it, and what one principal may hold."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import lakebed
from lakebed.server.flight.statement_runs import StatementLimits, StatementRuns
from lakebed.server.security.principal import Permission, Principal
from tests.waiting import until

EVE, BOB = (Principal.everywhere(name, Permission.READ) for name in ("eve", "bob"))
ROWS = "SELECT * FROM (VALUES (1), (2)) AS t(a)"


def runs(instance: lakebed.Instance, **limits: Any) -> StatementRuns:
    spare: Any = None
    return StatementRuns(instance, StatementLimits(None, **limits), spare)


def test_one_principal_leaves_statements_to_others(lake: lakebed.Instance) -> None:
    found = runs(lake, statements_max=4)
    streams = [found.start(EVE, ROWS, b"%d" % number, lambda: False) for number in range(3)]
    with pytest.raises(lakebed.ContentionError, match="no room for more flight statements of eve"):
        found.start(EVE, ROWS, b"4", lambda: False)
    streams.append(found.start(BOB, ROWS, b"5", lambda: False))
    assert found.room.use().used == 4
    found.stop()
    del streams
    until(lambda: found.room.use().used == 0)


def test_a_statement_whose_caller_takes_no_rows_ends_and_says_so(lake: lakebed.Instance) -> None:
    found = runs(lake, stall_s=0.0)
    run = found._begun(EVE, ROWS, b"1")
    batches = pa.RecordBatch.from_pydict({"a": [1]})
    run.reader = pa.RecordBatchReader.from_batches(batches.schema, [batches] * 3)
    reading = threading.Thread(target=run.read)
    reading.start()
    reading.join()
    assert isinstance(run.why, flight.FlightTimedOutError)
    assert "took no rows" in str(run.why)
    assert found.room.use().used == 0
