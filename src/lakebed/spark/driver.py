"""The program of a driver that the launcher ``Submit`` starts: ``driver.py INSTANCE_URL CALL_ID [LOG_URL]``.

It takes its call from the instance's store, carries it out in a session as ``spark-submit`` configured it, and puts
the answer beside the call: the report, or the error. When the call is gone from the store, its caller was interrupted:
the driver then stops as it does on a signal, and answers with what was committed. Wherever it runs, ``lakebed`` must be
installed there, in the same version as the caller's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import lakebed
from lakebed.errors import Error, UsageError, encode_error
from lakebed.model.files import call_answer_name, call_request_name
from lakebed.spark import Pipeline, wire
from lakebed.spark.submission import OPTIONS_VARIABLE, Call, encode_report, report_of

LOOK_S = 2.0
"""How often the driver looks whether its call is still wanted: a request to the store each time."""


def main(words: Sequence[str]) -> int:
    """Carry out one call; 0 if it left an answer, be it an error."""
    url, call_id, *log_url = words
    # Out of the environment at once: what Spark starts inherits it.
    options = wire.load(os.environ.pop(OPTIONS_VARIABLE, "{}"))
    instance = lakebed.open(url, storage_options=options, log_url=log_url[0] if log_url else None)
    name = call_request_name(call_id)
    request = instance.storage.get(name)
    if request is None:
        print(f"lakebed: there is no call {call_id} at {instance.url} (any more)", file=sys.stderr)  # noqa: T201 - a driver's log
        return 1
    try:
        with _until_withdrawn(instance, name):
            answer = {"report": encode_report(_carried_out(instance, Call.from_json(wire.load(request))))}
    except KeyboardInterrupt as stop:
        answer = {"interrupted": "; ".join(getattr(stop, "__notes__", ["nothing was committed"]))}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's to hear
        answer = {"error": encode_error(error)}
    instance.storage.replace(call_answer_name(call_id), wire.dump(answer))
    return 0


@contextlib.contextmanager
def _until_withdrawn(instance: lakebed.Instance, request: str) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block, which runs in the main thread, when the request is gone, or on SIGTERM."""
    ended = threading.Event()
    for version in (signal.SIGINT, signal.SIGTERM):
        signal.signal(version, signal.default_int_handler)

    def look() -> None:
        while not ended.wait(LOOK_S):
            with contextlib.suppress(Error):
                if instance.storage.last_modified(request) is None:
                    signal.pthread_kill(main_thread, signal.SIGINT)
                    return

    main_thread = threading.get_ident()
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        # No signal comes after this block.
        ended.set()
        looking.join()


def _carried_out(instance: lakebed.Instance, call: Call) -> object:
    with Pipeline(instance) as pipeline:
        method = getattr(type(pipeline), call.method, None)
        if report_of(method) is None:
            raise UsageError(f"a pipeline has no {call.method!r} that can be submitted", method=call.method)
        done: object = getattr(pipeline, call.method)(**call.arguments)
        return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
