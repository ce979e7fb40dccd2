"""The cache on local disk: what is kept is found, what is not what it was is a miss, and the bound holds."""

import errno
import fcntl
import logging
import os
import re
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakebed.cli.invocation import Invocation
from lakebed.errors import UsageError
from lakebed.storage import connect, disk_cache
from lakebed.storage.digests import digest_bytes
from lakebed.storage.disk_cache import CacheLimits, DiskCache, fetched
from lakebed.storage.object_store import ObjectStorage
from tests.clocks import set_clock
from tests.system_calls import set_calls

KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_region": "eu-north-1"}


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache")


def entries(cache):
    """The files that hold entries."""
    return sorted(path for path in (cache.folder / "v1" / "entries").rglob("*") if path.is_file())


def used_bytes(cache):
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in entries(cache))


def test_what_is_kept_is_found_by_another_process_too(cache):
    assert cache.get("a") is None
    cache.keep("a", b"one")
    cache.keep("b", b"")
    assert (cache.get("a"), cache.get("b")) == (b"one", b"")
    assert DiskCache(cache.folder).get("a") == b"one"


def test_a_note_is_replaced_and_takes_its_room_once(cache):
    for count in range(50):
        cache.put("newest", str(count).encode())
        assert DiskCache(cache.folder).get("newest") == str(count).encode()
    assert len(entries(cache)) == 1
    assert (cache.folder / "v1" / "written").stat().st_size == 1


def test_no_note_is_kept_beyond_the_bound_or_where_others_can_write(cache):
    full = DiskCache(cache.folder, 0)
    full.put("newest", b"1")
    full.wait()
    assert full.get("newest") is None
    cache.put("newest", b"1")
    (cache.folder / "v1").chmod(0o777)
    DiskCache(cache.folder).put("newest", b"2")
    (cache.folder / "v1").chmod(0o700)
    assert cache.get("newest") == b"1"


