"""A log in SQLite: its URL, what goes wrong with a file, and an instance on top of it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import DamagedError, StorageError, UnsafeStoreError, UnsupportedFormatError, UsageError
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.committer import Log
from lakebed.log.locations import connect_logs
from lakebed.log.outcomes import Committed, Unknown
from lakebed.log.sql import rows as sql_place
from lakebed.log.sql import sqlite
from lakebed.state.machine import TABLE
from lakebed.state.transactions import CreateTable
from lakebed.storage import connect, object_size
from lakebed.storage.contract import PutOutcome
from lakebed.storage.object_size import OBJECT_BYTES_MAX
from tests.unit.log.cases import LOG, adding
from tests.unit.state.cases import SCHEMA as STATE_SCHEMA

SCHEMA = lakebed.Schema({"k": "string"}, values={"v": "int64"})


def logs_at(path):
    return connect_logs(f"sqlite:///{path}", connect("memory://unused"), "instance-0")


@pytest.fixture
def logs(tmp_path):
    location = logs_at(tmp_path / "logs.db")
    location.check()
    return location


@contextmanager
def no_privilege():
    """As anybody but root, whom no permission of a file stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///logs.db", "absolute"),
        ("sqlite://", "absolute"),
        ("sqlite:////", "absolute"),
        ("sqlite:///:memory:", "absolute"),
        ("sqlite://host/logs.db", "no host"),
        ("sqlite:////logs.db?mode=ro", "no query"),
        ("mysql://host/logs", "unknown scheme"),
        ("postgresql+psycopg://host/logs", "unknown scheme"),
    ],
)
def test_a_url_that_is_no_file_is_refused(tmp_path, url, says):
    with pytest.raises(UsageError, match=says):
        lakebed.create(str(tmp_path / "lake"), log_url=url)
    assert not (tmp_path / "lake/instance.json").exists()


