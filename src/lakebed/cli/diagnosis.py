"""Check a machine and an instance, for `lakebed doctor`.

Each check is a :class:`Check` with its subject, result and remedy. Checks of the machine read only.
Checks of an instance also write small objects below ``.probe/`` and ``.clock/`` of its root, which they delete again.
A check that fails has the error that a command would raise there; checks that depend on it are skipped.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error, StorageError
from lakebed.model.wording import count_text, size_text
from lakebed.storage import check_conditional_puts, connect, keeps_replace_if

if TYPE_CHECKING:
    from lakebed.storage import Storage
    from lakebed.table.instance import Instance

OPEN_FILES_MIN = 1024
"""A merge may open some hundred files at once, and a service has connections beside them."""

MEMORY_BYTES_MIN = 2 << 30
"""Two tasks in processes of their own, of about 800 MiB each by default, beside this process."""

FREE_BYTES_MIN = 1 << 30

FREE_INODES_MIN = 10_000
"""Each write of a table makes two files, and a job some hundred temporary ones."""

SKEW_MAX = timedelta(seconds=30)
SKEW_REFUSED = timedelta(minutes=15)
"""Stores of the kind of S3 refuse requests that are signed with a time further off."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``error`` makes the check fail; a ``remedy`` without an error is a warning."""

    name: str
    found: str
    remedy: str | None = None
    error: Error | None = None

    @property
    def status(self) -> str:
        """``ok``, ``warning`` or ``failed``."""
        return "failed" if self.error else "warning" if self.remedy else "ok"


# -- the machine ----------------------------------------------------------------------------------------------------


def machine_checks() -> Iterator[Check]:
    """Check Python, packages, Java, and limits of this machine."""
    yield Check("python", f"{platform.python_version()}, {platform.platform(terse=True)}, {sys.executable}")
    yield Check("lakebed", f"{metadata.version('lakebed')}, {Path(__file__).parents[1]}")
    yield from package_checks(_needs("lakebed"))
    yield _java_check()
    yield from _limit_checks()


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[([^\]]*)\])?\(?([^;)]*)\)?(?:;(.*))?")


@dataclass(frozen=True, slots=True)
class Need:
    """A package of an extra (None: always needed): the range of its versions, and extras of its own."""

    extra: str | None
    package: str
    versions: str
    extras: tuple[str, ...]


def _needs(distribution: str) -> Iterator[Need]:
    """Return the requirements of an installed distribution under this Python, by its metadata."""
    for requirement in metadata.requires(distribution) or []:
        found = _REQUIREMENT.fullmatch(requirement.replace(" ", ""))
        if found is None:
            continue
        marker = found[4] or ""
        extra = re.search(r"""extra==['"]([\w-]+)['"]""", marker)
        python = re.search(r"""python_version<['"]([\d.]+)['"]""", marker)
        if python is None or _release(platform.python_version()) < _release(python[1]):
            extras = tuple(filter(None, (found[2] or "").split(",")))
            yield Need(extra[1] if extra else None, found[1], found[3], extras)


def package_checks(needs: Iterable[Need], version_of: Callable[[str], str | None] = _version_of) -> Iterator[Check]:
    """Return a check of the packages that are always needed, and one of each extra."""
    by_extra: dict[str | None, dict[str, str]] = {None: {}}
    for need in needs:
        if need.extra != "all":
            packages = by_extra.setdefault(need.extra, {})
            packages[need.package] = need.versions
            if need.extras and version_of(need.package) is not None:
                packages |= {one.package: one.versions for one in _needs(need.package) if one.extra in need.extras}
    for extra, packages in by_extra.items():
        versions = {package: version_of(package) for package in packages}
        missing = [package for package, version in versions.items() if version is None]
        unfit = [
            f"{package} {version} is not {packages[package]}"
            for package, version in versions.items()
            if version is not None and not _in_range(version, packages[package])
        ]
        text = ", ".join(unfit or [f"{package} {version}" for package, version in versions.items()])
        if extra is None:
            faults = ", ".join([*(f"{package} is not installed" for package in missing), *unfit])
            error = Code.PACKAGE_MISSING(faults) if faults else None
            yield Check("packages", faults or text, "pip install --upgrade lakebed" if faults else None, error)
        elif missing:
            yield Check(f"extra {extra}", f"not installed; pip install 'lakebed[{extra}]' adds {', '.join(missing)}")
        else:
            yield Check(f"extra {extra}", text, f"pip install --upgrade 'lakebed[{extra}]'" if unfit else None)


def _in_range(version: str, wanted: str) -> bool:
    """Return whether a version is in a range such as ``<2,>=1.2``; other forms do not bound it."""
    bounds = re.findall(r"(>=|<)([\d.]+)", wanted)
    found = _release(version)
    return all(found >= _release(bound) if how == ">=" else found < _release(bound) for how, bound in bounds)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what follows them: 4.3.0.dev1 is 4.3.0."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    parts = [int(number) for number in numbers[0].split(".")] if numbers else []
    return (*parts, *([0] * (4 - len(parts))))


