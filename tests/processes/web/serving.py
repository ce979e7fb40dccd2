"""A service's application, answering over a real socket in a thread of the test."""

import socket
import threading
from contextlib import contextmanager, suppress

from lakebed.server.service.service import Service
from lakebed.server.web import server
from lakebed.server.web.app import make_app
from tests.waiting import until


@contextmanager
def listening(port=0):
    """A socket on a free port of this machine, or on this one."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        yield found


@contextmanager
def serving(instance, authenticator=None, limits=None, port=0, connections=None, *, answering=None):
    """The URL of the application of an instance. ``answering`` is called with the path of each request, once its answer
    is known and before it is sent.
    """
    app = make_app(Service(instance), authenticator, limits)
    with running(app if answering is None else noting(app, answering), port, connections) as url:
        yield url


@contextmanager
def running(app, port=0, connections=None):
    """The URL of an application that runs in a thread."""
    with listening(port) as bound:
        asked = threading.Event()
        thread = threading.Thread(target=server.serve, args=(app, bound, asked, None, connections))
        thread.start()
        address = bound.getsockname()
        until(lambda: not thread.is_alive() or is_listening(address), every_s=0.01)
        try:
            assert thread.is_alive()
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            asked.set()
            thread.join()


def noting(app, answering):
    """The application, which calls a function before each of its answers."""

    async def noted(scope, receive, send):
        async def begin(message):
            if message["type"] == "http.response.start":
                answering(scope["path"])
            await send(message)

        await app(scope, receive, begin)

    return noted


def is_listening(address):
    """Whether a connection to the address is accepted."""
    with suppress(ConnectionRefusedError), socket.create_connection(address):
        return True
    return False
