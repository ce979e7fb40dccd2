"""A service's application, answering over a real socket in a thread of the test."""

import socket
import threading
from contextlib import contextmanager

import uvicorn

from lakebed.service.service import Service
from lakebed.web.app import make_app


@contextmanager
def listening(port=0):
    """A socket on a free port of this machine, or on this one."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        yield found


@contextmanager
def serving(instance, authenticator=None, limits=None, port=0):
    """The URL of the application of an instance."""
    with listening(port) as bound:
        server = uvicorn.Server(uvicorn.Config(make_app(Service(instance), authenticator, limits), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        began = threading.Event()
        server.install_signal_handlers = lambda: None
        thread.start()
        while not server.started:
            assert thread.is_alive()
            began.wait(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