def test_an_instance_with_its_log_in_sqlite_is_whole(tmp_path):
    """Written here, read and written by another process, read here again; no log beside the data."""
    url, log_url = str(tmp_path / "lake"), f"sqlite:///{tmp_path}/logs.db"
    table = lakebed.create(url, log_url=log_url).create_table("t", SCHEMA)
    table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}))
    other = f"""
        import lakebed, pyarrow as pa
        table = lakebed.open({url!r}).table("t")
        assert table.get("b").column("v").to_pylist() == [2]
        table.write(pa.table({{"k": ["c"], "v": [3]}}))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(other)], check=True, timeout=60)
    assert table.get("c").column("v").to_pylist() == [3]
    assert lakebed.open(url).log_url == log_url
    assert {path.parent.name for path in Path(url).rglob("*.ndjson")} == {"latest"}


def test_two_instances_share_a_file(tmp_path):
    """Each has a catalog of its own."""
    log_url = f"sqlite:///{tmp_path}/logs.db"
    one, two = (lakebed.create(str(tmp_path / name), log_url=log_url) for name in ("one", "two"))
    one.create_table("t", SCHEMA)
    two.create_table("u", SCHEMA)
    assert (lakebed.open(one.url).tables(), lakebed.open(two.url).tables()) == (["t"], ["u"])


def test_a_commit_survives_a_power_cut(logs):
    """What SQLite promises with these settings."""
    with logs.connection("look at") as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2]


def test_a_file_that_is_gone_is_an_error_and_not_an_empty_log(tmp_path):
    """Opening makes nothing."""
    log = logs_at(tmp_path / "gone.db").open("catalog")
    for call in (lambda: log.get(1), lambda: log.create(1, b"x"), log.now, lambda: list(log.versions())):
        with pytest.raises(StorageError, match="cannot be opened") as failure:
            call()
        assert not failure.value.transient
    assert not (tmp_path / "gone.db").exists()


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(StorageError, match=r"cannot make .*none/logs\.db") as failure:
        logs_at(tmp_path / "none/logs.db").check()
    assert not failure.value.transient


def test_an_entry_that_could_not_be_read_back_is_not_put(logs, monkeypatch):
    monkeypatch.setattr(object_size, "OBJECT_BYTES_MAX", 1000)
    with pytest.raises(StorageError, match="it takes 1001 bytes, and at most 1000 can be read back"):
        logs.open("catalog").create(1, bytes(1001))
    assert logs.open("catalog").get(1) is None


def test_an_entry_larger_than_any_that_is_put_is_not_read(tmp_path, logs):
    log = logs.open("catalog")
    log.create(1, b"one")
    with sqlite3.connect(tmp_path / "logs.db") as database:
        database.execute("UPDATE lakebed_entries SET data = zeroblob(?)", (OBJECT_BYTES_MAX + 1,))
    with pytest.raises(DamagedError, match=r"entry 1 of .* has more than 134217728 bytes, and nothing that"):
        log.get(1)


def test_a_log_start_of_megabytes_is_damaged(tmp_path, logs):
    log = logs.open("catalog")
    assert log.advance_log_start(0, 3)
    with sqlite3.connect(tmp_path / "logs.db") as database:
        database.execute("UPDATE lakebed_entries SET data = CAST(data || zeroblob(?) AS BLOB)", (2**20,))
    with pytest.raises(DamagedError, match=r"the log start of .* was changed after it was written"):
        log.log_start()


def test_a_read_only_file_is_read_and_refuses_entries():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "logs.db")
        logs = logs_at(path)
        logs.check()
        logs.open("catalog").create(1, b"one")
        logs._engine().dispose()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            with no_privilege():
                log = logs_at(path).open("catalog")
                with pytest.raises(StorageError, match=r"read-only|cannot be opened") as failure:
                    log.create(2, b"two")
                assert not failure.value.transient
        finally:
            Path(folder).chmod(0o755)
        assert list(logs.open("catalog").versions()) == [1]


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "logs.db").write_text("notes " * 1000, "utf-8")
    with pytest.raises(StorageError, match="not an SQLite database") as failure:
        logs_at(tmp_path / "logs.db").check()
    assert not failure.value.transient


def test_a_table_without_its_key_is_not_trusted(tmp_path):
    """Two racing entries would both be stored."""
    with sqlite3.connect(tmp_path / "logs.db") as connection:
        connection.execute("CREATE TABLE lakebed_entries (log TEXT, version BIGINT, data BLOB, stored DATETIME)")
    connection.close()
    with pytest.raises(StorageError, match="not as Lakebed made it"):
        logs_at(tmp_path / "logs.db").check()


def test_a_full_disk_refuses_the_entry(logs):
    """As SQLite sees one: no page more is to be had. The next entry that fits is taken."""
    log = logs.open("catalog")
    with logs.connection("fill") as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageError, match="disk is full") as failure:
        log.create(1, b"x" * 1_000_000)
    assert not failure.value.transient
    assert log.get(1) is None
    assert log.create(1, b"small") is PutOutcome.CREATED


def test_a_lock_that_is_held_for_long_is_a_refusal(tmp_path, monkeypatch):
    """Nothing was stored, and the same may succeed later."""
    monkeypatch.setattr(sqlite, "BUSY_S", 0.1)
    logs = logs_at(tmp_path / "logs.db")
    logs.check()
    log = logs.open("catalog")
    holder = sqlite3.connect(tmp_path / "logs.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="write lock") as failure:
        log.create(1, b"x")
    assert failure.value.transient
    assert log.get(1) is None
    holder.execute("ROLLBACK")
    holder.close()
    assert log.create(1, b"x") is PutOutcome.CREATED


@pytest.mark.usefixtures("real_waiting")
def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path):
    """For this lock SQLite does not wait by itself."""
    path = tmp_path / "logs.db"
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.3, holder.rollback)
    done.start()
    logs_at(path).check()
    done.join()
    holder.close()


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    """Told by the table of mounts; the innermost one counts."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / ext4 rw 0 0\nhost:/x {tmp_path}/net nfs4 rw 0 0\nnone {tmp_path}/net/here xfs rw 0 0\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    (tmp_path / "net/here").mkdir(parents=True)
    with pytest.raises(UnsafeStoreError, match="nfs4"):
        logs_at(tmp_path / "net/logs.db").check()
    logs_at(tmp_path / "net/here/logs.db").check()


