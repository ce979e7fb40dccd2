"""Calls that only some systems have stand in one module, with their portable forms, and both forms do the same.

`make test-portable` runs this file, and the tests of what uses the calls, with the portable forms forced.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakebed import system
from lakebed.storage import LocalStorage, PutOutcome, syscalls
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

# Functions, constants and modules that macOS, or a Linux before ten years ago, has not.
CALLS = {
    "copy_file_range", "ctypes", "epoll", "eventfd", "fdatasync", "fork", "forkpty", "F_FULLFSYNC", "fsync",
    "getrandom", "getxattr", "inotify", "link", "listxattr", "memfd_create", "O_DIRECT", "O_NOATIME", "O_PATH",
    "O_TMPFILE", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "prctl", "preadv", "process_cpu_count",
    "psutil", "pwritev", "removexattr", "sched_getaffinity", "sched_setaffinity", "sendfile", "setns", "setxattr",
    "signalfd", "SO_REUSEPORT", "splice", "timerfd_create", "unshare",
}  # fmt: skip
# What names a system, where its capability is to be asked.
SYSTEMS = {("sys", "platform"), ("os", "name"), ("platform", "system"), ("platform", "machine")}
FILES = re.compile(r"(^|[\s'\"=])/?(proc|sys|dev/shm)/|^\0.")
SUSPECTED = re.compile(
    rf"\b({'|'.join(CALLS)})\b|os\.name|sys\.platform|platform\.(system|machine)|from (sys|platform) import"
    r"|(proc|sys|dev/shm)/|\\0[^\\'\"]"
)
"""What a module that names one of these has in its text: parsing all of them takes seconds."""
HOME = Path("lakebed/system.py")
MODULES = {"os", "fcntl", "socket", "select", "signal", "ctypes", "psutil"}


def of_some_systems(tree: ast.Module) -> list[str]:
    """What a module names that only some systems have: by line."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                if (owner in MODULES and name in CALLS) or (owner, name) in SYSTEMS:
                    found.append((node.lineno, f"{owner}.{name}"))
            case ast.Import(names=names):
                found += [(node.lineno, one.name) for one in names if one.name.partition(".")[0] in CALLS]
            case ast.ImportFrom(module=str(owner), names=names):
                taken = [one.name for one in names if one.name in CALLS or (owner, one.name) in SYSTEMS]
                found += [(node.lineno, f"{owner}.{name}") for name in taken if owner in {*MODULES, "sys", "platform"}]
            case ast.Constant(value=str(text)) if id(node) not in documented and FILES.search(text):
                found.append((node.lineno, repr(text)))
    return [f"{line}: {what}" for line, what in sorted(found)]