def test_only_the_user_can_read_it(cache):
    cache.keep("a", b"one")
    for path in (cache.folder / "v1", *(cache.folder / "v1").rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o77, path


def test_a_folder_that_others_can_write_to_is_not_used(cache, caplog):
    (cache.folder / "v1").mkdir(parents=True)
    (cache.folder / "v1").chmod(0o777)
    cache.keep("a", b"one")
    assert cache.get("a") is None
    assert [record.message for record in caplog.records] == [
        f"nothing is cached in {cache.folder}: {cache.folder}/v1 is not a folder that only this user can read"
    ]


def flipped(data):
    return bytes([data[0] ^ 1]) + data[1:]


DAMAGE = {
    "flipped": flipped,
    "cut short": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_a_miss_and_is_removed(cache, damage):
    cache.keep("a", b"some bytes")
    [path] = entries(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("a") is None
    assert not entries(cache)
    cache.keep("a", b"some bytes")
    assert cache.get("a") == b"some bytes"


def test_an_entry_under_the_name_of_another_is_a_miss(cache):
    cache.keep("a", b"of a")
    [of_a] = entries(cache)
    cache.keep("b", b"of b")
    of_b = next(path for path in entries(cache) if path != of_a)
    of_a.write_bytes(of_b.read_bytes())
    assert cache.get("a") is None
    assert cache.get("b") == b"of b"


def test_what_is_no_entry_does_no_harm(cache):
    cache.keep("a", b"one")
    [path] = entries(cache)
    path.unlink()
    path.mkdir()
    assert cache.get("a") is None
    cache.keep("a", b"one")
    (cache.folder / "v1" / "notes.txt").write_text("not ours")
    cache.keep("b", b"two")
    cache.sweep()
    assert cache.get("b") == b"two"


def test_a_folder_that_cannot_be_looked_into_does_no_harm(cache):
    cache.keep("a", b"one")
    [path] = entries(cache)
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to("x" * 300)
    cache.keep("a", b"one")
    assert cache.get("a") is None


def no_links(source, target, *, follow_symlinks):
    raise PermissionError(errno.EPERM, "no links here")


@pytest.mark.parametrize("link", [os.link, no_links])
def test_a_file_is_copied_where_there_are_no_links(tmp_path, monkeypatch, link):
    set_calls(monkeypatch, os, link=link)
    (tmp_path / "a").write_bytes(b"an object")
    disk_cache.link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"an object"
    with pytest.raises(FileNotFoundError):
        disk_cache.link_or_copy(tmp_path / "none", tmp_path / "c")


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_an_object_is_fetched_once_and_again_if_it_is_damaged(tmp_path, cache, damage):
    memory = connect("memory://cached-objects")
    storage = ObjectStorage(memory.url, "", memory.clients, cache=cache)
    storage.replace("data/a", b"an object")
    digest = digest_bytes(b"an object")
    for _ in range(2):
        with fetched(cache, digest, lambda: storage.fetch("data/a", digest=digest)) as path:
            assert path.read_bytes() == b"an object"
    storage.delete(["data/a"])
    with fetched(cache, digest, lambda: storage.fetch("data/a", digest=digest)) as path:
        assert path.read_bytes() == b"an object"
    [entry] = entries(cache)
    entry.write_bytes(damage(b"an object"))
    storage.replace("data/a", b"an object")
    with fetched(cache, digest, lambda: storage.fetch("data/a", digest=digest)) as path:
        assert path.read_bytes() == b"an object"
    assert [entry.read_bytes() for entry in entries(cache)] == [b"an object"]


def test_a_link_outlives_its_entry_and_goes_after_use(tmp_path, cache):
    digest, path = digest_bytes(b"an object"), tmp_path / "a"
    path.write_bytes(b"an object")
    cache.keep_file(digest, path)
    with fetched(cache, digest, lambda: pytest.fail("it was requested")) as link:
        cache.bytes_max = 0
        cache.sweep()
        assert not entries(cache)
        assert link.read_bytes() == b"an object"
    assert not link.exists()
    assert cache.link(digest) is None
    assert not list((cache.folder / "v1" / "new").iterdir())


def test_the_bound_holds_and_what_was_used_last_stays(tmp_path, monkeypatch):
    set_clock(monkeypatch, now=lambda: datetime.now(UTC) + timedelta(hours=1))
    cache = DiskCache(tmp_path / "cache", 64 * 4096, CacheLimits(touch_s=0))
    cache.keep("often", b"x")
    for count in range(120):
        assert cache.get("often") == b"x"
        cache.keep(f"seldom {count}", bytes(100))
        cache.wait()
        if count % 10 == 0:
            assert used_bytes(cache) <= cache.bytes_max
    assert len(entries(cache)) >= 32


def test_the_bound_holds_on_a_file_system_without_locks(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(disk_cache.fcntl, "flock", no_locks)
    cache = DiskCache(tmp_path / "cache", 16 * 4096)
    for count in range(40):
        cache.keep(f"{count}", b"x")
        cache.wait()
    assert 8 <= len(entries(cache)) <= 16
    assert cache.get("39") == b"x"


def test_a_sweep_leaves_the_entries_to_the_one_under_way(tmp_path):
    cache = DiskCache(tmp_path / "cache")
    cache.keep("a", b"one")
    cache.bytes_max = 0
    with (cache.folder / "v1" / "sweeping").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.sweep()
        assert cache.get("a") == b"one"
    cache.sweep()
    assert cache.get("a") is None


def test_an_entry_that_would_evict_many_is_not_kept(tmp_path):
    cache = DiskCache(tmp_path / "cache", 64 * 4096)
    cache.keep("small", b"x")
    cache.keep("large", bytes(9 * 4096))
    assert (cache.get("small"), cache.get("large")) == (b"x", None)


@pytest.mark.parametrize(("left_s", "stays"), [(3600, True), (-3600, False)])
def test_a_sweep_removes_what_killed_processes_left_long_ago(cache, left_s, stays):
    cache.limits = CacheLimits(left_s=left_s)
    cache.keep("a", b"one")
    half = cache.folder / "v1" / "new" / "half"
    half.write_bytes(b"half")
    cache.sweep()
    assert (half.exists(), cache.get("a")) == (stays, b"one")


def test_the_folder_may_be_deleted_at_any_time(cache):
    cache.keep("a", b"one")
    shutil.rmtree(cache.folder)
    assert cache.get("a") is None
    cache.keep("a", b"one")
    cache.keep("a", b"one")
    assert cache.get("a") == b"one"


def test_options_and_variables_choose_a_cache(tmp_path, monkeypatch):
    assert connect("s3://b", KEYS).cache is None
    chosen = connect("s3://b", KEYS | {"cache_dir": str(tmp_path), "cache_bytes": "1000000"})
    assert (chosen.cache.folder, chosen.cache.bytes_max) == (tmp_path, 1_000_000)
    assert "cache_dir" not in chosen.clients.options
    monkeypatch.setenv("LAKEBED_CACHE_DIR", "~/elsewhere")
    assert connect("s3://b", KEYS).cache.folder == Path.home() / "elsewhere"
    assert connect("s3://b", KEYS).cache.bytes_max == disk_cache.BYTES_MAX
    assert connect("s3://b", KEYS | {"cache_dir": ""}).cache is None
    assert connect(tmp_path).cache is None
    with pytest.raises(UsageError, match="cache_bytes = '4 GB': must be a whole number of bytes"):
        connect("s3://b", KEYS | {"cache_dir": str(tmp_path), "cache_bytes": "4 GB"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cache_dir": "~no-such-user/cache"},
            "'~no-such-user/cache' is not a path: ~no-such-user stands for the home",
        ),
        ({"cache_dir": "/tmp/a\0b"}, "is not a path: it has a NUL character"),
        ({"cache_dir": 5}, "cache_dir = 5: must be the path of a folder"),
    ],
)
def test_a_cache_that_cannot_be_meant_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        connect("s3://b", KEYS | options)


def test_a_command_logs_what_the_cache_saved(cache, caplog):
    cache.keep("a", bytes(2000))
    assert cache.get("a") == bytes(2000)
    with caplog.at_level(logging.INFO, "lakebed.storage"):
        Invocation(owns_process=True).log_requests()
        assert not caplog.records
        Invocation(owns_process=True, verbosity=1).log_requests()
    assert re.fullmatch(
        r"requested: \d+ puts and lists, \d+ gets; the cache on disk saved \d+, of .+", caplog.messages[0]
    )


@pytest.mark.parametrize(
    ("url", "options", "folder"),
    [
        ("s3://b/lake", {}, "{home}/lakebed"),
        ("s3://b/lake", {"cache_dir": "/elsewhere"}, "/elsewhere"),
        ("s3://b/lake", {"cache_dir": ""}, ""),
        ("/srv/lake", {}, None),
        ("memory://lake", {}, None),
    ],
)
def test_a_service_has_a_cache_if_its_instance_is_on_an_object_store(tmp_path, monkeypatch, url, options, folder):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    invocation = Invocation(instance_url=url, storage_options=options)
    invocation.cache_on_disk()
    found = invocation.options_in_force().get("cache_dir")
    assert found == (folder and folder.format(home=tmp_path))


def test_a_service_takes_the_folder_of_the_variable(monkeypatch):
    monkeypatch.setenv("LAKEBED_CACHE_DIR", "/var/cache/lakebed")
    invocation = Invocation(instance_url="s3://b/lake")
    invocation.cache_on_disk()
    assert invocation.options_in_force() == {}
