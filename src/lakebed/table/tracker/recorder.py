"""Records the runs of one process: every few seconds it writes those that changed, all in one object.

The notes are kept in memory. A thread, started with the first run, writes them ``flush_s`` after the first change,
and at most once in that time. A run that ended within that time is written once. A longer run is written when it
begins, while it progresses, and at least every :data:`ALIVE_S`, as a sign that its process is alive. The rest is
written when the process ends, or by :meth:`Recorder.flush`. A killed process loses the notes of its last seconds, and
no row.

Core types: :class:`Recorder`, :class:`RunHandle`.

Rules. No call waits for the store, except :meth:`Recorder.flush`, and none raises: recording never blocks or fails the
work. If a write fails, the notes are kept, up to ``notes_max``, and written later; :attr:`Recorder.failing` is then
set. Secrets are removed from the texts of errors.
"""

from __future__ import annotations

import atexit
import contextlib
import platform
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from lakebed import clock
from lakebed.errors import Error, UsageError, encode_error
from lakebed.model.settings import Settings
from lakebed.model.version import this_writer
from lakebed.storage import telemetry
from lakebed.storage.client_errors import scrubbed
from lakebed.storage.processes import this_process
from lakebed.table.tracker.runs import (
    Begun,
    JobRun,
    RunError,
    RunOutcome,
    RunPlace,
    TaskRun,
    trim_records,
    write_records,
)

if TYPE_CHECKING:
    from lakebed.model.reports import WorkReport
    from lakebed.storage.contract import Storage

ReportType = TypeVar("ReportType", bound="WorkReport")

FLUSH_S = 2.0
ALIVE_S = 30.0
"""The longest time between records of a run that is under way."""

PROGRESS_S = 10.0
"""The shortest time between records of progress alone."""

IDLE_S = 60.0
"""After this long without a run, the thread ends; the next run starts another."""

NOTES_MAX = 10_000
TRIM_EVERY_S = 3_600.0

TASKS_MAX = 2_000
"""Maximum recorded tasks of a run, and as many again if they failed; the run counts all of them."""

MESSAGE_CHARS_MAX = 500

_SECRET_OPTIONS = ("key", "secret", "token", "password", "credential", "sas", "signature")


