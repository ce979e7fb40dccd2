"""``lakebed status`` and ``lakebed top``: what waits, what failed, what comes next, from the store alone."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.table.tracker.runs import Begun
from tests.processes.web.serving import serving
from tests.soaked import few
from tests.tables.cli.conftest import Cli, readings

ROWS = [("Ulm", 1, minute * 60_000_000, 1.0, None) for minute in range(10)]


@pytest.fixture
def lake(table: str, url: str, tmp_path: Path) -> lakebed.Instance:
    """Runs to merge, an open request, a failed import, and a paused operation."""
    found = lakebed.open(url)
    target = found.table(table)
    for _ in range(4):
        target.write(readings(*ROWS))
    pq.write_table(readings(*ROWS), tmp_path / "in.parquet")
    target.submit(tmp_path / "in.parquet")
    begun = Begun(operation="import", table=table, table_id=target.id)
    found.tracker.record_failure(begun, Code.STORE_UNAVAILABLE("no answer"))
    found.tracker.flush()
    found.pause(table, "splitting")
    return found


def test_a_screen_says_what_waits_what_failed_and_what_comes_next(cli: Cli, lake: lakebed.Instance) -> None:
    ran = cli("status")
    assert ran.code == 0, ran.err
    assert "1 table, 45 rows" in ran.out
    assert re.search(r"ingest: 1 open request of [0-9,]+ bytes, until there are", ran.out)
    assert re.search(r"compaction: \d+ runs to merge", ran.out)
    assert "splitting: paused" in ran.out
    assert "store_unavailable: no answer" in ran.out
    assert re.search(r"last hour: \d+ commits: at least \d+ puts", ran.out)
    assert lake.table("readings").version == lakebed.open(lake.url).table("readings").state().version


def test_services_that_are_named_are_asked_for_their_reads(
    cli: Cli, lake: lakebed.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reads: not recorded; --service URL" in cli("status").out
    with serving(lake) as service:
        monkeypatch.setenv("LAKEBED_SERVICE", service)
        assert re.search(rf"reads at {service}: none in the last \d+ s", cli("status").out)
        with lakebed.connect(service) as there:
            for _ in range(3):
                there.table("readings").get("Ulm", 1)
            with pytest.raises(lakebed.UsageError) as refused:
                there.table("readings").get("Ulm", "one")
            assert refused.value.code is Code.KEY_UNPARSABLE
        assert re.search(r"a second in the last \d+ s, p50 [0-9.e+]+ ms, p99 [0-9.e+]+ ms", cli("status").out)
        (asked,) = cli("--json", "status").json["services"]
        assert (asked["url"], asked["reads"]["reads"] >= 3, asked["error"]) == (service, True, None)
        page = urllib.request.urlopen(f"{service}/").read().decode()
        assert "Reads a second" in page
    gone, other = cli("--json", "status", "--service", service, "--service", "http://127.0.0.1:1").json["services"]
    assert gone["reads"] is None
    assert "127.0.0.1:1" in other["error"]
    assert cli("status", "--service", "nonsense").code == 2


def test_it_changes_nothing(cli: Cli, lake: lakebed.Instance) -> None:
    before = sorted(found.name for found in lake.storage.list(""))
    assert cli("status").code == 0
    assert sorted(found.name for found in lake.storage.list("")) == before


def test_one_table_is_chosen_and_the_others_left_out(cli: Cli, lake: lakebed.Instance, schema_file: Path) -> None:
    assert cli("table", "create", "other", "--schema", schema_file, "--offline").code == 0
    assert [one["name"] for one in cli("status", "--json").json["tables"]] == ["other", "readings"]
    (other,) = cli("status", "other", "--json").json["tables"]
    assert (other["name"], other["online"], other["rows"]) == ("other", False, 0)
    assert cli("status", "nothing").code == 4
    assert lake.tables() == ["other", "readings"]


def test_as_arrow_it_has_a_row_a_table(lake: lakebed.Instance) -> None:
    found = lakebed.status(lake)
    rows = found.to_arrow()
    assert rows.column("table").to_pylist() == ["readings"]
    (row,) = rows.to_pylist()
    assert (row["rows"], row["backlog_requests"], row["backlog_files"]) == (45, 1, 1)
    assert row["runs_due"] >= 4
    assert any(step.startswith("compaction: ") for step in row["next"])
    assert found.last_hour.entries > 5
    assert [run.operation for run in found.failed] == ["import"]
    assert lakebed.status(lake, []).to_arrow().num_rows == 0


def test_garbage_and_the_oldest_request_are_shown_with_their_times(lake: lakebed.Instance, cli: Cli) -> None:
    table = lake.table("readings")
    table.remove(lakebed.KeyRange(None, None))
    lake.resume("readings")
    assert "kept until history_s has passed" in cli("status").out
    table.set(ingest_age_s=0, history_s=0)
    out = cli("status").out
    assert re.search(r"ingest: 1 open requests? of .*, the oldest \d+ s old", out)
    assert re.search(r"gc: \d+ files? of [0-9,]+ bytes can be deleted", out)


def test_a_table_that_cannot_be_read_does_not_hide_the_others(cli: Cli, lake: lakebed.Instance) -> None:
    broken = lake.create_table("broken", lakebed.Schema({"k": "int64"}, {}, {}))
    broken.write(pa.table({"k": [1]}))
    broken.log.wait_for_checkpoint()
    for found in list(lake.storage.list(f"tables/{broken.id}")):
        lake.storage.replace(found.name, b"damaged")
    ran = cli("status", "--json")
    assert ran.code == 0, ran.err
    by_name = {one["name"]: one for one in ran.json["tables"]}
    assert by_name["broken"]["error"]["code"]
    assert by_name["readings"]["rows"] == 45


def test_an_instance_without_tables_has_a_status(cli: Cli) -> None:
    assert cli("init").code == 0
    ran = cli("status")
    assert ran.code == 0
    assert "0 tables" in ran.out
    assert "lakebed table create" in ran.out
    assert "last hour: no commit" in ran.out


# -- top --------------------------------------------------------------------------------------------------------------


WAIT_S = 60

# Its terminal becomes the one whose keys, such as Ctrl-C, it gets.
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
TOP = """
os.execv(sys.executable, [sys.executable, "-m", "lakebed.cli", "top", "--every", "0.2"])
"""
STORE_AWAY_AT_TIMES = """
import itertools, lakebed
from lakebed.cli.screen import show_live
from lakebed.errors import Code
lake, calls = lakebed.open(os.environ["LAKEBED_INSTANCE"]), itertools.count()
def read():
    if next(calls) % 10 < 5:
        raise Code.STORE_UNAVAILABLE("the store is away")
    return lakebed.status(lake)
