"""The local store: the contract, and what only a file system has: durability, links, leftovers, full disks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakebed import system
from lakebed.errors import StorageError, UnsafeStoreError, UsageError
from lakebed.storage import LocalStorage, PutOutcome, connect, keeps_replace_if, syscalls
from lakebed.storage.contract import Version
from lakebed.testing.conformance import StorageConformance
from tests.clocks import skip_sleeps
from tests.system_calls import set_calls


def tree(root: Path) -> list[str]:
    """Every file below the root, hidden ones too."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def version_of(storage: LocalStorage, name: str) -> Version:
    """Of an object that must be there."""
    found = storage.get_versioned(name)
    assert found is not None
    return found.version


class TestLocalStorage(StorageConformance):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(tmp_path / "not" / "there" / "yet")


class TestUndurableLocalStorage(StorageConformance):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(tmp_path / "root", durability="none")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The order of system calls that matter for durability, with the path each was about."""
    calls: list[tuple[str, str]] = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "replace", "mkdir", "unlink")}

    def fsync(descriptor: int) -> None:
        kind = "fsync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file"
        calls.append((kind, str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        real["fsync"](descriptor)

    def recorded(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append((name, str(arguments[-1])))
            return real[name](*arguments, **keywords)

        return call

    names = ("link", "replace", "mkdir", "unlink")
    set_calls(monkeypatch, os, fsync=fsync, **{name: recorded(name) for name in names})
    return calls


links_only = pytest.mark.skipif(system.FORCED, reason="in portable form nothing is linked")
proc_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names descriptors through /proc")


@links_only
@proc_only
def test_a_create_syncs_the_file_before_the_link_and_the_directory_after(
    storage: LocalStorage, journal: list[tuple[str, str]]
) -> None:
    storage.create("log/1", b"1")
    journal.clear()
    storage.create("log/2", b"2")
    steps = [step for step, _ in journal]
    assert steps == ["fsync file", "link", "unlink", "fsync directory"]
    assert journal[-1][1] == str(storage.folder / "log")


@proc_only
def test_every_new_parent_is_synced_into_its_own_parent(storage: LocalStorage, journal: list[tuple[str, str]]) -> None:
    storage.create("tables/t/data/j/f", b"x")
    root = storage.folder
    made = [path for step, path in journal if step == "mkdir"]
    synced = [path for step, path in journal if step == "fsync directory"]
    assert made == [str(root / part) for part in ("", "tables", "tables/t", "tables/t/data", "tables/t/data/j")]
    assert synced == [str(Path(path).parent) for path in made] + [made[-1]]


@proc_only
def test_a_parent_another_process_made_is_synced_all_the_same(
    storage: LocalStorage, journal: list[tuple[str, str]]
) -> None:
    (storage.folder / "log").mkdir(parents=True)
    journal.clear()
    storage.create("log/1", b"1")
    assert ("fsync directory", str(storage.folder)) in journal


@proc_only
def test_a_lost_create_syncs_the_directory_too(storage: LocalStorage, journal: list[tuple[str, str]]) -> None:
    """EXISTS may be the caller's own entry, whose directory sync failed the first time."""
    storage.create("log/1", b"1")
    journal.clear()
    assert storage.create("log/1", b"1") is PutOutcome.EXISTS
    assert [step for step, _ in journal] == ["fsync directory"]


@proc_only
def test_a_replace_syncs_the_file_before_the_rename_and_the_directory_after(
    storage: LocalStorage, journal: list[tuple[str, str]]
) -> None:
    storage.replace("pins/1", b"1")
    journal.clear()
    storage.replace("pins/1", b"2")
    assert [step for step, _ in journal] == ["fsync file", "replace", "fsync directory"]


