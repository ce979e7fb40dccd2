"""What the operating system or a file system may lack: each such call, and its portable form.

Lakebed needs POSIX; ``lakebed/__init__.py`` refuses another system. Beyond that a call is used if it is there, and
otherwise its portable form, which is slower or knows less. Rules: it is chosen by capability (the module has the
function, the file exists, the call is not refused), never by the name of a system; no other module names these calls
(tests/processes/test_portable.py). The variable ``LAKEBED_PORTABLE`` chooses the portable forms everywhere, for tests.

Errors: OSError. Source: POSIX.1-2024, Linux and macOS man pages; docs/decisions/0090.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Buffer = bytearray | memoryview

FORCED = bool(os.environ.get("LAKEBED_PORTABLE"))
"""Whether portable forms are used even where they are not necessary."""

_PROC = Path("/proc")
_HAS_PROC = not FORCED and (_PROC / "self/stat").exists()
_START_TIME_FIELD = 21
"""In /proc/<pid>/stat, counted from 0: clock ticks from boot to the start of the process."""
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY})
"""What systems answer to a call that this file system does not have."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CHUNK = bytes(1024 * 1024)


def _native(name: str) -> Callable[..., Any] | None:
    """Return a function of :mod:`os` that not every system has; None: use the portable form."""
    return None if FORCED else getattr(os, name, None)


# -- files ----------------------------------------------------------------------------------------------------------


