"""``lakebed doctor`` and ``config``: checks of this machine and of an instance, and the configuration.

Each check is a :class:`Check` with its subject, result and remedy. All are printed, then the first error is raised.
Checks of the machine read only. Checks of an instance also write small objects below ``.probe/`` and ``.clock/`` of its
root, which they delete again. A check that fails has the error that a command would raise there; checks that depend on
it are skipped.
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
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.cli.configuration import PROFILE_KEYS, NamedInstance, Profile, configuration_path
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code, Error, StorageError
from lakebed.model.wording import count_text, size_text
from lakebed.storage import check_conditional_puts, connect, keeps_replace_if
from lakebed.system import available_cores, available_memory_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

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
            found += f", {archived} an archive of Spark's classes (`lakebed docs clusters`)"
        return Check("java", found)
    found = f"no Java {JAVA_VERSION_MIN} or later"
    if not with_spark:
        return Check("java", f"{found}; only Spark needs it")
    return Check("java", found, "for Spark: pip install 'lakebed[java]', or install a JRE and set JAVA_HOME")


def _limit_checks() -> Iterator[Check]:
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


@command
def doctor(cli: Invocation) -> None:
    """Check this machine, and the instance if one is given.

    For the machine: Python, packages and extras, Java, limits. For the instance: permissions, the conditional writes
    that commits rely on, the clock, the log. Each is actually tried, with small objects that are deleted again. A
    warning does not change the exit code; if a check fails, the exit code is that of its error.
    """
    checks = list(machine_checks())
    url = cli.url_if_given()
    if url:
        checks += instance_checks(url, cli.options_in_force(), cli.instance)
    failed = [check for check in checks if check.error is not None]
    document = {
        "sound": not failed,
        "checks": [
            {
                "check": one.name,
                "status": one.status,
                "found": one.found,
                "remedy": one.remedy,
                "code": one.error.code if one.error else None,
            }
            for one in checks
        ],
    }
    cli.out.document(document, _check_lines(checks))
    if not url:
        cli.out.note("no instance was checked: give --instance URL")
    if failed and failed[0].error is not None:
        names = ", ".join(check.name for check in failed)
        raise failed[0].error.code(f"{count_text(len(failed), 'check')} failed: {names}")


def _check_lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:7}  {check.name:{width}}  {check.found}"
        if check.remedy is not None:
            yield f"{'':7}  {'':{width}}  -> {check.remedy}"


# -- lakebed config ------------------------------------------------------------------------------------------------


_SECRET_WORDS = ("secret", "token", "password", "key", "credential", "sas")


@command
def path(cli: Invocation) -> None:
    """Print which configuration file is read."""
    found = configuration_path(cli.config)
    cli.out.document({"path": str(found), "exists": found.exists()}, [str(found)])


@command
def show(cli: Invocation) -> None:
    """Show the configuration file as it is understood, and the values in force; secrets are not shown."""
    found = cli.configuration
    instances = [_instance_document(one) for one in found.instances.values()]
    profiles = [_profile_document(one) for one in found.profiles.values()]
    in_force = [{"key": key, "value": value, "source": source} for key, value, source in _in_force(cli)]
    document = {"path": str(found.path), "default": found.default, "instances": instances}
    lines = [f"{found.path}{'' if found.path.exists() else ' (not there)'}"]
    lines += [f"default: {found.default}"] if found.default else []
    for one in instances:
        lines.append(f"instance {one['name']}: {one['url']}")
        lines += [f"  {key}: {one[key]}" for key in ("log_url", "commit_via", "token") if one[key] is not None]
        lines += [f"  option {key}: {value}" for key, value in one["options"].items()]
    for one in profiles:
        lines.append(f"profile {one['name']}")
        lines += [f"  {key}: {_toml(value)}" for key, value in one["values"].items()]
        lines += [f"  option {key}: {value}" for key, value in one["options"].items()]
    lines += ["in force:"] if in_force else []
    lines += [f"  {one['key']}: {_toml(one['value'])} ({one['source']})" for one in in_force]
    cli.out.document(document | {"profiles": profiles, "in_force": in_force}, lines)


def _in_force(cli: Invocation) -> Iterator[tuple[str, Any, str]]:
    """Return each option of every command whose value is not its default, with the value and where it is from."""
    for key in PROFILE_KEYS:
        if key == "options":
            for name, (value, source) in cli.chosen_options().items():
                yield f"option {name}", _shown_option(name, value), source
        elif (found := cli.chosen(key)) is not None:
            yield key, *found


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _profile_document(one: Profile) -> dict[str, Any]:
    options = {key: _shown_option(key, value) for key, value in one.options.items()}
    return {"name": one.name, "values": dict(one.values), "options": options}


def _instance_document(one: NamedInstance) -> dict[str, Any]:
    return {
        "name": one.name,
        "url": one.url,
        "log_url": one.log_url,
        "commit_via": one.commit_via,
        "token": None if one.secret_token is None else _shown_source(one.secret_token),
        "options": {key: _shown_option(key, value) for key, value in one.options.items()},
    }


def _shown_option(key: str, value: Any) -> str:
    if isinstance(value, str):
        return "(not shown)" if any(word in key.lower() for word in _SECRET_WORDS) else value
    return _shown_source(value)


def _shown_source(value: Mapping[str, str]) -> str:
    ((source, name),) = value.items()
    return f"in the {'environment variable' if source == 'env' else 'file'} {name}"