def test_calls_of_some_systems_stand_in_one_module() -> None:
    texts = {path.relative_to(SOURCE): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    found = {path: of_some_systems(ast.parse(text)) for path, text in texts.items() if SUSPECTED.search(text)}
    assert found.pop(HOME), "the home of these calls is elsewhere now"
    breaches = [f"{path}:{one}; use or extend lakebed.system" for path, lines in found.items() for one in lines]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize(
    "text",
    [
        "os.posix_fadvise(0, 0, 0, 4)", "import ctypes", "import ctypes.util", "from os import preadv", "os.fsync(1)",
        "sys.platform == 'linux'", "from sys import platform", "os.link('a', 'b')", "select.epoll()", "import psutil",
        "Path('/proc') / '1' / 'stat'; open('/proc/1/stat')", "x = root / 'sys/fs/cgroup'", "y = '/dev/shm/lake'",
        "socket.socket().bind('\\0lakebed')", "fcntl.F_FULLFSYNC",
    ],
)  # fmt: skip
def test_a_breach_is_found_in(text: str) -> None:
    assert len(of_some_systems(ast.parse(text))) == 1


def test_texts_of_documentation_are_no_breach() -> None:
    assert not of_some_systems(ast.parse('"""Reads /proc/1/stat."""\ndef f():\n    """As /proc/ says."""\n'))


# -- the calls, in the form that this run has chosen ------------------------------------------------------------------


def test_a_file_is_allocated_whole(tmp_path: Path) -> None:
    size = 3 * 1024 * 1024 + 5
    with (tmp_path / "f").open("xb") as file:
        system.allocate(file.fileno(), size)
    assert (tmp_path / "f").stat().st_size == size
    assert (tmp_path / "f").stat().st_blocks * 512 >= size


@pytest.mark.parametrize("read", [system.read_into, system._read_each], ids=["chosen", "portable"])
def test_buffers_are_filled_from_an_offset_up_to_the_end_of_the_file(tmp_path: Path, read) -> None:
    (tmp_path / "f").write_bytes(bytes(range(200)))
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        buffers = [bytearray(3), bytearray(0), bytearray(100)]
        assert read(descriptor, buffers, 10) == 103
        assert bytes(buffers[0]) == bytes(range(10, 13))
        assert bytes(buffers[2]) == bytes(range(13, 113))
        rest = [bytearray(150), memoryview(bytearray(b"xyz"))]
        assert read(descriptor, rest, 100) == 100
        assert rest == [bytes(range(100, 200)) + bytes(50), b"xyz"]
    finally:
        os.close(descriptor)


def test_a_name_that_is_taken_is_not_renamed_over(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    with pytest.raises(FileExistsError, match="File exists"):
        system.rename_exclusively(str(one), str(other))
    assert other.read_text() == "2"
    system.rename_exclusively(str(one), str(tmp_path / "new"))
    assert (tmp_path / "new").read_text() == "1"
    assert not one.exists()
    with pytest.raises(FileNotFoundError, match="No such file"):
        system.rename_exclusively(str(one), str(tmp_path / "newer"))


def test_one_of_many_renames_to_a_name_succeeds(tmp_path: Path) -> None:
    """As one of many links: what an entry of a log depends on."""

    def attempt(number: int) -> PutOutcome:
        mine = tmp_path / f".{number}"
        mine.write_text(str(number))
        return syscalls.link(str(mine), str(tmp_path / "entry"))

    for _ in range(50):
        with ThreadPoolExecutor(8) as threads:
            outcomes = list(threads.map(attempt, range(8)))
        assert outcomes.count(PutOutcome.CREATED) == 1
        assert (tmp_path / "entry").read_text() == str(outcomes.index(PutOutcome.CREATED))
        (tmp_path / "entry").unlink()


def test_a_process_is_the_same_until_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        boot, namespace, start = system.process_identity(child.pid)
        assert (boot, namespace, start) == system.process_identity(child.pid)
        assert (boot, namespace) == system.process_identity(os.getpid())[:2]
        assert re.fullmatch(r"[0-9a-f-]{8,}", boot)
        assert re.fullmatch(r"\[[0-9]+\]", namespace)
        assert re.fullmatch(r"[0-9]+", start)
        assert (child.pid, os.getpid()) in system.process_parents()
        assert 1_000_000 < system.held_bytes(child.pid) < 2**30
    finally:
        assert child.stdin is not None
        child.stdin.close()
        # A zombie until it is waited for.
        until(lambda: is_over(child.pid))
        child.wait()
    assert is_over(child.pid)
    assert system.held_bytes(child.pid) == 0


def is_over(pid: int) -> bool:
    try:
        system.process_identity(pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return False


def test_without_a_way_to_ask_no_process_counts_as_ended() -> None:
    """A job of a process that has ended is taken over: that must be known, and not be the lack of a program."""
    program = (
        "from lakebed.storage.processes import is_gone, is_mark_gone, owner_mark, this_process\n"
        "assert this_process() == owner_mark() == ''\n"
        "assert not is_gone('host:b:n:1:s') and not is_mark_gone('b.n.1.s')\n"
    )
    variables = os.environ | {"LAKEBED_PORTABLE": "1", "PATH": "/nowhere"}
    subprocess.run([sys.executable, "-c", program], check=True, env=variables)


def test_memory_that_a_process_takes_is_seen() -> None:
    before, reserved = system.held_bytes(os.getpid()), system.reserved_bytes()
    taken = bytearray(64 * 2**20)
    taken[::4096] = b"x" * len(taken[::4096])
    assert system.held_bytes(os.getpid()) - before > 48 * 2**20
    assert system.reserved_bytes() >= max(reserved, len(taken))


def test_a_file_is_synced_past_the_cache_of_the_drive_where_the_system_can() -> None:
    """macOS has F_FULLFSYNC, which some of its file systems refuse; another error is one."""
    program = """
import errno, fcntl, os
from lakebed import system
calls, answer = [], []
fcntl.F_FULLFSYNC = 51
def control(descriptor, command):
    calls.append(command)
    if answer:
        raise OSError(answer[0], "refused")
fcntl.fcntl, os.fsync = control, lambda descriptor: calls.append("fsync")
system.sync(0)
answer.append(errno.ENOTSUP)
system.sync(0)
answer[0] = errno.EIO
try:
    system.sync(0)
except OSError:
    calls.append("error")
assert calls == [51, 51, "fsync", 51, "error"], calls
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_system_that_is_not_posix_is_refused_with_the_way_out() -> None:
    program = "import sys; sys.modules['fcntl'] = None; import lakebed"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "ImportError: Lakebed runs on Linux and macOS" in ran.stderr
    assert "wsl --install" in ran.stderr


@pytest.mark.skipif(system.FORCED, reason="is run by it")
def test_the_portable_forms_do_the_same() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not one_module and not breach",
            __file__,
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LAKEBED_PORTABLE": "1"},
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout


def test_an_instance_is_created_without_links_by_both_kinds_of_processes(tmp_path: Path) -> None:
    """A process that links and one that renames exclude each other: both fail if the name is taken."""
    program = (
        "import sys; from pathlib import Path; from lakebed.storage import LocalStorage\n"
        "print(LocalStorage(Path(sys.argv[1])).create(sys.argv[2], b'theirs').name)"
    )

    def created_by_another(name: str, portable: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), name],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"LAKEBED_PORTABLE": portable},
        )
        return ran.stdout.strip()

    mine = LocalStorage(tmp_path)
    for portable in ("", "1"):
        name = f"log/{portable or 0}"
        assert created_by_another(name, portable) == "CREATED"
        assert created_by_another(name, portable) == "EXISTS"
        assert mine.create(name, b"mine") is PutOutcome.EXISTS
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["0", "1", "log"]


def test_errors_of_a_file_system_with_neither_name_both() -> None:
    refused = OSError(errno.EOPNOTSUPP, "no")
    message = str(syscalls.explanation("create", "/mnt/x", refused))
    assert "neither hard links nor an exclusive rename" in message