def sync(descriptor: int) -> None:
    """Make a file, or the entries of a directory, durable.

    On macOS fsync leaves data in the cache of the drive, and F_FULLFSYNC empties that too. A file system may not have
    it, such as a network mount.
    """
    if (full := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return
    os.fsync(descriptor)


def hard_link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name. Raises FileExistsError, or OSError on a file system without links."""
    if FORCED:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))
    os.link(source, target, follow_symlinks=False)


def rename_exclusively(source: str, target: str) -> None:
    """Rename a file to a name that is free, atomically: the portable form of a link that creates an object.

    Raises:
        FileExistsError: the name is taken.
        OSError: EOPNOTSUPP if the system or the file system has no such rename.
    """
    # 12 ms for the import, which only a file system without links takes.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(source), os.fsencode(target)
    if hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, 4)  # RENAME_EXCL
    elif hasattr(library, "renameat2"):
        here = -100  # AT_FDCWD
        failed = library.renameat2(here, names[0], here, names[1], 1)  # RENAME_NOREPLACE
    else:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), target)
    if failed:
        code = ctypes.get_errno()
        code = errno.EOPNOTSUPP if code in _UNSUPPORTED else code
        raise OSError(code, os.strerror(code), target)


def allocate(descriptor: int, size_bytes: int) -> None:
    """Take the space of an empty file, which is then of this size. Raises OSError if there is not as much."""
    if (allocate_at_once := _native("posix_fallocate")) is not None:
        allocate_at_once(descriptor, 0, size_bytes)
        return
    for begin in range(0, size_bytes, len(_CHUNK)):
        rest = memoryview(_CHUNK)[: size_bytes - begin]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _read_each(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    filled = 0
    for buffer in buffers:
        data = os.pread(descriptor, len(buffer), offset + filled)
        buffer[: len(data)] = data
        filled += len(data)
        if len(data) < len(buffer):
            break
    return filled


read_into: Callable[[int, Sequence[Buffer], int], int] = _native("preadv") or _read_each
"""Fill buffers, one after another, from an offset of a file; returns the number of bytes, fewer at its end."""


# -- the machine ----------------------------------------------------------------------------------------------------


def available_cores() -> int:
    """Return how many cores this process may use; those of the machine, if the system does not say."""
    if (affinity := _native("sched_getaffinity")) is not None:
        return len(affinity(0))
    return os.cpu_count() or 1


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory of this machine, or of this container if that has less. ``root`` holds ``sys`` and ``proc``."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):
        # The group of this process (cgroup v2), and those around it, each of which may have a limit.
        path = (root / "proc/self/cgroup").read_text().partition("0::/")[2].strip()
        folders = [groups / path, *(groups / path).parents] if path else [groups]
        files = [folder / "memory.max" for folder in folders if folder.is_relative_to(groups)]
        for file in (*files, groups / "memory/memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                # ValueError: "max", which is no limit.
                limits.append(int(file.read_text()))
    return min(limits)


def refuse_huge_pages() -> None:
    """Ask for pages of the usual size for this process, where the system offers the choice."""
    import ctypes

    library = ctypes.CDLL(None)
    if not FORCED and hasattr(library, "prctl"):
        # PR_SET_THP_DISABLE. If the system refuses, huge pages stay enabled.
        library.prctl(41, 1, 0, 0, 0)


def survives_forks() -> bool:
    """Return whether a process that has imported libraries can be forked, as far as Python knows.

    Where the libraries of the system start threads of their own, Python's default is to spawn processes.
    """
    import multiprocessing

    return not FORCED and multiprocessing.get_all_start_methods()[0] != "spawn"


# -- processes ------------------------------------------------------------------------------------------------------


def process_identity(pid: int) -> tuple[str, str, str]:
    """Return texts of the boot, of the pid namespace (a number in brackets) and of the start of a process (a number).

    Raises:
        FileNotFoundError, ProcessLookupError: there is no such process, or it has ended.
        OSError: the system does not say.
    """
    if not _HAS_PROC:
        # The first process of a system or a container starts with it. Its start and a host's name tell boots apart.
        boot = f"{os.uname().nodename} {_started(1)}"
        return f"{zlib.crc32(boot.encode()):08x}", "[0]", _started(pid)
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (_PROC / "self/ns/pid").readlink().name.removeprefix("pid:")
    # Field 1 is the name of the program, in parentheses, which may contain blanks and parentheses.
    stat = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    if stat[0] in "ZX":
        raise ProcessLookupError(pid)
    return boot, namespace, stat[_START_TIME_FIELD - 2]


def process_parents() -> list[tuple[int, int]]:
    """Return pairs of process id and parent process id, of all processes."""
    if not _HAS_PROC:
        listed = [line.split() for line in _ps("-A", "-o", "pid=,ppid=").splitlines()]
        return [(int(process), int(parent)) for process, parent in listed]
    found = []
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of the program, in parentheses, may contain blanks and parentheses.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            found.append((int(stat.parent.name), int(fields[1])))
    return found


MEMORY_POLL_S = 0.02 if _HAS_PROC else 0.2
"""The pause between two calls of :func:`held_bytes` that watch a process; each takes some milliseconds with ps."""


def held_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, without what it shares if that is known; 0 if it has ended.

    Also 0 if the system does not say.
    """
    if not _HAS_PROC:
        return _sum_of_kib(pid, "rss=")
    try:
        fields = (_PROC / str(pid) / "statm").read_text("ascii").split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def reserved_bytes() -> int:
    """Return how much memory this process has reserved, whether it uses it or not; more if that is not known."""
    if not _HAS_PROC:
        return _sum_of_kib(os.getpid(), "vsz=")
    try:
        return int((_PROC / "self/statm").read_text("ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _started(pid: int) -> str:
    """Return the second in which a process started, as digits: 20261129112841."""
    fields = _ps("-o", "lstart=,stat=", "-p", str(pid)).split()
    if len(fields) != 6 or fields[5][0] in "ZX":
        raise ProcessLookupError(pid)
    _, month, day, clock, year, _ = fields
    return f"{year}{_MONTHS.index(month) + 1:02}{int(day):02}{clock.replace(':', '')}"


def _sum_of_kib(pid: int, column: str) -> int:
    with suppress(OSError):
        return sum(1024 * int(size) for size in _ps("-o", column, "-p", str(pid)).split())
    return 0


def _ps(*options: str) -> str:
    """Return what ps prints; nothing if there is no such process. Raises OSError without ps."""
    import subprocess

    # Dates in one language and one time zone, whatever those of the process are.
    variables = os.environ | {"LC_ALL": "C", "TZ": "UTC"}
    try:
        ran = subprocess.run(["ps", *options], capture_output=True, text=True, check=False, env=variables)  # noqa: S603, S607 - its folder depends on the system
    except FileNotFoundError as error:
        # Not the error of a process that has ended.
        raise OSError(errno.ENOSYS, "there is no program ps") from error
    return ran.stdout
