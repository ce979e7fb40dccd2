"""The progress bar, on a clock that the test turns."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from lakebed.jobs.progress_bar import ProgressBar
from tests.clocks import set_clock
from tests.terminals import Terminal

REMOVED = "\x1b[?25h\r\x1b[1A\x1b[2K"
"""What ends a bar: the cursor is shown again, and the line of the bar erased."""


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    set_clock(monkeypatch, monotonic_s=lambda: now[0])
    return now


def test_a_terminal_sees_a_bar_with_rate_and_time_left(now_s: list[float]) -> None:
    stream = Terminal()
    with ProgressBar("import t", stream) as bar:
        bar.update(0, 4_000_000)
        now_s[0] += 2
        bar.update(3_000_000, 4_000_000)
        assert "import t" in stream.getvalue()
        assert "3,000,000 of 4,000,000 rows, 1.50 M rows/s, 0:01 left" in stream.getvalue()
        now_s[0] += 2
        bar.update(4_000_000, 4_000_000)
    assert stream.getvalue().endswith(f"\n{REMOVED}import t: 4,000,000 rows in 4.0 s (1.00 M rows/s)\n")


def test_a_log_file_sees_a_line_now_and_then(now_s: list[float]) -> None:
    stream = io.StringIO()
    with ProgressBar("write t", stream) as bar:
        for done in range(0, 13_000, 1_000):
            bar.update(done)
            now_s[0] += 1
    assert stream.getvalue().splitlines() == [
        "write t: 5,000 rows, 1,000 rows/s",
        "write t: 10,000 rows, 1,000 rows/s",
        "write t: 12,000 rows in 13.0 s (923 rows/s)",
    ]


def test_the_time_before_the_first_row_does_not_count(now_s: list[float]) -> None:
    stream = io.StringIO()
    with ProgressBar("compact t", stream) as bar:
        now_s[0] += 60
        bar.update(0, 10)
        now_s[0] += 1
        bar.update(10, 10)
    assert stream.getvalue() == "compact t: 10 rows in 1.0 s (10 rows/s)\n"


def test_a_rate_of_less_than_a_second_is_none(now_s: list[float]) -> None:
    stream = io.StringIO()
    with ProgressBar("write t", stream) as bar:
        bar.update(0)
        now_s[0] += 0.1
        bar.update(2)
    assert stream.getvalue().endswith("write t: 2 rows in 0.1 s\n")
    assert "rows/s" not in stream.getvalue()


def test_nothing_done_says_nothing() -> None:
    stream = io.StringIO()
    with ProgressBar("compact t", stream):
        pass
    assert stream.getvalue() == ""


def test_a_bar_that_failed_is_wiped_away(now_s: list[float]) -> None:
    def fail() -> None:
        with ProgressBar("import t", stream) as bar:
            bar.update(5, 10)
            raise KeyboardInterrupt

    stream = Terminal()
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert stream.getvalue().endswith(f"\n{REMOVED}")


def test_each_phase_has_its_name_its_rate_and_its_time(now_s: list[float]) -> None:
    stream = io.StringIO()
    with ProgressBar("import t", stream) as bar:
        bar.update(0, phase="read", tasks=(0, 4))
        now_s[0] += 6
        bar.update(0, phase="read", tasks=(1, 4))
        now_s[0] += 10
        bar.update(0, 9_000, phase="sort and merge")
        now_s[0] += 6
        bar.update(6_000, 9_000, phase="sort and merge")
        now_s[0] += 6
        bar.update(9_000, 9_000, phase="commit")
    assert stream.getvalue().splitlines() == [
        "import t: read: 1 of 4 tasks, 0:18 left",
        "import t: sort and merge: 0 of 9,000 rows",
        "import t: sort and merge: 6,000 of 9,000 rows, 1,000 rows/s, 0:03 left",
        "import t: commit: 9,000 of 9,000 rows",
        "import t: 9,000 rows in 28.0 s (321 rows/s)",
    ]


def on_a_terminal(words: list[str], folder: Path) -> str:
    """What a program wrote to its terminal, a real one of 100 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "XDG_CONFIG_HOME": str(folder)}
    environment.pop("LAKEBED_INSTANCE", None)
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        written = b""
        while True:
            try:
                written += (part := os.read(ours, 65_536))
            except OSError:
                # Linux: the other end is closed.
                break
            if not part:
                break
        assert program.wait(60) == 0
    os.close(ours)
    return written.decode()


TICKING = """
import sys, time
from lakebed.jobs.progress_bar import ProgressBar, is_interactive
assert is_interactive()
with ProgressBar("import t") as bar:
    bar.update(5, phase="read")
    bar.update(5, phase="merge and send")
    time.sleep(2.6)
"""


def test_a_bar_on_a_terminal_ticks_while_nothing_is_reported(tmp_path: Path) -> None:
    shown = on_a_terminal([sys.executable, "-c", TICKING], tmp_path)
    assert "import t: read" in shown
    assert [tick for tick in ("0:01", "0:02") if "import t: merge and send" in shown and tick in shown] == [
        "0:01",
        "0:02",
    ]
    assert "5 rows in" in shown.splitlines()[-1]
    assert "\x1b[?25h" in shown


def test_a_write_on_a_terminal_names_its_phases(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,s\n" + "".join(f"{n},x\n" for n in range(5_000)))
    lakebed = [sys.executable, "-m", "lakebed.cli"]
    on_a_terminal([*lakebed, "init"], tmp_path)
    shown = on_a_terminal([*lakebed, "write", "t", "in.csv", "--key", "id"], tmp_path)
    assert "write t: read and sort" in shown
    assert "write t: merge and send" in shown
    assert "5,000 rows added" in shown
    quiet = on_a_terminal([*lakebed, "write", "t", "in.csv", "--quiet"], tmp_path)
    assert "write t:" not in quiet
