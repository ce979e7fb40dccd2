"""What only a process of its own shows: exit codes, pipes, Ctrl-C, and what a command imports and costs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from tests.soaked import few
from tests.waiting import until

ROWS = 1_000_000
STOPPING = "lakebed: stopping …; again to stop hard\n"

# What takes long to import, and what only reads state has no use for.
HEAVY = {"pandas", "datafusion", "pyspark", "pyarrow.parquet", "pyarrow.dataset", "obstore", "boto3", "rich"}

STATE_ONLY = [
    ["table", "list"],
    ["table", "show", "t"],
    ["settings", "show", "t"],
    ["settings", "show", "--defaults"],
    ["table", "files", "t"],
    ["table", "partitions", "t"],
    ["history", "t"],
    ["history", "t", "--entries"],
    ["verify", "t"],
    ["split", "t", "--dry-run"],
    ["compact", "t", "--dry-run"],
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance with a table that takes seconds to print, and a file that takes seconds to write."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(1)
    keys = pa.array(rng.permutation(ROWS)).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"at": keys, "n": rng.integers(0, 1 << 40, ROWS)})
    pq.write_table(rows, folder / "rows.parquet")
    instance = lakebed.create(str(folder / "lake"))
    table = instance.create_table("t", lakebed.Schema.from_arrow(rows.schema, ["at"]))
    for start in (0, ROWS // 2):
        table.write(rows.slice(start, ROWS // 2))
    return folder


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "lakebed.cli", *map(str, words)]


def environment(lake: Path) -> dict[str, str]:
    return os.environ | {"LAKEBED_INSTANCE": str(lake / "lake"), "TMPDIR": str(lake)}


def with_ctrl_c(words: list[str]) -> list[str]:
    """A shell that runs the tests in the background makes them, and what they start, ignore it."""
    program = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", program, *words]


def run(lake: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), env=environment(lake), capture_output=True, check=False, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["table", "list"], 0),
        (["table", "lost"], 2),
        (["get", "t", "noon"], 3),
        (["get", "u", "noon"], 4),
        (["init", "/proc/is/never/written"], 5),
    ],
    ids=str,
)
def test_a_process_exits_with_the_code_and_no_traceback(lake: Path, words: list[str], code: int) -> None:
    ran = run(lake, *words)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.startswith("lakebed: " if code else "")


def test_what_only_reads_state_imports_nothing_heavy(lake: Path) -> None:
    """One process runs them all, for each would import much the same; the first that imports too much is named."""
    program = (
        "import json, sys\nfrom lakebed.cli import main\ndone = []\nfor words in json.loads(sys.argv[1]):\n"
        "    done.append([words, main(words), sorted(sys.modules)])\nprint(json.dumps(done), file=sys.stderr)"
    )
    ran = _python(lake, program, json.dumps(STATE_ONLY))
    for words, code, modules in json.loads(ran.splitlines()[-1]):
        assert (words, code, HEAVY & set(modules)) == (words, 0, set())


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["table", "--help"], ["completion", "bash"]], ids=" ".join
)
def test_help_and_version_import_little(lake: Path, words: list[str]) -> None:
    """A tenth of a second of CPU, most of which is Python's start and Click; counted in modules, which do not vary."""
    modules = imported(lake, words)
    assert not (HEAVY | {"pyarrow", "numpy", "lakebed.table.table"}) & modules
    assert len(modules) < 180
    assert sum(name.startswith("lakebed") for name in modules) < 16


def test_a_get_imports_little_beside_pyarrow(lake: Path) -> None:
    modules = imported(lake, ["get", "t", "1970-01-01T00:00:00Z"])
    assert not {"datafusion", "obstore", "pandas", "pyspark", "rich", "lakebed.write.input_files"} & modules
    # Statements, and the compression that `shutil` imports.
    assert not {"lakebed.engine", "shutil", "lzma", "bz2"} & modules
    # The file systems of clouds, and what they need.
    assert not {"pyarrow.parquet", "pyarrow.fs", "pyarrow._s3fs", "ssl", "subprocess", "hashlib"} & modules
    # The locale says which encodings Python imports.
    assert sum(not name.startswith(("pyarrow", "numpy", "encodings")) for name in modules) < 332


