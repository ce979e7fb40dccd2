"""Calls that a driver of its own carries out: how they get there, and how what came of them gets back.

The caller puts the call into the instance's store as one small object, starts the command of :class:`Submit`, waits
for it to end, and reads the answer that the driver put beside it. The store is the one place that both surely reach,
wherever the driver runs; arguments may be as many as they like; and no command line shows them.

Storage options travel in the environment variable ``LAKEBED_STORAGE_OPTIONS``, which a driver on this machine
inherits. One elsewhere gets credentials as everything does there (the role of its machine, say): they are never put
into the store, nor on a command line.

A cluster may run a driver twice. So every import has a job id before it goes, and the second finds it committed. When
there is no answer, nobody knows what was committed, and that is what the caller is told.

A caller that is interrupted deletes the request. The driver looks for the request every few seconds; when it is gone,
the driver interrupts its call and answers with what was committed. A command that does not end then is killed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from lakebed import clock
from lakebed.errors import Error, UnknownOutcomeError, UsageError, decode_error, encode_error
from lakebed.model.files import CALLS_FOLDER, call_answer_name, call_request_name
from lakebed.spark import wire
from lakebed.spark.launcher import Submit
from lakebed.table.table import Table
from lakebed.version import VERSION

if TYPE_CHECKING:
    from lakebed.spark.pipeline import Pipeline
    from lakebed.table.instance import Instance

OPTIONS_VARIABLE = "LAKEBED_STORAGE_OPTIONS"

PROGRAM = Path(__file__).with_name("driver.py")

CALL_AGE_S = 7 * 24 * 3600
"""What a caller that died left behind is deleted by the next call, once it is older: no driver waits that long."""

STOPPING_S = 60
"""How long the command of an interrupted call may take to end by itself: the driver looks for its request every
:data:`lakebed.spark.driver.LOOK_S`, and Spark takes some seconds to end."""

_STDERR = 2

Given = ParamSpec("Given")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Call:
    """A method of :class:`Pipeline` and its arguments, as a document."""

    method: str
    arguments: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The document of the call; it names the version, because both ends must be of one."""
        return {"version": VERSION, "method": self.method, "arguments": dict(self.arguments)}

    @classmethod
    def from_json(cls, document: Any) -> Call:
        """The inverse. Raises UsageError if another version of Lakebed made it."""
        if document["version"] != VERSION:
            raise UsageError(
                f"the call is of Lakebed {document['version']}, and this driver has {VERSION}; install the same "
                "on both sides"
            )
        return cls(document["method"], document["arguments"])


