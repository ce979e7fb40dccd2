"""A feature store in a temporary folder, and a service of its instance."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from stores import store_at

import lakebed


@pytest.fixture
def lake(tmp_path):
    return lakebed.create(str(tmp_path / "lake"))


@pytest.fixture
def store(tmp_path, lake):
    return store_at(tmp_path)


@pytest.fixture
def service(tmp_path, lake):
    """The URL of a service of the instance."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "lakebed", "--instance", lake.url, "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(1200):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/health/ready"):
                    break
                assert process.poll() is None
                time.sleep(0.1)
            yield f"http://{address}"
        finally:
            process.terminate()