@pytest.mark.parametrize(
    ("words", "code"),
    [(["sql", "SELECT count(*) AS n FROM t WHERE n % 2 = 0"], 0), (["serve", "--host", "0.0.0.0"], 2)],
)
def test_a_query_and_a_service_do_not_import_pandas(lake: Path, words: list[str], code: int) -> None:
    """DataFusion asks PyArrow for a scalar when it is imported, and PyArrow would look for pandas.

    The service is refused its address once all is imported.
    """
    line = [sys.executable, "-X", "importtime", *command(*words)[1:]]
    ran = subprocess.run(line, env=environment(lake), capture_output=True, check=False, text=True, timeout=120)
    assert ran.returncode == code, ran.stderr[-1000:]
    found = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "datafusion" in found
    assert not {name for name in found if name.startswith("pandas.")}


def imported(lake: Path, words: list[str]) -> set[str]:
    """The modules that a command which succeeds imports."""
    program = (
        "import json, sys\nfrom lakebed.cli import main\ncode = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    code, modules = json.loads(_python(lake, program, *words).splitlines()[-1])
    assert code == 0
    return set(modules)


def _python(folder: Path, program: str, *words: str) -> str:
    """What a program writes to its standard error."""
    line = [sys.executable, "-c", program, *words]
    ran = subprocess.run(line, env=environment(folder), capture_output=True, check=True, text=True, timeout=120)
    return ran.stderr


def test_what_finds_nothing_for_spark_to_do_does_not_start_java(tmp_path: Path) -> None:
    table = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "string"}, {}, {}))
    table.write(pa.table({"k": ["a"]}), commit_id="monday")
    words = [("gc", "t"), ("gc",), ("split", "t"), ("compact", "t"), ("maintain", "t")]
    assert not {"pyspark", "pandas", "py4j"} & _ran_without_java(tmp_path, dict.fromkeys(words, 0))
    known = dict.fromkeys([("import", "t", "in", "--job-id", "monday"), ("attach", "t", "in", "--job-id", "monday")], 0)
    _ran_without_java(tmp_path, known | dict.fromkeys([("import", "t", "nowhere"), ("attach", "t", "nowhere")], 4))


def _ran_without_java(folder: Path, commands: dict[tuple[str, ...], int]) -> set[str]:
    """Run commands, each of which ends with its code and starts no process; returns the modules they imported."""
    program = (
        "import json, sys\nstarted = []\n"
        "sys.addaudithook(lambda name, given: name == 'subprocess.Popen' and started.append(str(given[0])))\n"
        "from lakebed.cli import main\ncodes = [main(words) for words in json.loads(sys.argv[1])]\n"
        "print(json.dumps([codes, started, sorted(sys.modules)]), file=sys.stderr)"
    )
    codes, started, modules = json.loads(_python(folder, program, json.dumps(list(commands))).splitlines()[-1])
    assert codes == list(commands.values())
    assert started == []
    return set(modules)