def test_a_forked_process_has_connections_of_its_own(logs):
    """Both go on, at once."""
    log = logs.open("catalog")
    log.create(1, b"1")
    child = os.fork()
    if child == 0:
        try:
            done = log.get(1) == b"1" and log.create(2, b"child") is PutOutcome.CREATED
            os._exit(0 if done and len(logs._engines) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.get(2) == b"child"
    assert len(logs._engines) == 1


def test_a_database_has_one_pool_however_often_it_is_opened(tmp_path, logs):
    """And it goes with the last who uses it."""
    again = logs_at(tmp_path / "logs.db")
    assert again._engine() is logs._engine()
    assert logs_at(tmp_path / "other.db")._engine() is not logs._engine()


def test_a_file_from_before_there_were_floors_has_one(tmp_path):
    """Its table is as it was: a log start is a row of it."""
    with sqlite3.connect(tmp_path / "logs.db") as connection:
        connection.execute(
            "CREATE TABLE lakebed_entries (log TEXT NOT NULL, version BIGINT NOT NULL, data BLOB NOT NULL, "
            "stored DATETIME NOT NULL, PRIMARY KEY (log, version))"
        )
    connection.close()
    log = logs_at(tmp_path / "logs.db").open("catalog")
    log.create(1, b"one")
    assert log.log_start() == 0
    assert log.advance_log_start(0, 1)
    assert log.advance_log_start(1, 2)
    log.remove([1])
    assert (log.log_start(), list(log.versions())) == (2, [])


def test_a_raise_that_is_kept_out_by_a_lock_is_refused_and_not_in_doubt(tmp_path, monkeypatch):
    """As an entry is."""
    monkeypatch.setattr(sqlite, "BUSY_S", 0.1)
    logs = logs_at(tmp_path / "logs.db")
    logs.check()
    log = logs.open("catalog")
    log.advance_log_start(0, 1)
    holder = sqlite3.connect(tmp_path / "logs.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for call in (lambda: log.advance_log_start(1, 2), lambda: log.remove([1])):
        with pytest.raises(StorageError, match="write lock") as failure:
            call()
        assert failure.value.transient
    assert log.log_start() == 1
    holder.execute("ROLLBACK")
    holder.close()
    assert log.advance_log_start(1, 2)


def on_a_table(tmp_path):
    """A log of its own, as if of another process."""
    beside = CheckpointLocation(connect(f"memory://{tmp_path.name}"), LOG)
    return Log(logs_at(tmp_path / "logs.db").open(LOG), beside, "table-00", TABLE)


def test_a_commit_is_one_round_trip(tmp_path, logs, monkeypatch):
    """The log start comes with the entry, and the last-modified time of the one before came with that."""
    log = on_a_table(tmp_path)
    log.commit(CreateTable("table-00", STATE_SCHEMA, {}, ()))
    reads, puts = [], []
    read, put = sql_place.SqlLogs.read, sql_place.SqlLogs.put
    monkeypatch.setattr(sql_place.SqlLogs, "read", lambda *asked: reads.append(asked) or read(*asked))
    monkeypatch.setattr(sql_place.SqlLogs, "put", lambda *asked: puts.append(asked) or put(*asked))
    for count in range(5):
        assert log.commit(adding(f"f{count}")) == Committed(count + 2)
    assert (len(puts), reads) == (5, [])


def test_a_writer_who_slept_does_not_believe_his_own_insert(tmp_path, logs):
    """He wins a number that was truncated, and the log start that comes with it says so. Asked again, the state
    tells."""
    log = on_a_table(tmp_path)
    log.commit(CreateTable("table-00", STATE_SCHEMA, {}, ()))
    sleeper = on_a_table(tmp_path)
    assert sleeper.commit(adding("f0", "r0")) == Committed(2)
    for count in range(1, 6):
        log.commit(adding(f"f{count}", f"r{count}"))
    retained = log.retain_checkpoint()
    log.commit(adding("f6"))
    log.retain_checkpoint()
    log.truncate(retained - 1)
    assert sleeper.head.version == 2

    assert sleeper.commit(adding("lost")) == Unknown(3)
    assert sleeper.commit(adding("g")) == Committed(retained + 2)
    assert set(on_a_table(tmp_path).follow().files) == {*(f"f{count}" for count in range(7)), "g"}


@pytest.mark.parametrize("data", [b"{}\n", b'{"format":1,"features":[],"digest":""}\n{}\n'])
def test_a_log_start_that_cannot_be_read_is_an_error_once_the_entry_is_told(logs, data):
    """The entry is stored: its create does not fail, and whoever asks for the log start is told what is wrong."""
    log = logs.open(LOG)
    logs.open(f"{LOG}/log-start").create(0, data)
    assert log.create(1, b"one") is PutOutcome.CREATED
    assert log.known_log_start(1) is None
    with pytest.raises((DamagedError, UnsupportedFormatError)):
        log.log_start()


def test_numbers_come_page_by_page(logs, monkeypatch):
    monkeypatch.setattr(sql_place, "VERSIONS_PER_PAGE", 3)
    log = logs.open("catalog")
    for version in range(1, 8):
        log.create(version, b"x")
    assert list(log.versions()) == list(range(1, 8))
    assert list(logs.open("other").versions()) == []


@pytest.mark.parametrize(("url", "missing"), [("sqlite:////logs.db", "sqlalchemy"), ("postgresql://h/db", "psycopg")])
def test_a_missing_driver_says_what_to_install(tmp_path, url, missing):
    """In a Python that has not got it."""
    code = f"""
        import sys
        sys.modules[{missing!r}] = None
        import lakebed
        try:
            lakebed.create({str(tmp_path / "lake")!r}, log_url={url!r})
        except lakebed.errors.UsageError as error:
            assert "pip install 'lakebed[sql]'" in str(error) and {missing!r} in str(error), error
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
