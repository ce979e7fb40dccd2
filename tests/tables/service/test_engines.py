"""The engines of a service: PySpark keeps one session a process, so one ends before the next starts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import Error
from lakebed.server.service import engines
from lakebed.spark import Local

LARGE = engines.IN_PROCESS_BYTES_MAX + 1


class Sessions:
    """Stands for PySpark, which this test does not start: it notes what is started and ended, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ending, self.may_end = threading.Event(), threading.Event()

    def start(self) -> object:
        self.seen.append("start")
        return self

    def createDataFrame(self) -> None:  # noqa: N802 - a pipeline takes no session without it
        raise NotImplementedError

    def end(self, _session: object) -> None:
        self.ending.set()
        assert self.may_end.wait(120)
        self.seen.append("end")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    kept = Sessions()
    monkeypatch.setattr(Local, "start", lambda _: kept.start())
    monkeypatch.setattr(engines, "end_session", kept.end)
    monkeypatch.setattr(engines, "has_ended", lambda _session: True)
    return kept


def _fail(shared: engines.Engines, *, meanwhile: Any = lambda: None) -> None:
    with pytest.raises(Error, match="Spark ended while it worked"), shared.pipeline(LARGE):
        _no_answer(meanwhile)


def _no_answer(meanwhile: Any) -> None:
    meanwhile()
    raise RuntimeError("no answer")


def _use(shared: engines.Engines) -> None:
    with shared.pipeline(LARGE):
        pass


@pytest.mark.parametrize("end", [_fail, lambda shared: shared.end_idle()], ids=["died", "idle"])
def test_no_session_starts_while_another_ends(tmp_path: Path, sessions: Sessions, end: Any) -> None:
    shared = engines.Engines(lakebed.create(tmp_path / "lake"), Local("local[1]"), idle_s=0.0)
    _use(shared)
    ended = threading.Thread(target=end, args=(shared,))
    ended.start()
    assert sessions.ending.wait(120)
    started = threading.Thread(target=_use, args=(shared,))
    started.start()
    started.join(0.2)
    assert sessions.seen == ["start"]
    sessions.may_end.set()
    ended.join(120)
    started.join(120)
    assert sessions.seen == ["start", "end", "start"]


def test_a_session_that_died_under_two_works_ends_once(tmp_path: Path, sessions: Sessions) -> None:
    sessions.may_end.set()
    shared = engines.Engines(lakebed.create(tmp_path / "lake"), Local("local[1]"))
    _fail(shared, meanwhile=lambda: _fail(shared))
    _use(shared)
    shared.close()
    assert sessions.seen == ["start", "end", "start", "end"]
