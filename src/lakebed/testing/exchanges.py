"""The contract of exchanges, as a pytest suite.

Subclass it in a test file, and give it executors::

    class TestMyExchange(ExchangeConformance):
        @pytest.fixture
        def executor(self):
            executor = MyExecutor()
            yield executor
            executor.close()
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest

from lakebed.errors import Code, DamagedError
from lakebed.jobs.executor import Executor, MapReduce, Piece, Root, TableCall
from lakebed.jobs.job_progress import Progress
from lakebed.model.schema import Schema
from lakebed.table.opening import create
from lakebed.table.tracker.recorder import RunHandle
from lakebed.testing.executors import TaskRecords, stopped_when_begun, until

PAYLOADS = (b"", b"a", b"abc" * 5, bytes(range(256)) * 4096)
"""Of no byte, of some, and of a mebibyte."""

REDUCERS = 5


class _Sent(NamedTuple):
    """A piece as a map task sends it: its reducer, its numbers, and which payload it has."""

    reducer: int
    chunk: int
    part: int
    payload: int


def _of_map(number: int) -> list[_Sent]:
    """Return what a map task sends: nothing to the last reducer, and the same numbers to several others."""
    return [
        _Sent(reducer, chunk, part, (number + chunk + part) % len(PAYLOADS))
        for chunk in (0, 1, -1)
        for reducer in range(REDUCERS - 1)
        for part in range((number + 1) % 3)
    ]


def _send(number: int, value: str) -> Iterator[Piece]:
    _raise_or_die(value)
    for reducer, chunk, part, payload in _of_map(number):
        yield Piece(reducer, number, chunk, part, pa.py_buffer(PAYLOADS[payload]))


def _received(reducer: int, pieces: Iterator[Piece], value: str = "") -> list[list[int]] | None:
    _raise_or_die(value)
    got = []
    for piece in pieces:
        assert piece.reducer == reducer
        if piece.at is not None:
            assert piece.at.read(0, piece.at.size) == piece.payload
        got.append([piece.map, piece.chunk, piece.part, PAYLOADS.index(piece.payload.to_pybytes())])
    return got or None


def _raise_or_die(value: str) -> None:
    """Do what a value says: fail, or where it is the path of a mark that is not there die, as if the system had killed
    the process.
    """
    if value == "fail":
        raise Code.OBJECT_DAMAGED("it was to fail", name="x")
    if "/" in value and not Path(value).exists():
        Path(value).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _length(value: str) -> int:
    _raise_or_die(value)
    return len(value)


def _waited(number: int, folder: str) -> Iterator[Piece]:
    """Say that the map task began, and wait until it may end."""
    (Path(folder) / "began").touch()
    until(Path(folder) / "released")
    yield from _send(number, "")


def map_reduce(values: list[str], *, reduce: str = "", send: Any = _send) -> MapReduce[list[list[int]]]:
    """Return map tasks that do what the values say, and reduce tasks that do what ``reduce`` says, of 300 rows."""
    return MapReduce(values, send, REDUCERS, partial(_received, value=reduce), list[list[int]], 300)


def expected(maps: int) -> dict[int, list[list[int]]]:
    """Return what each reducer receives of ``maps`` map tasks, in order."""
    found: dict[int, list[list[int]]] = {}
    for number in range(maps):
        for reducer, chunk, part, payload in _of_map(number):
            found.setdefault(reducer, []).append([number, chunk, part, payload])
    return {reducer: sorted(found[reducer]) for reducer in sorted(found)}


class ExchangeConformance:
    """The contract of :class:`lakebed.jobs.executor.Exchange`, promise by promise."""

    tasks_have_processes = True
    """Whether a task may kill its process. Override it for an executor whose tasks run in this one."""

    @pytest.fixture
    def executor(self) -> Executor:
        """Override: an executor, which the fixture closes."""
        raise NotImplementedError

    @pytest.fixture
    def call(self, tmp_path: Path) -> TableCall:
        """Return a call on a table."""
        instance = create(str(tmp_path / "lake"))
        table = instance.create_table("t", Schema({"k": "string"}), settings={"memory_limit_bytes": 2**26})
        return TableCall(table, Root(instance.url))

    def test_it_says_how_large_pieces_may_be_and_how_their_rows_are_compressed(self, executor: Executor) -> None:
        """For inputs of any size."""
        assert executor.exchange.piece_bytes_max >= max(map(len, PAYLOADS))
        assert {executor.exchange.compression(size) for size in (0, 2**20, 2**60)} <= {"lz4", None}

    def test_results_of_all_tasks_are_in_the_order_of_the_values(self, executor: Executor, call: TableCall) -> None:
        """Also without values."""
        exchange = executor.exchange
        assert exchange.run_all(["fail"[:count] for count in (3, 1, 0, 2)], _length, int, call) == [3, 1, 0, 2]
        assert exchange.run_all([], _length, int, call) == []

    def test_the_error_of_a_task_is_that_of_the_call(self, executor: Executor, call: TableCall) -> None:
        """With its class and facts, whichever task it is; the exchange goes on to work."""
        exchange = executor.exchange
        calls: list[Callable[[], object]] = [
            lambda: exchange.run_all(["", "fail", ""], _length, int, call),
            lambda: exchange.map_reduce(map_reduce(["", "fail", ""]), call),
            lambda: exchange.map_reduce(map_reduce(["", ""], reduce="fail"), call),
        ]
        for run in calls:
            with pytest.raises(DamagedError, match="it was to fail") as caught:
                run()
            assert caught.value.facts == {"name": "x"}
        assert executor.exchange.run_all([""], _length, int, call) == [0]

    def test_each_reducer_gets_all_its_pieces_and_no_other(self, executor: Executor, call: TableCall) -> None:
        """Of every size, from any number of map tasks; a reducer without pieces makes nothing."""
        for maps in (1, 3, 7):
            found = executor.exchange.map_reduce(map_reduce([""] * maps), call)
            assert [reducer for reducer, _ in found] == sorted(expected(maps))
            assert {reducer: sorted(got) for reducer, got in found} == expected(maps)

    def test_a_task_whose_process_dies_is_run_again(self, executor: Executor, call: TableCall, tmp_path: Path) -> None:
        """A task of any kind; what it did before is not seen."""
        if not self.tasks_have_processes:
            pytest.skip("the tasks run in this process")
        mark = str(tmp_path / "died-first")
        assert executor.exchange.run_all(["", mark], _length, int, call) == [0, len(mark)]
        for work in (
            map_reduce(["", "", str(tmp_path / "died-in-map")]),
            map_reduce(["", "", ""], reduce=str(tmp_path / "died-in-reduce")),
        ):
            found = executor.exchange.map_reduce(work, call)
            assert {reducer: sorted(got) for reducer, got in found} == expected(3)
        assert len(list(tmp_path.glob("died-*"))) == 3

    def test_a_call_that_is_stopped_ends_and_the_exchange_does_not(
        self, executor: Executor, call: TableCall, tmp_path: Path
    ) -> None:
        """While a map task runs, which is cancelled, or ends by itself before the call does."""
        waiting = map_reduce([str(tmp_path)] * 2, send=_waited)
        with stopped_when_begun(tmp_path) as stop, pytest.raises(KeyboardInterrupt):
            executor.exchange.map_reduce(waiting, TableCall(call.table, call.place, stop=stop))
        assert executor.exchange.run_all([""], _length, int, call) == [0]

    def test_progress_begins_with_no_row_and_ends_with_all(self, executor: Executor, call: TableCall) -> None:
        """And never goes back."""
        seen: list[Progress] = []
        executor.exchange.map_reduce(map_reduce(["", "", ""]), TableCall(call.table, call.place, seen.append))
        rows = [one.rows_done for one in seen]
        assert (rows[0], rows[-1]) == (0, 300)
        assert rows == sorted(rows)
        assert {one.rows_total for one in seen} == {300}

    def test_tasks_are_recorded(self, executor: Executor, call: TableCall) -> None:
        """Reduce tasks at least, whose results arrive here."""
        records = TaskRecords()
        recorded = TableCall(call.table, call.place, run=RunHandle(cast("Any", records), "run"))
        executor.exchange.map_reduce(map_reduce([""] * 3), recorded)
        assert len(records.tasks) >= REDUCERS - 1
        assert {one.job for one in records.tasks} == {"run"}
        assert all(one.started is not None and one.finished is not None for one in records.tasks)
