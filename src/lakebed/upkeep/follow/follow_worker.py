"""A process that follows a source for a service, until it is asked to end or its service is gone.

Core type: :class:`FollowWorker`, for the service; the process runs :func:`main`. It follows as `lakebed follow` does
(:meth:`DeclaredFollower.follower`), and answers with who it is, what there is to say, and why it ended. Whenever it is
killed, or its service is, the next one goes on behind what was committed.

Errors: those of a source and of writes, as the result of :meth:`FollowWorker.wait`.
"""

from __future__ import annotations

import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from lakebed.errors import Code, Error
from lakebed.model.arrays import leave_pandas_out
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage.processes import this_process
from lakebed.storage.worker_process import Worker, answer_pipe, exit_text, requests, write_message
from lakebed.upkeep.follow.declared_follower import DeclaredFollower

END_S = 5.0
"""How long a process that said that it ended may take to exit."""


class FollowWorker:
    """The process of a follower. ``place`` has the arguments of :func:`lakebed.open`, ``scratch`` its files.

    Raises UsageError and Error as :class:`Worker`.
    """

    def __init__(self, place: Mapping[str, Any], declared: DeclaredFollower, scratch: str) -> None:
        self.holder = ""
        """What the record of the follower says of the process; empty until it has begun."""
        self._name = declared.name
        self._worker = Worker(__name__, scratch)
        self._worker.send(pickle.dumps((dict(place), declared)))

    def ask_to_end(self) -> None:
        """Have it commit and record what it has, and end."""
        self._worker.send(b"end")

    def kill(self) -> None:
        """Kill it, from any thread."""
        self._worker.kill()

    def wait(self, say: Callable[[str], None]) -> Error | None:
        """Pass on what it says until it ends; return why it did: None if it was asked to."""
        while (message := self._worker.receive()) is not None:
            # Written by the process that this one started.
            kind, value = pickle.loads(message)  # noqa: S301
            match kind:
                case "holder":
                    self.holder = value
                case "said":
                    say(value)
                case _:
                    self._worker.end(END_S)
                    return value if isinstance(value, Error) else None
        how = exit_text(self._worker.end(END_S))
        return Code.WORKER_FAILED(f"the process of the follower {self._name} ended with {how}", transient=True)


# -- in the process ----------------------------------------------------------------------------------------------


def main() -> None:
    """Follow what the first message says until the next one. Ends with stdin, at any moment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_pandas_out()
    answers, messages = answer_pipe(), requests()
    place, declared = pickle.loads(next(messages))  # noqa: S301 - of the service
    stopping, writing = threading.Event(), threading.Lock()

    def answer(kind: str, value: object) -> None:
        with writing:
            write_message(answers, pickle.dumps((kind, value)))

    def await_end() -> None:
        next(messages)
        stopping.set()

    threading.Thread(target=await_end, name="lakebed-follow-end", daemon=True).start()
    answer("holder", this_process())
    answer("ended", _followed(place, declared, stopping, lambda text: answer("said", text)))


def _followed(
    place: Mapping[str, Any], declared: DeclaredFollower, stopping: threading.Event, say: Callable[[str], None]
) -> Error | None:
    from lakebed.table.opening import open as open_instance

    try:
        with optional_imports():
            follower = declared.follower(open_instance(**place), say)
        follower.run(stop=stopping.is_set)
    except Error as error:
        return error
    except Exception as error:  # noqa: BLE001 - a bug, which the log of the service has to show
        traceback.print_exc(file=sys.stderr)
        return Code.INTERNAL_ERROR(f"the follower failed; the log of the service says why ({type(error).__name__})")
    return None
