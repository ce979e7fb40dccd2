"""The contract of stores, as a pytest suite.

Subclass it in a test file, and give it stores::

    class TestMyStorage(StorageConformance):
        @pytest.fixture
        def storage(self, tmp_path):
            return MyStorage(tmp_path)

The store must be fresh for each test: empty, or below a prefix of its own.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from lakebed.errors import DamagedError, NotFoundError, StorageError, UsageError
from lakebed.storage import contract
from lakebed.storage.contract import Locality, PutOutcome, Storage, Version, Versioned
from lakebed.storage.digests import digest_bytes
from lakebed.storage.probe import check_conditional_puts, keeps_replace_if

UNSAFE_NAMES = [
    "",
    "/etc/passwd",
    "a//b",
    "a/",
    "..",
    "a/../b",
    "a/./b",
    "a\\b",
    "a\0b",
    "%2e%2e/a",
    "a b",
    "a.",
    "é",
    "a\n",
    "C:/a",
    "a" * 201,
    "/".join(["abc"] * 300),
]
LARGE_BYTES = 17 * 1024 * 1024 + 3
"""More than the 16 MiB from which objects are uploaded in several parts."""


class StorageConformance:
    """The contract of :class:`lakebed.storage.contract.Storage`, promise by promise."""

    threads = 8

    @pytest.fixture
    def storage(self) -> Storage:
        """Override: an empty store."""
        raise NotImplementedError

    def test_a_created_object_is_there(self, storage: Storage) -> None:
        """Log entry 1 of an empty log."""
        assert storage.get("t/log/1") is None
        assert storage.create("t/log/1", b"one") is PutOutcome.CREATED
        assert storage.get("t/log/1") == b"one"

    def test_create_never_overwrites(self, storage: Storage) -> None:
        """The loser gets EXISTS, and the winner's bytes stay."""
        storage.create("t/log/1", b"first")
        assert storage.create("t/log/1", b"second") is PutOutcome.EXISTS
        assert storage.create("t/log/1", b"first") is PutOutcome.EXISTS
        assert storage.get("t/log/1") == b"first"

    def test_an_empty_object_is_an_object(self, storage: Storage) -> None:
        """An empty object differs from an absent one."""
        assert storage.create("empty", b"") is PutOutcome.CREATED
        assert storage.get("empty") == b""
        assert storage.create("empty", b"x") is PutOutcome.EXISTS

    def test_no_more_is_put_than_can_be_read_back(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        """By any kind of put; a refused put leaves the object unchanged."""
        monkeypatch.setattr(contract, "OBJECT_BYTES_MAX", 1000)
        assert storage.create("t/log/1", bytes(1000)) is PutOutcome.CREATED
        found = storage.get_versioned("t/log/1")
        assert found is not None
        for put in (
            lambda: storage.create("t/log/2", bytes(1001)),
            lambda: storage.replace("t/log/1", bytes(1001)),
            lambda: storage.replace_if("t/log/1", found.version, bytes(1001)),
        ):
            with pytest.raises(StorageError, match="it has 1001 bytes, and at most 1000 can be read back"):
                put()
        assert storage.get("t/log/1") == bytes(1000)
        assert storage.get("t/log/2") is None

    def test_more_than_a_put_allows_is_not_read(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        """A crafted object under a name that is read whole."""
        storage.create("t/log/1", bytes(1001))
        monkeypatch.setattr(contract, "OBJECT_BYTES_MAX", 1000)
        for get in (storage.get, storage.get_versioned):
            with pytest.raises(DamagedError, match=r"t/log/1 has 1001 bytes, and Lakebed puts at most 1000 there"):
                get("t/log/1")

    def test_parts_of_an_object_are_read(self, storage: Storage) -> None:
        """In the order of the ranges, also where these overlap; a part is never shorter than its range."""
        data = bytes(range(256)) * 64
        storage.create("t/data/1", data)
        ranges = [(100, 50), (0, 1), (120, 4000), (len(data) - 3, 3)]
        parts = storage.read_ranges("t/data/1", ranges)
        assert parts == [data[offset : offset + length] for offset, length in ranges]
        with pytest.raises((OSError, StorageError)):
            storage.read_ranges("t/data/1", [(len(data) - 3, 4)])
        with pytest.raises(NotFoundError):
            storage.read_ranges("t/data/2", [(0, 1)])

    def test_objects_are_where_it_says(self, storage: Storage) -> None:
        """A reader of files in place finds every object there, with these bytes."""
        storage.create("t/data/1", b"one")
        assert storage.locality in Locality
        assert (storage.folder is not None) <= (storage.locality is Locality.DISK)
        if storage.folder is not None:
            assert (storage.folder / "t/data/1").read_bytes() == b"one"

    def test_of_racing_creates_one_wins(self, storage: Storage) -> None:
        """Eight threads, ten names: each has one winner, and contains the winner's bytes."""
        for number in range(10):
            barrier = threading.Barrier(self.threads)
            name = f"race/{number}"

            def put(writer: int, name: str = name, barrier: threading.Barrier = barrier) -> PutOutcome:
                barrier.wait()
                return storage.create(name, b"writer %d" % writer)

            with ThreadPoolExecutor(self.threads) as pool:
                outcomes = list(pool.map(put, range(self.threads)))
            assert sorted(outcome.value for outcome in outcomes) == ["created"] + ["exists"] * (self.threads - 1)
            assert storage.get(name) == b"writer %d" % outcomes.index(PutOutcome.CREATED)

    def test_replace_takes_the_place_of_what_is_there(self, storage: Storage) -> None:
        """Whether there was an object before or not."""
        storage.replace("checkpoints/latest", b"1")
        storage.replace("checkpoints/latest", b"22")
        assert storage.get("checkpoints/latest") == b"22"

    def test_a_replaced_object_is_read_whole(self, storage: Storage) -> None:
        """A concurrent reader gets one version or the other, never a mixture or nothing."""
        versions = [bytes([65 + n]) * 100_000 for n in range(4)]
        storage.replace("pins/1", versions[0])
        stop = threading.Event()

        def read() -> set[bytes | None]:
            seen = set()
            while not stop.is_set():
                seen.add(storage.get("pins/1"))
            return seen

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for n in range(20):
                storage.replace("pins/1", versions[n % 4])
            stop.set()
            assert {found for reader in readers for found in reader.result()} <= set(versions)

    def test_a_version_is_replaced_once(self, storage: Storage) -> None:
        """The log start of a log, 3 -> 5: a replace of version 3 then fails, and the 5 stays."""
        assert storage.get_versioned("log/log-start") is None
        storage.create("log/log-start", b"3")
        three = versioned(storage, "log/log-start")
        assert three.data == b"3"
        assert storage.replace_if("log/log-start", three.version, b"5") is PutOutcome.CREATED
        assert storage.replace_if("log/log-start", three.version, b"4") is PutOutcome.EXISTS
        assert storage.replace_if("log/log-start", three.version, b"5") is PutOutcome.EXISTS
        five = versioned(storage, "log/log-start")
        assert five.data == b"5"
        assert five.version != three.version
        assert storage.replace_if("log/log-start", five.version, b"") is PutOutcome.CREATED
        assert versioned(storage, "log/log-start").data == b""

    def test_what_is_gone_is_not_replaced(self, storage: Storage) -> None:
        """The failed replace leaves no object behind."""
        storage.create("log/log-start", b"3")
        three = versioned(storage, "log/log-start")
        storage.delete(["log/log-start"])
        assert storage.replace_if("log/log-start", three.version, b"5") is PutOutcome.EXISTS
        assert storage.replace_if("nowhere/at/all", three.version, b"5") is PutOutcome.EXISTS
        assert list(storage.list("")) == []

    def test_of_racing_replaces_of_one_version_one_wins(self, storage: Storage) -> None:
        """Eight threads, ten rounds: each has one winner, and leaves the winner's bytes; a listing shows one object."""
        storage.create("race", b"first")
        for number in range(10):
            barrier = threading.Barrier(self.threads)
            version = versioned(storage, "race").version

            def put(
                writer: int, number: int = number, version: Version = version, barrier: threading.Barrier = barrier
            ) -> PutOutcome:
                barrier.wait()
                return storage.replace_if("race", version, b"writer %d of %d" % (writer, number))

            with ThreadPoolExecutor(self.threads) as pool:
                outcomes = list(pool.map(put, range(self.threads)))
            assert sorted(outcome.value for outcome in outcomes) == ["created"] + ["exists"] * (self.threads - 1)
            assert storage.get("race") == b"writer %d of %d" % (outcomes.index(PutOutcome.CREATED), number)
            assert [listed.name for listed in storage.list("")] == ["race"]

    def test_counting_by_replaces_loses_nothing(self, storage: Storage) -> None:
        """Four threads add one to a number, ten times each, each until its own replace takes effect."""
        storage.create("number", b"0")

        def count(_: int) -> None:
            for _ in range(10):
                found = versioned(storage, "number")
                while storage.replace_if("number", found.version, b"%d" % (int(found.data) + 1)) is PutOutcome.EXISTS:
                    found = versioned(storage, "number")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(4)))
        assert storage.get("number") == b"40"

    def test_a_sent_file_is_there_with_its_digest(self, storage: Storage, tmp_path: Path) -> None:
        """Not Parquet: no footer."""
        sent = tmp_path / "sent"
        sent.write_bytes(b"some bytes")
        stored = storage.send("data/j/f.summary", sent)
        assert (stored.size_bytes, stored.digest) == (10, digest_bytes(b"some bytes"))
        assert (stored.footer_bytes, stored.footer_digest) == (0, "")
        assert stored.last_modified == storage.last_modified("data/j/f.summary")
        with storage.fetch("data/j/f.summary", digest=stored.digest) as path:
            assert path.read_bytes() == b"some bytes"

    def test_a_parquet_file_has_a_footer(self, storage: Storage, tmp_path: Path) -> None:
        """Magic, rows, [metadata, its length, magic]."""
        footer = b"metadata" * 8 + (64).to_bytes(4, "little") + b"PAR1"
        sent = tmp_path / "f.parquet"
        sent.write_bytes(b"PAR1" + b"rows" * 1000 + footer)
        stored = storage.send("data/j/f.parquet", sent)
        assert (stored.footer_bytes, stored.footer_digest) == (72, digest_bytes(footer))

    def test_a_large_file_is_sent_whole(self, storage: Storage, tmp_path: Path) -> None:
        """Several parts on object stores."""
        data = bytes(range(256)) * (LARGE_BYTES // 256) + b"end"
        sent = tmp_path / "large.parquet"
        sent.write_bytes(data)
        stored = storage.send("data/j/large.parquet", sent)
        assert (stored.size_bytes, stored.digest) == (len(data), digest_bytes(data))
        with storage.fetch("data/j/large.parquet", digest=stored.digest) as path:
            assert path.read_bytes() == data

    def test_an_empty_file_can_be_sent(self, storage: Storage, tmp_path: Path) -> None:
        """Lakebed never sends one, but it must work."""
        sent = tmp_path / "empty"
        sent.touch()
        assert storage.send("data/j/empty", sent).size_bytes == 0
        assert storage.get("data/j/empty") == b""

    def test_a_damaged_object_is_refused_by_name(self, storage: Storage) -> None:
        """The digest is not that of the bytes."""
        storage.replace("data/j/f.parquet", b"damaged")
        with (
            pytest.raises(DamagedError, match=r"data/j/f\.parquet"),
            storage.fetch("data/j/f.parquet", digest=digest_bytes(b"written")),
        ):
            pytest.fail("entered with damaged bytes")

    def test_fetching_nothing_says_so(self, storage: Storage) -> None:
        """It is an error, not an empty file."""
        with pytest.raises(NotFoundError, match="data/none"), storage.fetch("data/none"):
            pytest.fail("entered without an object")

    def test_last_modified_times_are_the_stores_own_time(self, storage: Storage) -> None:
        """Aware, UTC, not after the store's clock, and the same in a listing."""
        assert storage.last_modified("log/1") is None
        before = storage.now()
        storage.create("log/1", b"1")
        last_modified = storage.last_modified("log/1")
        assert last_modified is not None
        assert last_modified.tzinfo is UTC
        assert before - timedelta(seconds=1) <= last_modified <= storage.now() + timedelta(seconds=1)
        assert [listed.last_modified for listed in storage.list("log")] == [last_modified]

    def test_a_listing_is_recursive_and_by_whole_segments(self, storage: Storage) -> None:
        """``data/j1`` is not a prefix of ``data/j10``."""
        for name in ("data/j1/a", "data/j1/deep/b", "data/j10/c", "log/1"):
            storage.create(name, name.encode())
        assert sorted(listed.name for listed in storage.list("data/j1")) == ["data/j1/a", "data/j1/deep/b"]
        assert sorted(listed.name for listed in storage.list("data/j1/")) == ["data/j1/a", "data/j1/deep/b"]
        assert sorted(listed.name for listed in storage.list("")) == [
            "data/j1/a",
            "data/j1/deep/b",
            "data/j10/c",
            "log/1",
        ]
        assert {listed.name: listed.size_bytes for listed in storage.list("log")} == {"log/1": 5}
        assert list(storage.list("none")) == []

    def test_a_listing_hides_what_is_the_stores_own(self, storage: Storage) -> None:
        """Clock, probe and temporary objects."""
        storage.create(".probe/1", b"x")
        storage.create("log/1", b"x")
        storage.now()
        assert [listed.name for listed in storage.list("")] == ["log/1"]

    def test_no_put_that_ended_has_temporaries(self, storage: Storage) -> None:
        """Whatever its outcome."""
        for _ in range(2):
            storage.create("t/log/1", b"x")
        storage.replace("t/log/2", b"x")
        assert not list(storage.temporaries("t"))
        assert not list(storage.temporaries(""))

    def test_deleting_temporaries_takes_nothing_that_a_listing_shows(self, storage: Storage) -> None:
        """However old."""
        storage.create("t/log/1", b"x")
        storage.now()
        later = storage.now() + timedelta(days=1)
        for prefix in ("", "t", "none"):
            storage.delete_temporaries(prefix, later)
        assert [listed.name for listed in storage.list("")] == ["t/log/1"]

    def test_deleting_what_is_not_there_is_fine(self, storage: Storage) -> None:
        """Two collectors may race, and one may repeat its deletions."""
        for name in ("d/1", "d/2", "e/1"):
            storage.create(name, b"x")
        storage.delete(["d/1", "d/none", "e/1", "nowhere/at/all"])
        storage.delete(["d/1"])
        storage.delete([])
        assert [listed.name for listed in storage.list("")] == ["d/2"]

    def test_a_deleted_name_can_be_created_again(self, storage: Storage) -> None:
        """The store does not remember names, so a truncated log needs the log start."""
        storage.create("d/deep/1", b"first")
        storage.delete(["d/deep/1"])
        assert storage.get("d/deep/1") is None
        assert storage.create("d/deep/1", b"second") is PutOutcome.CREATED

    @pytest.mark.parametrize("name", UNSAFE_NAMES)
    def test_an_unsafe_name_is_refused_by_every_call(self, storage: Storage, name: str, tmp_path: Path) -> None:
        """Before any request is sent."""
        local = tmp_path / "local"
        local.write_bytes(b"x")
        with pytest.raises(UsageError):
            storage.create(name, b"x")
        with pytest.raises(UsageError):
            storage.replace(name, b"x")
        with pytest.raises(UsageError):
            storage.replace_if(name, Version("x"), b"x")
        with pytest.raises(UsageError):
            storage.get(name)
        with pytest.raises(UsageError):
            storage.get_versioned(name)
        with pytest.raises(UsageError):
            storage.last_modified(name)
        with pytest.raises(UsageError):
            storage.send(name, local)
        with pytest.raises(UsageError), storage.fetch(name):
            pass
        with pytest.raises(UsageError):
            storage.delete([name])
        with pytest.raises(UsageError):
            storage.object_url(name)

    def test_an_object_url_lies_below_the_root(self, storage: Storage) -> None:
        """Other engines read the object by its URL."""
        assert storage.object_url("data/j/f.parquet") == f"{storage.url}/data/j/f.parquet"

    def test_create_if_absent_is_kept(self, storage: Storage) -> None:
        """The probe leaves no object behind."""
        check_conditional_puts(storage)
        assert list(storage.list("")) == []

    def test_replace_if_unchanged_is_kept(self, storage: Storage) -> None:
        """The probe leaves no object behind."""
        assert keeps_replace_if(storage)
        assert list(storage.list("")) == []


def versioned(storage: Storage, name: str) -> Versioned:
    """Return an object that must exist."""
    found = storage.get_versioned(name)
    assert found is not None, name
    return found
