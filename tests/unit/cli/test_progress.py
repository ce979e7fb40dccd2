"""The progress bar, on a clock that the test turns."""

from __future__ import annotations

import io

import pytest

from lakebed import clock
from lakebed.cli.progress import ProgressBar

REMOVED = "\x1b[?25h\r\x1b[1A\x1b[2K"
"""What ends a bar: the cursor is shown again, and the line of the bar erased."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now[0])
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