show_live(read, 0.2)
"""


@contextmanager
def terminal(
    url: str, program: str = TOP, width: int = 150, kind: str = "xterm-256color"
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``lakebed top``, or another program, in a terminal of its own, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    # The terminal says how large it is, and not the environment.
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = inherited | {"LAKEBED_INSTANCE": url, "TERM": kind, "PAGER": "cat"}
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL + program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def seen_until(screen: int, text: str) -> str:
    """What the terminal shows, without its control sequences, until the text is there."""
    shown, until = "", time.monotonic() + WAIT_S
    while text not in shown:
        assert time.monotonic() < until, shown[-2000:]
        assert select.select([screen], [], [], WAIT_S)[0], shown
        data = os.read(screen, 65_536)
        shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
    return shown


def rest_of(screen: int) -> bytes:
    data, until = b"", time.monotonic() + WAIT_S
    try:
        while time.monotonic() < until and select.select([screen], [], [], WAIT_S)[0]:
            data += os.read(screen, 65_536)
    except OSError:  # the other end is closed
        pass
    return data


@pytest.mark.parametrize("key", few([b"q", b"Q", b"\x03"], 1))
def test_top_shows_the_status_until_a_key_ends_it(lake: lakebed.Instance, url: str, key: bytes) -> None:
    with terminal(url) as (process, screen):
        shown = seen_until(screen, "last hour")
        assert "readings" in shown
        assert "runs to merge" in shown
        os.write(screen, key)
        after = rest_of(screen)
        assert process.wait(WAIT_S) == 0
    assert b"\x1b[?1049l" in after, "the screen that was there before is shown again"
    assert b"Traceback" not in after
    assert lake.tables() == ["readings"]


def test_top_shows_what_changes(lake: lakebed.Instance, url: str) -> None:
    with terminal(url) as (process, screen):
        seen_until(screen, "readings")
        lake.create_table("fresh", lakebed.Schema({"k": "int64"}, {}, {})).write(pa.table({"k": range(777)}))
        seen_until(screen, "777")
        process.send_signal(signal.SIGINT)
        rest_of(screen)
        assert process.wait(WAIT_S) == 0


def test_top_goes_on_while_the_store_is_away(lake: lakebed.Instance, url: str) -> None:
    with terminal(url, STORE_AWAY_AT_TIMES) as (process, screen):
        seen_until(screen, "the store is away")
        seen_until(screen, "runs to merge")
        assert "runs to merge" in seen_until(screen, "the store is away"), "the last status stays"
        os.write(screen, b"q")
        rest_of(screen)
        assert process.wait(WAIT_S) == 0
    assert lake.tables() == ["readings"]


def test_top_needs_a_terminal(cli: Cli, table: str) -> None:
    assert cli("top").code == 2
    assert "needs a terminal" in cli("top").err
    assert cli("top", "--json").code == 2
    assert cli("top", "--every", "0").code == 2
    assert cli("status", table).code == 0


LONG_NAME = "readings_of_every_station_in_the_northern_hemisphere"


def add_long_named(lake: lakebed.Instance) -> None:
    """A table with a long name and 10,000 rows."""
    table = lake.create_table(LONG_NAME, lake["readings"].schema)
    table.write(pa.table({field.name: pa.array([7] * 10_000).cast(field.type) for field in table.schema.arrow}))


def test_top_fits_a_narrow_terminal_with_a_long_name_and_cuts_no_figure(lake: lakebed.Instance, url: str) -> None:
    add_long_named(lake)
    with terminal(url, width=80) as (_, screen):
        shown = seen_until(screen, "last hour")
    lines = [line for line in shown.splitlines() if re.match(r"read\S*…\S*ere ", line)]
    assert lines, shown
    assert "10000" in lines[0].split()
    assert max(len(line.rstrip()) for line in lines) <= 80


IN_A_TERMINAL = """
os.execv(sys.executable, [sys.executable, "-m", "lakebed.cli", *{words!r}])
"""


def said_in_a_terminal(url: str, *words: str, kind: str) -> str:
    """What a command says to a terminal of 80 columns of this kind, with its control sequences."""
    with terminal(url, IN_A_TERMINAL.format(words=words), width=80, kind=kind) as (process, screen):
        said = rest_of(screen).decode()
        assert process.wait(WAIT_S) == 0, said
    return said


@pytest.mark.parametrize("kind", few(["xterm-256color", "dumb"], 1))
def test_the_status_fits_80_columns_and_cuts_no_figure(lake: lakebed.Instance, url: str, kind: str) -> None:
    add_long_named(lake)
    said = re.sub(r"\x1b\[[0-9;]*m", "", said_in_a_terminal(url, "status", kind=kind)).splitlines()
    heading = next(place for place, line in enumerate(said) if line.startswith("table "))
    table = [line for line in said[heading:] if re.match(r"table |readings |read\S*…\S*ere ", line)]
    assert len(table) == 3, said
    assert max(map(len, table)) <= 80
    assert "10000" in " ".join(table).split()


@pytest.mark.parametrize("words", [("status",), ("history", "readings"), ("settings", "show", "readings"), ("--help",)])
def test_a_dumb_terminal_gets_no_control_sequences(lake: lakebed.Instance, url: str, words: tuple[str, ...]) -> None:
    assert "\x1b" not in said_in_a_terminal(url, *words, kind="dumb")
    if words[0] in ("status", "history"):
        assert "\x1b[1m" in said_in_a_terminal(url, *words, kind="xterm-256color"), "headings are bold elsewhere"