def submitted(
    report: type[Report],
) -> Callable[
    [Callable[Concatenate[Pipeline, Given], Report]],
    Callable[Concatenate[Pipeline, Given], Report],
]:
    """Have a method of :class:`Pipeline` carried out by a driver of its own where the launcher says so.

    Its arguments must be what JSON can hold, a table or a path. ``progress`` stays behind, and is told nothing.
    """

    def decorate(
        method: Callable[Concatenate[Pipeline, Given], Report],
    ) -> Callable[Concatenate[Pipeline, Given], Report]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def run(self: Pipeline, *args: Given.args, **kwargs: Given.kwargs) -> Report:
            if not isinstance(self.launcher, Submit):
                return method(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            document = carry_out(self.launcher, self.instance, _call(method.__name__, given.arguments))
            made: Report = decode_report(report, document)
            return made

        setattr(run, _MARK, report)
        return cast("Callable[Concatenate[Pipeline, Given], Report]", run)

    return decorate


_MARK = "submitted_report"


def report_of(method: Any) -> Any:
    """The class of what a method returns that can be submitted; None if it cannot."""
    return getattr(method, _MARK, None)


def _call(method: str, given: Mapping[str, Any]) -> Call:
    arguments = {name: _plain(name, value) for name, value in given.items() if name not in ("self", "progress")}
    if "job_id" in arguments:
        arguments["job_id"] = arguments["job_id"] or clock.new_id()
    return Call(method, arguments)


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON can hold it. Raises UsageError."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Table():
            return value.name
        case Path():
            return str(value.expanduser().absolute())
        case Mapping():
            return {str(key): _plain(name, item) for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(name, item) for item in value]
        case _:
            raise UsageError(
                f"{name}: a {type(value).__name__} cannot be handed to a driver in another process; give names and "
                "paths, or run the driver here, by the launcher Local or Remote",
                argument=name,
            )


# -- the caller's side ------------------------------------------------------------------------------------------


def carry_out(launcher: Submit, instance: Instance, call: Call) -> Any:
    """Have a driver carry out the call; what it returned, as a document.

    Raises:
        Error: what the driver raised, as the class that it was.
        NotFoundError, UsageError: there is no such table, or no such command.
        UnknownOutcomeError: the command ended, and there is no answer.
        KeyboardInterrupt: as raised in this thread; the note says what the driver committed.
    """
    storage, call_id = instance.storage, clock.new_id()
    table = instance.table(call.arguments["table"])
    since = table.state().version
    request, answer = call_request_name(call_id), call_answer_name(call_id)
    storage.create(request, wire.dump(call.to_json()))
    try:
        _delete_calls(instance, request)
        log_url = () if instance.log_url is None else (instance.log_url,)
        words = launcher.words(str(PROGRAM), (instance.url, call_id, *log_url))
        code = _run(words, instance.storage_options, lambda: storage.delete([request]))
        found = storage.get(answer)
    except KeyboardInterrupt as stop:
        with contextlib.suppress(Error):
            stop.add_note(_interrupted(storage.get(answer), table, since))
        raise
    finally:
        # A driver that comes late finds no request any more, and does nothing.
        storage.delete([request, answer])
    if found is None:
        job_id = call.arguments.get("job_id")
        repeat = "look at the table, and repeat it" if job_id is None else f"repeat it with the job id {job_id}"
        raise UnknownOutcomeError(
            f"{words[0]} ended with code {code}, and its driver left no answer: it did not start, was killed, or the "
            f"command did not wait for it. Something may have been committed; {repeat}",
            code=code,
            job_id=job_id,
        )
    document = wire.load(found)
    if "error" in document:
        raise decode_error(document["error"])
    return document["report"]


def _interrupted(answer: bytes | None, table: Table, since: int) -> str:
    """What the driver of an interrupted call said that it had committed; else what became of the table meanwhile."""
    document = {} if answer is None else wire.load(answer)
    if "interrupted" in document:
        return str(document["interrupted"])
    if "report" in document:
        return f"the driver had finished already, at version {document['report'].get('version')}"
    version = table.state().version
    if version == since:
        return f"the driver gave no answer; table {table.name} is at version {version}, as before the call"
    return (
        f"the driver gave no answer; table {table.name} went from version {since} to {version} meanwhile, and "
        "`lakebed history` tells by whom"
    )


def _run(words: Sequence[str], options: Mapping[str, str], withdraw: Callable[[], None]) -> int:
    """Run the command to its end; what it says goes to stderr. Interrupted, ``withdraw`` and end it first."""
    environment = os.environ | ({OPTIONS_VARIABLE: json.dumps(dict(options))} if options else {})
    try:
        # A process group of its own: a Ctrl-C at the terminal is for this process, which tells the driver.
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            words, stdin=subprocess.DEVNULL, stdout=_STDERR, env=environment, process_group=0
        )
    except OSError as error:
        raise UsageError(f"cannot start {words[0]}: {error.strerror}", command=words[0]) from error
    try:
        return process.wait()
    except BaseException:
        try:
            with contextlib.suppress(Error, subprocess.TimeoutExpired):
                withdraw()
                process.wait(STOPPING_S)
        finally:
            # All of its group, for a driver outlives the JVM that started it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise


def _delete_calls(instance: Instance, fresh: str) -> None:
    now = instance.storage.last_modified(fresh)
    if now is not None:
        old = [
            o.name for o in instance.storage.list(CALLS_FOLDER) if now - o.last_modified > timedelta(seconds=CALL_AGE_S)
        ]
        instance.storage.delete(old)


# -- reports as documents ---------------------------------------------------------------------------------------


def encode_report(value: Any) -> Any:
    """A report, or a part of one."""
    if isinstance(value, Error):
        return encode_error(value)
    if is_dataclass(value):
        return {f.name: encode_report(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [encode_report(item) for item in value]
    return value


def decode_report(kind: Any, document: Any) -> Any:
    """The inverse, for a report of that class."""
    if document is None:
        return None
    if isinstance(kind, type) and issubclass(kind, Error):
        return decode_error(document)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: decode_report(hints[name], part) for name, part in document.items()})  # type: ignore[operator]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        kinds = parts[:1] * len(document) if parts[-1:] == (Ellipsis,) else parts
        return tuple(decode_report(each, item) for each, item in zip(kinds, document, strict=True))
    if origin in (Union, UnionType):
        return decode_report(next(part for part in parts if part is not NoneType), document)
    return document
