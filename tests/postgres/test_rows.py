"""Logs as rows: what is read and written of them, one pool, and what a log start that comes with an entry tells."""

from __future__ import annotations

import pytest
from sqlalchemy import event

import lakebed
from lakebed import clock
from lakebed.errors import Code, DamagedError, StorageError
from lakebed.log.backends import postgresql
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.log import Log
from lakebed.log.outcomes import Committed
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import CreateTable
from lakebed.storage import connect, contract
from lakebed.storage.contract import OBJECT_BYTES_MAX, PutOutcome
from lakebed.testing.logs import LogUrl
from tests.pure.state.cases import SCHEMA as STATE_SCHEMA
from tests.raising import raises
from tests.tables.log.cases import LOG, adding

SCHEMA = lakebed.Schema({"k": "string"}, values={"v": "int64"})


@pytest.fixture
def logs(location):
    return location.connect()


@pytest.fixture
def on_a_table(location):
    """Logs of one table, each as if of another process."""
    beside = CheckpointLocation(connect(f"memory://{clock.random_token()}"), LOG)
    return lambda: Log(location.connect().open(LOG), beside, "table-00", TABLE)


def test_two_instances_share_a_database(cluster, tmp_path):
    """Each has a catalog of its own."""
    one, two = (lakebed.create(str(tmp_path / name), log_url=cluster.url()) for name in ("one", "two"))
    one.create_table("t", SCHEMA)
    two.create_table("u", SCHEMA)
    assert (lakebed.open(one.url).tables(), lakebed.open(two.url).tables()) == (["t"], ["u"])


def test_an_entry_that_could_not_be_read_back_is_not_put(logs):
    most = contract.OBJECT_BYTES_MAX
    with pytest.raises(StorageError, match=f"it has {most + 1} bytes, and at most {most} can be read back"):
        logs.open("catalog").create(1, bytes(most + 1))
    assert logs.open("catalog").get(1) is None


def test_an_entry_larger_than_any_that_is_put_is_not_read(cluster, location, logs):
    log = logs.open("catalog")
    log.create(1, b"one")
    grown = f"UPDATE lakebed_entries SET data = convert_to(repeat('x', {OBJECT_BYTES_MAX + 1}), 'UTF8')"
    cluster.sql(f"{grown} WHERE log = '{location.instance}/catalog'")
    with pytest.raises(DamagedError, match=r"entry 1 of .* has more than 134217728 bytes, and Lakebed puts at most"):
        log.get(1)


def test_a_log_start_of_megabytes_is_damaged(cluster, location, logs):
    log = logs.open("catalog")
    assert log.advance_log_start(0, 3)
    grown = "UPDATE lakebed_entries SET data = data || convert_to(repeat(' ', 1000000), 'UTF8')"
    cluster.sql(f"{grown} WHERE log = '{location.instance}/catalog/log-start'")
    with pytest.raises(DamagedError, match=r"the log start of .* was changed after it was written"):
        log.log_start()


def test_a_database_has_one_pool_however_often_it_is_opened(cluster, location, logs):
    assert location.connect()._engine() is logs._engine()
    assert LogUrl(f"{cluster.url()}?application_name=other").connect()._engine() is not logs._engine()


def test_a_commit_is_one_round_trip(on_a_table, logs):
    """The log start comes with the entry, and the last-modified time of the one before came with that."""
    log = on_a_table()
    log.commit(CreateTable("table-00", STATE_SCHEMA, {}, ()))
    sent = []

    def note(*given):
        sent.append(given[2].partition(" ")[0])

    event.listen(logs._engine(), "before_cursor_execute", note)
    for count in range(5):
        assert log.commit(adding(f"f{count}")) == Committed(count + 2)
    event.remove(logs._engine(), "before_cursor_execute", note)
    assert sent == ["INSERT"] * 5


def test_a_writer_that_slept_does_not_write_into_what_was_truncated(on_a_table):
    """The entry before its own is not there any more, so the insert is refused; it goes on at the end of the log."""
    log = on_a_table()
    log.commit(CreateTable("table-00", STATE_SCHEMA, {}, ()))
    sleeper = on_a_table()
    assert sleeper.commit(adding("f0", "r0")) == Committed(2)
    for count in range(1, 6):
        log.commit(adding(f"f{count}", f"r{count}"))
    retained = log.retain_checkpoint()
    log.commit(adding("f6"))
    log.retain_checkpoint()
    log.truncate(retained - 1)
    assert sleeper.head.version == 2

    assert sleeper.commit(adding("late")) == Committed(retained + 2)
    assert sleeper.commit(adding("g")) == Committed(retained + 3)
    assert set(on_a_table().follow().files) == {*(f"f{count}" for count in range(7)), "late", "g"}


@pytest.mark.parametrize("data", [b"{}\n", b'{"format":2,"features":[],"digest":"","log_start":3}\n'])
def test_a_damaged_log_start_does_not_fail_a_create(logs, data):
    """The entry is stored; reading the log start raises."""
    log = logs.open(LOG)
    logs.open(f"{LOG}/log-start").create(0, data)
    assert log.create(1, b"one") is PutOutcome.CREATED
    assert log.known_log_start(1) is None
    with raises(Code.DOCUMENT_DAMAGED, Code.FORMAT_TOO_NEW):
        log.log_start()


def test_numbers_come_page_by_page(cluster, location, logs):
    log = logs.open("catalog")
    assert log.create(1, b"x") is PutOutcome.CREATED
    last = 2 * postgresql.VERSIONS_PER_PAGE + 1
    cluster.sql(
        "INSERT INTO lakebed_entries SELECT log, n, data, stored, digest FROM lakebed_entries, "
        f"generate_series(2, {last}) n WHERE log = '{location.instance}/catalog'"
    )
    assert list(log.versions()) == list(range(1, last + 1))
    assert list(logs.open("other").versions()) == []
