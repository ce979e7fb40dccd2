"""The rule of this folder is kept by its conftest, and can find a breach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BREACHES = {
    "file": lambda: Path("never_written").write_text("", "utf-8"),
    "folder": lambda: Path("never_made").mkdir(),
    "fork": os.fork,
    "process": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "server": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "client": lambda: socket.create_connection(("127.0.0.1", 9)),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES)
def test_a_test_that_leaves_the_process_fails(breach) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"move the test from tests/pure"):
        breach()


def test_a_test_that_asks_for_a_folder_fails(request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"os\.mkdir"):
        request.getfixturevalue("tmp_path")


def test_files_of_the_repository_may_be_read() -> None:
    assert Path(__file__).read_text("utf-8")