def _java_check() -> Check:
    from lakebed.spark.class_archive import archive_path
    from lakebed.spark.java_runtime import JAVA_VERSION_MIN, find_java

    java = find_java()
    with_spark = _version_of("pyspark") is not None
    if java is not None:
        found = f"{java.version}, {java.home}"
        if with_spark:
            archived = "with" if archive_path(java).exists() else "without"
            found += f", {archived} an archive of Spark's classes (docs/clusters.md)"
        return Check("java", found)
    found = f"no Java {JAVA_VERSION_MIN} or later"
    if not with_spark:
        return Check("java", f"{found}; only Spark needs it")
    return Check("java", found, "for Spark: pip install 'lakebed[java]', or install a JRE and set JAVA_HOME")


def _limit_checks() -> Iterator[Check]:
    from lakebed.jobs.worker_pool import available_cores, available_memory_bytes

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if files == resource.RLIM_INFINITY else f"{files:,}"
    few = 0 <= files < OPEN_FILES_MIN
    yield Check("open files", text, f"ulimit -n {4 * OPEN_FILES_MIN}" if few else None)
    memory = available_memory_bytes()
    yield Check(
        "memory",
        f"{size_text(memory)}, {count_text(available_cores(), 'core')}",
        "use few workers (--in-process --workers 1) and a lower memory_limit_bytes of tables"
        if memory < MEMORY_BYTES_MIN
        else None,
    )
    yield _space_check("temporary folder", Path(tempfile.gettempdir()), "set TMPDIR to a folder on a larger disk")


def _space_check(name: str, folder: Path, remedy: str) -> Check:
    try:
        found = os.statvfs(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"this user may not write there (user id {os.geteuid()})")
    except OSError as error:
        reason = f"{folder}: {error.strerror or error}"
        return Check(name, reason, remedy, Code.TEMPORARY_STORAGE_FAILED(f"{reason}; {remedy}", folder=str(folder)))
    free_bytes = found.f_bavail * found.f_frsize
    text = f"{folder}, {size_text(free_bytes)} free"
    # A file system without a table of inodes, such as Btrfs, says that it has none at all.
    few_inodes = bool(found.f_files) and found.f_favail < FREE_INODES_MIN
    if found.f_files:
        text += f", {count_text(found.f_favail, 'inode')} free"
    return Check(name, text, remedy if free_bytes < FREE_BYTES_MIN or few_inodes else None)


# -- an instance ----------------------------------------------------------------------------------------------------


def instance_checks(url: str, options: Mapping[str, str], open_instance: Callable[[], Instance]) -> Iterator[Check]:
    """Check the store at ``url``, and the instance there, if there is one."""
    try:
        storage = connect(url, options)
    except Error as error:
        yield _failed("url", error)
        return
    yield Check("url", storage.url)
    if (folder := storage.folder) is not None:
        if not folder.is_dir():
            yield Check("folder", f"there is no folder {folder}", f"to create an instance: lakebed init {folder}")
            return
        yield _space_check("disk", folder, "make room there")
    yield from _store_checks(storage)
    yield from _opened_checks(storage, open_instance)


def _store_checks(storage: Storage) -> Iterator[Check]:
    """Try each permission in the order in which a commit needs them; the first that is missing ends the checks."""
    name = f".probe/{clock.random_token()}"
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("list", lambda: next(iter(storage.list("")), None)),
        ("read", lambda: storage.get(name)),
        ("write", lambda: storage.replace(name, b"lakebed doctor")),
        ("delete", lambda: storage.delete([name])),
    )
    done: list[str] = []
    for what, step in steps:
        try:
            step()
        except Error as error:
            yield _failed(f"permission to {what}", error)
            return
        done.append(what)
    yield Check("permissions", ", ".join(done))
    try:
        check_conditional_puts(storage)
        yield Check("create if absent", "honoured")
        kept = keeps_replace_if(storage)
    except Error as error:
        yield _failed("create if absent", error)
        return
    remedy = "logs cannot be truncated here, and grow: use a store that honours If-Match, or log_url"
    yield Check("replace if unchanged", "honoured" if kept else "not honoured", None if kept else remedy)
    yield _clock_check(storage)


def _clock_check(storage: Storage) -> Check:
    try:
        before = clock.now()
        there = storage.now()
        middle = before + (clock.now() - before) / 2
    except StorageError as error:
        return _failed("clock", error)
    skew = middle - there
    seconds = skew.total_seconds()
    text = f"this machine is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the store"
    remedy = "synchronise this machine's clock by NTP"
    if abs(skew) >= SKEW_REFUSED:
        remedy += ": stores refuse requests that are signed with such a time"
    return Check("clock", text, remedy if abs(skew) > SKEW_MAX else None)


def _opened_checks(storage: Storage, open_instance: Callable[[], Instance]) -> Iterator[Check]:
    from lakebed.log.locations import connect_logs

    try:
        instance = open_instance()
        tables = len(instance.tables())
    except Error as error:
        if error.code == Code.INSTANCE_NOT_FOUND:
            yield Check("instance", "there is none", f"to create one: lakebed init {storage.url}")
        else:
            yield _failed("instance", error)
        return
    yield Check("instance", f"{instance.id}, {count_text(tables, 'table')}")
    if instance.log_url is not None:
        try:
            connect_logs(instance.log_url, storage, instance.id, storage_options=instance.storage_options).check()
        except Error as error:
            yield _failed("log", error)
        else:
            yield Check("log", f"{instance.log_url}: reached, and safe for commits")


def _failed(name: str, error: Error) -> Check:
    """Return a check that failed; the message of the error has the remedy."""
    return Check(name, error.message, None, error)