class Recorder:
    """Records the runs of one instance in this process. Safe to use from many threads.

    ``begin``, ``progress``, ``task`` and ``end`` neither raise nor wait for a store; :meth:`running` calls them for a
    block of code.
    """

    def __init__(self, storage: Storage, kept_s: Callable[[], float] = lambda: Settings().jobs_kept_s) -> None:
        self._storage = storage
        self._kept_s = kept_s
        self._trimmed_s: float | None = None
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._running: dict[str, JobRun] = {}
        self._notes: dict[str, JobRun] = {}
        self._tasks: list[TaskRun] = []
        self._written: set[str] = set()
        self._token, self._flushes = clock.random_token()[:12], 0
        self._progressed: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()
        self.flush_s, self.notes_max, self.tasks_max = FLUSH_S, NOTES_MAX, TASKS_MAX
        self.failing: Error | Exception | None = None
        """The error of the last write of records; None if it succeeded."""

    # -- notes --------------------------------------------------------------------------------------------------

    def begin(self, begun: Begun) -> str:
        """Record the beginning of a run; return its id."""
        now = clock.now()
        run = JobRun(
            id=begun.id or clock.new_id(),
            operation=_utf8(str(begun.operation)),
            table=_utf8(begun.table),
            table_id=begun.table_id,
            where=RunPlace(platform.node(), this_process(), begun.executor, this_writer()),
            created=begun.created or now,
            started=now,
            updated=now,
            rows_total=begun.rows_total,
            bytes_total=begun.bytes_total,
            tasks=begun.tasks,
            base_version=begun.base_version,
            key=None if begun.key is None else _utf8(begun.key),
            detail=_utf8(begun.detail),
            tries=begun.tries,
        )
        with self._changed:
            self._running[run.id] = run
            self._note(run)
        return run.id

    def progress(self, run: str, **given: Any) -> None:
        """Record the progress of a run: fields of :class:`~lakebed.table.tracker.runs.JobRun`; None: unchanged."""
        known = {name: value for name, value in given.items() if value is not None}
        if "detail" in known:
            known["detail"] = _utf8(known["detail"])
        with self._changed:
            if (found := self._running.get(run)) is not None:
                self._running[run] = structs.replace(found, updated=clock.now(), **known)
                self._progressed.add(run)

    def plan_tasks(self, run: str, count: int, executor: str) -> int:
        """Add ``count`` tasks on this executor to a run; return the number of the first."""
        with self._changed:
            found = self._running.get(run)
            if found is None:
                return 0
            where = structs.replace(found.where, executor=executor)
            self._running[run] = structs.replace(found, where=where, tasks=found.tasks + count, updated=clock.now())
            self._progressed.add(run)
            return found.tasks

    def task(self, task: TaskRun) -> None:
        """Record the end of a task."""
        failed = task.error is not None
        with self._changed:
            found = self._running.get(task.job)
            if found is None:
                return
            self._running[task.job] = structs.replace(
                found,
                updated=clock.now(),
                tasks_done=found.tasks_done + (not failed),
                tasks_failed=found.tasks_failed + failed,
                retries=found.retries + task.attempt - 1,
            )
            self._progressed.add(task.job)
            kept = found.tasks_failed if failed else found.tasks_done
            if kept < self.tasks_max and len(self._tasks) < self.notes_max:
                self._tasks.append(task)

    def end(
        self,
        run: str,
        outcome: RunOutcome,
        *,
        version: int | None = None,
        error: BaseException | None = None,
        parked: bool = False,
    ) -> None:
        """Record the end of a run. A second end of the same run changes nothing."""
        now = clock.now()
        with self._changed:
            found = self._running.pop(run, None)
            if found is None:
                return
            ended = structs.replace(
                found,
                outcome=outcome,
                updated=now,
                finished=now,
                version=found.version if version is None else version,
                error=None if error is None else self.error_of(error),
                parked=parked,
            )
            self._note(ended)
        telemetry.measure("job_seconds", ended.seconds or 0.0, operation=ended.operation, outcome=ended.outcome.value)

    def discard(self, run: str) -> None:
        """Drop a run that had nothing to do or, if it was recorded before, record its success."""
        with self._changed:
            if run not in self._written:
                self._running.pop(run, None)
                self._notes.pop(run, None)
                self._progressed.discard(run)
                return
        self.end(run, RunOutcome.SUCCEEDED)

    def trim(self) -> int:
        """Delete the records that are older than ``jobs_kept_s``; return the number of objects.

        Raises StorageError.
        """
        self._trimmed_s = clock.monotonic_s()
        return trim_records(self._storage, self._kept_s())

    def trim_if_due(self) -> None:
        """As :meth:`trim`, once an hour at most, as a best effort: it is tried again in the next hour."""
        if self._trimmed_s is None or clock.monotonic_s() - self._trimmed_s >= TRIM_EVERY_S:
            with contextlib.suppress(Error):
                self.trim()

    def error_of(self, error: BaseException) -> RunError:
        """Return an error as it is recorded."""
        options: dict[str, str] = getattr(getattr(self._storage, "clients", None), "options", {})
        text = scrubbed(error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}")
        for name, value in options.items():
            if value and any(word in name.lower() for word in _SECRET_OPTIONS):
                text = text.replace(value, "...")
        kind = error.kind if isinstance(error, Error) else type(error).__name__
        return RunError(kind, str(encode_error(error)["code"]), _utf8(text)[:MESSAGE_CHARS_MAX])

    @contextlib.contextmanager
    def running(self, begun: Begun) -> Iterator[RunHandle]:
        """Record the work of the block as a run, to which tasks in the block belong (:func:`current_run`).

        An exception fails the run, a KeyboardInterrupt cancels it; a UsageError of a refused call leaves no record.
        """
        handle = RunHandle(self, self.begin(begun))
        token = _current.set(handle)
        try:
            yield handle
        except BaseException as error:
            mark_noted(error)
            if type(error) is UsageError:
                self.discard(handle.id)
            elif isinstance(error, Exception):
                self.end(handle.id, RunOutcome.FAILED, error=error)
            else:
                self.end(handle.id, RunOutcome.CANCELLED)
            raise
        finally:
            _current.reset(token)
        handle.finish()

    def record_failure(self, begun: Begun, error: BaseException) -> None:
        """Record a run that failed before it could begin."""
        self.end(self.begin(begun), RunOutcome.FAILED, error=error)

    # -- writing ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the notes now. They are kept if the store fails."""
        with self._writing:
            with self._changed:
                for run in self._progressed & self._running.keys():
                    self._notes[run] = self._running[run]
                self._progressed.clear()
                notes, tasks = self._notes, self._tasks
                self._notes, self._tasks = {}, []
                self._written = (self._written | notes.keys()) & self._running.keys()
            if not notes and not tasks:
                return
            self._flushes += 1
            try:
                write_records(self._storage, f"{self._token}-{self._flushes:08x}", tuple(notes.values()), tasks)
            except Exception as error:  # noqa: BLE001 - records never stand in the way of the work
                self.failing = error
                with self._changed:
                    self._notes = dict([*notes.items(), *self._notes.items()][-self.notes_max :])
                    self._tasks = [*tasks, *self._tasks][-self.notes_max :]
            else:
                self.failing = None

    def _note(self, run: JobRun) -> None:
        """Mark a run to be written soon. Requires the lock."""
        self._notes[run.id] = run
        self._progressed.discard(run.id)
        if self._thread is None or not self._thread.is_alive():
            self._start_writing()
        self._changed.notify()

    def _start_writing(self) -> None:
        # A daemon, so that it does not keep the process alive. Unwritten notes are written at exit.
        of = weakref.ref(self)
        self._thread = threading.Thread(target=_write_until_idle, args=(of,), name="lakebed-tracker", daemon=True)
        _recorders.add(self)
        self._thread.start()

    def _wait(self) -> bool:
        """Wait until there is something to write; False after a while without anything."""
        with self._changed:
            if not self._notes:
                self._changed.wait(PROGRESS_S if self._running else IDLE_S)
            if not self._notes and not self._running:
                self._thread = None
                return False
        # Later changes are written together with it. Not the clock of a simulation: the pause spares the store.
        self._pause.wait(self.flush_s)
        with self._changed:
            alive_since = clock.now().timestamp() - ALIVE_S
            for run in self._running.values():
                if run.updated.timestamp() < alive_since:
                    self._running[run.id] = structs.replace(run, updated=clock.now())
                    self._progressed.add(run.id)
        return True


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


