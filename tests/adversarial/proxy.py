"""A TCP proxy that breaks connections: before a request reaches the server, or between the request and the answer."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress

CHUNK = 64 * 1024


class FaultyProxy:
    """Listens on its own loopback port. ``faults`` counts the connections that it broke."""

    def __init__(self, port: int, *, rate: float, seed: int, delay_s: float = 0.01) -> None:
        """``rate``: the share of chunks, in either direction, at which a connection is broken."""
        self._target = ("127.0.0.1", port)
        self._rate, self._delay_s = rate, delay_s
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.faults = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with suppress(OSError):
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(CHUNK):
                time.sleep(self._chance.uniform(0, self._delay_s))
                if self._chance.random() < self._rate:
                    self.faults += 1
                    break
                sink.sendall(chunk)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
