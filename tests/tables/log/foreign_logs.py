"""Instances that name a log elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakebed.model.documents import decode_document, encode_document


def move_log(instance: str, log_url: str) -> None:
    """Have an instance in a local folder name this log."""
    marker = Path(instance) / "instance.json"
    document = decode_document(marker.read_bytes(), marker.name)
    marker.write_bytes(encode_document(document | {"log_url": log_url}))


@contextmanager
def unreached() -> Iterator[str]:
    """The URL of a log at a port of this machine, to which nothing may connect during the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"postgresql://127.0.0.1:{listening.getsockname()[1]}/db"
        listening.settimeout(0)
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return
        connection.close()
        raise AssertionError("it was connected to")