@proc_only
def test_a_replace_of_a_version_is_durable_before_the_lock_goes(
    storage: LocalStorage, journal: list[tuple[str, str]]
) -> None:
    """A writer that finds another version syncs it first: it may be its own, whose directory sync failed."""
    storage.create("log/log-start", b"1")
    one = version_of(storage, "log/log-start")
    journal.clear()
    assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.CREATED
    assert [step for step, _ in journal] == ["fsync file", "replace", "fsync directory", "unlink"]
    journal.clear()
    assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.EXISTS
    assert [step for step, _ in journal] == ["fsync directory", "unlink"]
    assert tree(storage.folder) == ["log/log-start"]


@links_only
@proc_only
def test_a_sent_file_is_synced_before_it_has_its_name(
    storage: LocalStorage, tmp_path: Path, journal: list[tuple[str, str]]
) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(b"x" * 100)
    storage.send("data/j/f", sent)
    steps = [step for step, _ in journal]
    named = journal.index(("link", str(storage.folder / "data/j/f")))
    assert "fsync file" in steps[:named]
    assert ("fsync directory", str(storage.folder / "data/j")) in journal[named:]
    assert not sent.exists()


def test_without_durability_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_calls(monkeypatch, os, fsync=lambda _: pytest.fail("synced"))
    LocalStorage(tmp_path, durability="none").create("a/b", b"x")