@atexit.register
def _write_what_is_left() -> None:
    for recorder in list(_recorders):
        recorder.flush()


def _write_until_idle(of: weakref.ref[Recorder]) -> None:
    while (recorder := of()) is not None and recorder._wait():  # noqa: SLF001 - its own thread
        recorder.flush()


class RunHandle:
    """A run under way, for the code that does the work; :data:`NO_RUN` stands for none and records nothing."""

    __slots__ = ("_error", "_nothing", "_recorder", "_version", "id")

    def __init__(self, recorder: Recorder | None, run: str) -> None:
        self.id = run
        self._recorder = recorder
        self._version: int | None = None
        self._error: BaseException | None = None
        self._nothing = False

    def progress(self, **given: int | str | None) -> None:
        """Record the progress of the run; see :meth:`Recorder.progress`."""
        if self._recorder is not None:
            self._recorder.progress(self.id, **given)

    def ended(self, version: int | None, detail: str) -> None:
        """Record the version of the last commit, and a short description of the result."""
        self._version = version
        self.progress(detail=detail)

    def reported(self, report: ReportType) -> ReportType:
        """Record the result of the run, and return it. A run without work leaves no record."""
        rows, size_bytes = report.done
        self.progress(rows_done=rows, bytes_done=size_bytes)
        if (failure := report.failure) is not None:
            self.failed(failure)
        elif report.idle:
            self.nothing()
        self.ended(report.committed, report.summary)
        return report

    def failed(self, error: BaseException) -> None:
        """Record that the run has failed, although the block ends without an exception."""
        mark_noted(error)
        self._error = error

    def nothing(self) -> None:
        """Record that there was nothing to do: no record is kept."""
        self._nothing = True

    def plan_tasks(self, count: int, executor: str) -> int:
        """Add ``count`` tasks to the run; return the number of the first."""
        return 0 if self._recorder is None else self._recorder.plan_tasks(self.id, count, executor)

    def task(self, task: TaskRun, error: BaseException | None = None) -> None:
        """Record the end of a task of the run, with an error if it failed."""
        if self._recorder is not None:
            failure = None if error is None else self._recorder.error_of(error)
            self._recorder.task(structs.replace(task, job=self.id, error=failure))

    def finish(self) -> None:
        """Record that the block has ended without an exception."""
        if self._recorder is None:
            return
        if self._nothing and self._error is None:
            self._recorder.discard(self.id)
        else:
            outcome = RunOutcome.SUCCEEDED if self._error is None else RunOutcome.FAILED
            self._recorder.end(self.id, outcome, version=self._version, error=self._error)


NO_RUN = RunHandle(None, "")

_current: ContextVar[RunHandle] = ContextVar("lakebed_run", default=NO_RUN)
_noted: ContextVar[list[BaseException] | None] = ContextVar("lakebed_noted", default=None)


def current_run() -> RunHandle:
    """Return the run of the calling thread. Read it in the thread of the call: other threads have none."""
    return _current.get()


def mark_noted(error: BaseException) -> None:
    """Mark an error as recorded, so that callers do not record it again."""
    if (errors := _noted.get()) is not None:
        errors.append(error)


@contextlib.contextmanager
def noting() -> Iterator[list[BaseException]]:
    """Collect the errors that runs in the block record."""
    errors: list[BaseException] = []
    token = _noted.set(errors)
    try:
        yield errors
    finally:
        _noted.reset(token)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
