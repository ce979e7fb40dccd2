"""The engines of a service: PySpark keeps one session a process, so one ends before the next starts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import Error
from lakebed.server.service import engines
from lakebed.spark import Local

LARGE = engines.IN_PROCESS_BYTES_MAX + 1


class Session:
    """As much of a session as a pipeline asks for."""

    def createDataFrame(self) -> None:  # noqa: N802 - Spark's name
        raise NotImplementedError


@dataclass(frozen=True)
class Sessions(Local):
    """Launches sessions without PySpark, all of which die: it notes what is started and ended, in order."""

    seen: list[str] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Any:
        self.seen.append("start")
        return Session()

    def end(self, session: Any) -> None:
        self.ending.set()
        assert self.may_end.wait(120)
        self.seen.append("end")

    def has_died(self, session: Any, error: Exception) -> bool:
        return True


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


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
    shared = engines.Engines(lakebed.create(tmp_path / "lake"), sessions, idle_s=0.0)
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
    shared = engines.Engines(lakebed.create(tmp_path / "lake"), sessions)
    _fail(shared, meanwhile=lambda: _fail(shared))
    _use(shared)
    shared.close()
    assert sessions.seen == ["start", "end", "start", "end"]