def failing(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize(
    ("call", "code", "remedy"),
    [
        ("write", errno.ENOSPC, "disk is full"),
        ("fsync", errno.EIO, "input/output error"),
        pytest.param("link", errno.ENOSPC, "disk is full", marks=links_only),
        ("open", errno.EROFS, "read-only"),
        ("open", errno.EACCES, "permission denied"),
        ("open", errno.EMFILE, "ulimit"),
    ],
)
def test_a_failed_create_says_what_and_where_and_leaves_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str, code: int, remedy: str
) -> None:
    storage.create("log/1", b"1")
    with monkeypatch.context() as patch:
        set_calls(patch, os, **{call: failing(code)})
        with pytest.raises(StorageError, match=remedy) as caught:
            storage.create("log/2", b"2" * 1000)
    assert str(storage.folder / "log/2") in str(caught.value)
    assert caught.value.transient is (code == errno.EMFILE)
    assert tree(storage.folder) == ["log/1"]
    assert storage.create("log/2", b"2") is PutOutcome.CREATED


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_creates_and_sends_by_an_exclusive_rename(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    set_calls(monkeypatch, os, link=failing(code))
    assert storage.create("log/1", b"1") is PutOutcome.CREATED
    assert storage.create("log/1", b"2") is PutOutcome.EXISTS
    assert storage.get("log/1") == b"1"
    (tmp_path / "sent").write_bytes(b"rows")
    assert storage.send("data/j/f", tmp_path / "sent").size_bytes == 4
    assert tree(storage.folder) == ["data/j/f", "log/1"]


def test_a_failed_send_keeps_the_source_and_leaves_nothing(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(b"x")
    storage.create("data/j/e", b"")
    with monkeypatch.context() as patch:
        set_calls(patch, os, fsync=failing(errno.EIO))
        with pytest.raises(StorageError, match="data/j/f"):
            storage.send("data/j/f", sent)
    assert sent.read_bytes() == b"x"
    assert tree(storage.folder) == ["data/j/e"]


def sync_of_files(descriptor: int) -> None:
    """An fsync that fails for folders."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_directory_sync_that_fails_after_the_link_is_unclear(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have seen the name already."""
    storage.create("log/1", b"1")
    with monkeypatch.context() as patch:
        set_calls(patch, os, fsync=sync_of_files)
        assert storage.create("log/2", b"2") is PutOutcome.UNCLEAR
        assert storage.create("log/2", b"2") is PutOutcome.UNCLEAR
    assert storage.create("log/2", b"2") is PutOutcome.EXISTS
    assert storage.get("log/2") == b"2"


@links_only
def test_a_link_that_a_file_server_did_not_answer_is_unclear(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made: a caller that takes the error for a refusal deletes the files of a committed entry."""
    real = os.link

    def link(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        raise OSError(errno.EIO, "")

    with monkeypatch.context() as patch:
        set_calls(patch, os, link=link)
        assert storage.create("log/1", b"1") is PutOutcome.UNCLEAR
    assert storage.create("log/1", b"1") is PutOutcome.EXISTS
    assert storage.get("log/1") == b"1"


def test_a_directory_sync_that_fails_after_the_rename_is_unclear(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is the look whose it is, until it is on disk."""
    storage.create("log/log-start", b"1")
    one = version_of(storage, "log/log-start")
    with monkeypatch.context() as patch:
        set_calls(patch, os, fsync=sync_of_files)
        assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.UNCLEAR
        assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.UNCLEAR
    assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.EXISTS
    assert storage.get("log/log-start") == b"2"


@pytest.mark.parametrize("call", ["write", "replace"])
def test_a_replace_of_a_version_that_fails_changes_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    storage.create("log/log-start", b"1")
    one = version_of(storage, "log/log-start")
    with monkeypatch.context() as patch:
        set_calls(patch, os, **{call: failing(errno.ENOSPC)})
        with pytest.raises(StorageError, match="disk is full"):
            storage.replace_if("log/log-start", one, b"2")
    assert tree(storage.folder) == ["log/log-start"]
    assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.CREATED


COUNTING = """
import sys
from lakebed.storage import LocalStorage, PutOutcome

storage = LocalStorage(sys.argv[1], durability="none")
for _ in range(100):
    found = storage.get_versioned("log/number")
    while storage.replace_if("log/number", found.version, b"%d" % (int(found.data) + 1)) is PutOutcome.EXISTS:
        found = storage.get_versioned("log/number")
"""


def test_processes_that_count_by_replaces_lose_nothing(storage: LocalStorage) -> None:
    storage.create("log/number", b"0")
    words = [sys.executable, "-c", COUNTING, str(storage.folder)]
    for child in [subprocess.Popen(words) for _ in range(3)]:
        assert child.wait(60) == 0
    assert storage.get("log/number") == b"300"
    assert tree(storage.folder) == ["log/number"]


DYING = """
import os, signal, sys
from lakebed.storage import LocalStorage

real = os.replace
def replace(source, target):
    if sys.argv[2] == "after":
        real(source, target)
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace
storage = LocalStorage(sys.argv[1])
storage.replace_if("log/log-start", storage.get_versioned("log/log-start").version, b"2")
"""


@pytest.mark.parametrize(("moment", "left"), [("before", b"1"), ("after", b"2")])
def test_a_process_killed_while_it_replaces_leaves_one_or_the_other_and_no_lock(
    storage: LocalStorage, moment: str, left: bytes
) -> None:
    """The file of the lock stays, held by no process, and goes with the next that takes it."""
    storage.create("log/log-start", b"1")
    subprocess.run([sys.executable, "-c", DYING, str(storage.folder), moment], check=False, timeout=60)
    assert storage.get("log/log-start") == left
    assert (storage.folder / "log/.log-start.lock").exists()
    assert [listed.name for listed in storage.list("")] == ["log/log-start"]
    assert storage.replace_if("log/log-start", version_of(storage, "log/log-start"), b"3") is PutOutcome.CREATED
    assert not (storage.folder / "log/.log-start.lock").exists()


def test_a_lock_that_is_held_for_long_is_a_refusal(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that stands still. Nothing was stored, and the same may succeed later."""
    skip_sleeps(monkeypatch)
    storage.create("log/log-start", b"1")
    one = version_of(storage, "log/log-start")
    with (storage.folder / "log/.log-start.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another process holds the lock") as failure:
            storage.replace_if("log/log-start", one, b"2")
        assert failure.value.transient
        assert storage.get("log/log-start") == b"1"
    assert storage.replace_if("log/log-start", one, b"2") is PutOutcome.CREATED


def test_a_lock_whose_file_was_removed_meanwhile_is_no_lock(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waited gets the file that was unlinked, while another has already made and locked a new one."""
    storage.create("log/log-start", b"1")
    path = storage.folder / "log/.log-start.lock"
    real, met = fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if not met:
            met.append(descriptor)
            path.unlink()
            path.touch()
        real(descriptor, operation)

    set_calls(monkeypatch, fcntl, flock=flock)
    with syscalls.locked(str(storage.folder / "log/log-start")) as there:
        assert there
        with path.open("rb") as other, pytest.raises(BlockingIOError):
            real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert met
    assert not path.exists()


def test_a_file_system_without_locks_is_found_out(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.create("log/log-start", b"1")
    one = version_of(storage, "log/log-start")
    set_calls(monkeypatch, fcntl, flock=failing(errno.ENOLCK))
    with pytest.raises(UnsafeStoreError, match="cannot be truncated"):
        storage.replace_if("log/log-start", one, b"2")
    assert not keeps_replace_if(storage)


def test_a_link_that_reports_its_own_success_as_taken_is_a_success(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a retransmitted NFS request does."""
    real = os.link

    def link(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        raise FileExistsError

    set_calls(monkeypatch, os, link=link)
    assert storage.create("log/1", b"1") is PutOutcome.CREATED


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM])
def test_a_file_on_another_file_system_is_copied(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(b"x" * 10_000_000)
    real = os.link

    def link(source: Any, target: Any, **keywords: Any) -> None:
        if source == sent:
            raise OSError(code, "")
        real(source, target, **keywords)

    set_calls(monkeypatch, os, link=link)
    stored = storage.send("data/j/f", sent)
    assert not sent.exists()
    with storage.fetch("data/j/f", digest=stored.digest) as path:
        assert path.stat().st_size == 10_000_000
    assert tree(storage.folder) == ["data/j/f"]


def test_a_send_never_overwrites(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("data/j/f", b"there")
    sent = tmp_path / "sent"
    sent.write_bytes(b"x")
    with pytest.raises(StorageError, match="fresh name"):
        storage.send("data/j/f", sent)
    assert storage.get("data/j/f") == b"there"
    assert tree(storage.folder) == ["data/j/f"]


def test_a_sent_files_last_modified_is_the_time_of_sending(storage: LocalStorage, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(b"x")
    os.utime(sent, (0, 0))
    assert storage.send("data/j/f", sent).last_modified > datetime(2020, 1, 1, tzinfo=UTC)


def test_a_symbolic_link_cannot_be_sent(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="symbolic link"):
        storage.send("data/j/f", tmp_path / "link")
    assert tree(storage.folder) == []


def test_a_link_out_of_the_root_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    storage.create("in/a", b"a")
    (storage.folder / "link").symlink_to(outside)
    (storage.folder / "in/file").symlink_to(outside / "secret")
    for name in ("link/secret", "link/new", "in/file"):
        with pytest.raises(UsageError, match="out of the root"):
            storage.get(name)
        with pytest.raises(UsageError, match="out of the root"):
            storage.last_modified(name)
        with pytest.raises(UsageError, match="out of the root"):
            storage.create(name, b"x")
        with pytest.raises(UsageError, match="out of the root"):
            storage.replace(name, b"x")
        with pytest.raises(UsageError, match="out of the root"):
            storage.delete([name])
    with pytest.raises(UsageError, match="out of the root"):
        list(storage.list("link"))
    assert [listed.name for listed in storage.list("")] == ["in/a"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert tree(outside) == ["secret"]


def test_a_link_inside_the_root_is_what_it_leads_to(storage: LocalStorage) -> None:
    storage.create("in/a", b"a")
    (storage.folder / "in/link").symlink_to(storage.folder / "in/a")
    assert storage.get("in/link") == b"a"
    assert storage.last_modified("in/link") == storage.last_modified("in/a")
    assert storage.create("in/link", b"b") is PutOutcome.EXISTS
    assert storage.get("in/a") == b"a"


def test_a_link_to_nothing_takes_a_name_and_is_no_object(storage: LocalStorage) -> None:
    storage.create("in/a", b"a")
    (storage.folder / "in/link").symlink_to(storage.folder / "in/gone")
    assert storage.get("in/link") is None
    assert storage.last_modified("in/link") is None
    assert storage.create("in/link", b"b") is PutOutcome.EXISTS


@links_only
def test_a_commit_looks_at_each_name_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a log asks for an entry: the last-modified time of the one before, the create, the log start that is not
    there."""
    storage = LocalStorage(tmp_path, durability="none")
    storage.create("log/1", b"1")
    storage.get("log/1")
    calls: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *at, **how: (calls.append(name), real(*at, **how))[1]

    names = ("lstat", "stat", "open", "link", "unlink")
    set_calls(monkeypatch, os, **{name: noted(name, getattr(os, name)) for name in names})
    storage.last_modified("log/1")
    storage.create("log/2", b"2")
    storage.get("log/log-start")
    assert calls == ["lstat", "lstat", "open", "link", "unlink", "lstat"]


def test_empty_directories_go_with_their_last_object(storage: LocalStorage) -> None:
    storage.create("data/j/a", b"")
    storage.create("data/k/b", b"")
    storage.delete(["data/j/a"])
    assert not (storage.folder / "data/j").exists()
    storage.delete(["data/k/b"])
    assert list(storage.folder.iterdir()) == []


def test_a_create_survives_the_removal_of_its_directory(storage: LocalStorage) -> None:
    """A collector prunes the directory that this process believes to be there."""
    storage.create("data/j/a", b"")
    LocalStorage(storage.folder).delete(["data/j/a"])
    assert storage.create("data/j/b", b"") is PutOutcome.CREATED


def test_old_temporaries_are_swept_and_nothing_else(storage: LocalStorage) -> None:
    storage.create("log/1", b"1")
    left = storage.folder / "log" / f".2.{'a' * 32}"
    left.write_bytes(b"torn")
    (storage.folder / "log" / ".keep").touch()
    assert [(one.name, one.size_bytes) for one in storage.temporaries("log")] == [(f"log/{left.name}", 4)]
    assert not list(storage.temporaries("logs"))
    assert storage.delete_temporaries("", storage.now() - timedelta(days=1)) == 0
    assert storage.delete_temporaries("logs", storage.now() + timedelta(seconds=1)) == 0
    assert storage.delete_temporaries("log", storage.now() + timedelta(seconds=1)) == 1
    assert tree(storage.folder) == ["log/.keep", "log/1"]


def test_locks_and_probes_of_dead_processes_are_swept(storage: LocalStorage) -> None:
    probe = f".probe/{'a' * 32}"
    storage.create("log/log-start", b"1")
    storage.create(probe, b"first")
    for left in (storage.folder / "log/.log-start.lock", storage.folder / f".probe/.{'a' * 32}.lock"):
        left.touch()
    assert storage.delete_temporaries("", storage.now() - timedelta(days=1)) == 0
    with syscalls.locked(str(storage.folder / "log/held")):
        assert storage.delete_temporaries("", storage.now() + timedelta(seconds=1)) == 3
        assert tree(storage.folder) == ["log/.held.lock", "log/log-start"]


def test_a_listing_leaves_out_what_no_call_could_name(storage: LocalStorage) -> None:
    storage.create("a", b"")
    (storage.folder / "not ours.txt").touch()
    assert [listed.name for listed in storage.list("")] == ["a"]


def test_one_place_has_one_url(tmp_path: Path) -> None:
    (tmp_path / "real place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real place")
    through = connect(tmp_path / "link")
    assert through.url == f"file://{tmp_path}/real%20place"
    assert connect(through.url).url == through.url


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="durability"):
        LocalStorage(tmp_path, durability="maybe")  # type: ignore[arg-type]


def test_the_local_store_needs_no_object_store_client(tmp_path: Path) -> None:
    """Nor DataFusion: a fresh process that writes and reads has imported neither."""
    script = (
        "import sys; from lakebed.storage import connect; s = connect(sys.argv[1]); s.create('a', b'x'); s.get('a');"
        "print(sorted({'obstore', 'datafusion', 'boto3'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, env=_environment()
    )
    assert ran.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