def test_a_reader_that_goes_away_is_no_error(lake: Path) -> None:
    with subprocess.Popen(
        command("scan", "t", "--json"), env=environment(lake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


@pytest.fixture
def scanning(lake: Path) -> Iterator[subprocess.Popen[str]]:
    """A scan that has printed its first row and has many to go, in no hurry to be read."""
    process = subprocess.Popen(
        with_ctrl_c(command("scan", "t")),
        env=environment(lake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_ctrl_c_ends_a_scan(scanning: subprocess.Popen[str]) -> None:
    scanning.send_signal(signal.SIGINT)
    _, said = scanning.communicate(timeout=120)
    assert (scanning.returncode, said) == (130, f"{STOPPING}lakebed: interrupted\n")


NATIVE_WAIT = """
import ctypes, sys, threading
from lakebed.cli.interrupts import handle_interrupts

def report():
    with entered:
        print("waiting", flush=True)
    sys.stdin.readline()
    ctypes.CDLL(None).pthread_mutex_unlock(mutex)

handle_interrupts()
lock = ctypes.CDLL(None).pthread_mutex_lock
mutex = ctypes.create_string_buffer(64)
lock(mutex)
entered = threading.Lock()
entered.acquire()
threading.Thread(target=report, daemon=True).start()
# From here on, the other thread runs only once this one is in native code.
sys.setswitchinterval(1000)
entered.release()
lock(mutex)
"""


FIRST_HANDLED = """handle_interrupts()
try:
    print("waiting", flush=True)
    # Python can miss a signal just before it waits for a lock, so no wait here is without an end.
    while not threading.Event().wait(0.1):
        pass
except KeyboardInterrupt:
    pass
"""
CLEANING_UP = NATIVE_WAIT.replace("waiting", "cleaning up").replace("handle_interrupts()\n", FIRST_HANDLED)


DEEP_WAIT = """
import os, sys, time
from lakebed.engine.stack import on_deep_stack

def compute():
    # Python misses a signal that arrives between its last check for signals and the system call that waits for a lock.
    # The main thread has left Python for that call, or this thread would not run; half a second is more than it needs.
    time.sleep(0.5)
    # Not by print: a thread that is inside of it holds its lock, without which Python aborts when it ends.
    os.write(1, b"waiting\\n")
    time.sleep(600)

# As above.
sys.setswitchinterval(1000)
on_deep_stack(compute)
"""


@contextlib.contextmanager
def interrupted(program: str) -> Iterator[subprocess.Popen[str]]:
    """A program that gets a Ctrl-C once it says that it waits."""
    process = subprocess.Popen(
        with_ctrl_c([sys.executable, "-c", program]),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_ctrl_c_stops_a_command_whose_main_thread_waits_in_native_code() -> None:
    """The engine waits so while a join computes: Python runs no handler of a signal until it returns."""
    with interrupted(NATIVE_WAIT) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == STOPPING
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().startswith("lakebed: stopped hard; ")


def test_a_second_ctrl_c_stops_a_command_that_cleans_up_in_native_code() -> None:
    """The handler of the first one was called, and that of the second is not, while a store is waited for."""
    with interrupted(CLEANING_UP) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "cleaning up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_a_ctrl_c_is_acknowledged_once_also_when_native_code_returns_later() -> None:
    with interrupted(NATIVE_WAIT) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == STOPPING
        said = process.communicate("return\n", timeout=60)[1]
        assert said.endswith("KeyboardInterrupt\n")
        assert STOPPING not in said


def test_ctrl_c_ends_a_process_whose_deep_statement_is_still_computed() -> None:
    with interrupted(DEEP_WAIT) as process:
        assert process.wait(60) == -signal.SIGINT


@pytest.mark.parametrize("into", few([["t"], ["new", "--key", "at"]], 1), ids=["existing table", "new table"])
def test_ctrl_c_ends_a_write_that_adds_nothing(lake: Path, into: list[str]) -> None:
    table = lakebed.open(str(lake / "lake")).table("t")
    table.state()
    before = table.version
    files = [shutil.copyfile(lake / "rows.parquet", lake / f"rows-{n}.parquet") for n in range(20)]
    process = subprocess.Popen(
        with_ctrl_c(command("write", *into, *files)),
        env=environment(lake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        # Its scratch folder is there: rows are being read and sorted, for seconds to come.
        until(lambda: list(lake.glob("lakebed-*")), every_s=0.005)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, ""), said
    assert said.endswith(f"{STOPPING}lakebed: interrupted: nothing was committed\n")
    table.state()
    assert table.version == before
    assert lakebed.open(str(lake / "lake")).tables() == ["t"]
    assert not list(lake.glob("lakebed-*")), "a scratch folder was left behind"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_output_that_cannot_be_written_is_an_error_of_storage(lake: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            command("scan", "t", "--limit", 1000),
            env=environment(lake), stdout=full, stderr=subprocess.PIPE, check=False, text=True, timeout=60,
        )  # fmt: skip
    assert ran.returncode == 5
    assert ran.stderr.startswith("lakebed: cannot write the output: No space left on device")
    assert "Traceback" not in ran.stderr


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "lakebed", "table"]
    ran = subprocess.run(line, env=environment(tmp_path), capture_output=True, check=False, text=True, timeout=120)
    assert ran.returncode == 2
    assert ran.stderr.endswith("see `lakebed table --help`\n")
