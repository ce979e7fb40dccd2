"""What a real server does to a log: restarts, cut connections, refusals."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import lakebed
from lakebed import clock
from lakebed.errors import StorageError, UnsafeStoreError
from lakebed.log.backends import postgresql
from lakebed.log.locations import connect_logs
from lakebed.log.outcomes import Committed, Contended, NotCommitted, Unknown
from lakebed.model.state.catalog import RegisterTable
from lakebed.storage import connect
from lakebed.storage.contract import PutOutcome
from lakebed.testing.logs import LogUrl, commit, logged
from tests.clocks import set_clock
from tests.postgres.cluster import PASSWORD
from tests.soaked import chosen

LOCK = "LOCK TABLE lakebed_entries IN SHARE MODE"


def logs_at(url):
    return connect_logs(url, connect("memory://unused"), clock.new_id())


def insist(log, name, troubles):
    """Commit a name whatever it takes, but never twice."""
    in_doubt = False
    while True:
        try:
            outcome = log.commit(RegisterTable(name, name, 0))
        except StorageError as error:
            outcome = error
        match outcome:
            case Committed():
                return
            case NotCommitted():
                # Its own earlier commit, and only if that one said that it does not know.
                assert in_doubt, "reported as not committed, and was"
                return
            case Unknown():
                in_doubt = True
            case StorageError(transient=transient):
                assert transient, outcome
        troubles.append(outcome)
        time.sleep(0.05)


@pytest.mark.parametrize("mode", chosen(["fast", "immediate"], "immediate"))
def test_a_restart_in_the_midst_of_commits_loses_and_doubles_nothing(cluster, location, tmp_path, mode):
    """Orderly, and as if it had crashed. Callers see a transient refusal, or nothing at all."""
    logs = [location.catalog(tmp_path / "checkpoints") for _ in range(3)]
    stop, troubles, names = threading.Event(), [], []

    def write(writer):
        count = 0
        while not stop.is_set():
            names.append(name := f"w{writer}-{count}")
            insist(logs[writer % len(logs)], name, troubles)
            count += 1

    with ThreadPoolExecutor(6) as pool:
        written = [pool.submit(write, writer) for writer in range(6)]
        # Whether a commit is under way at that moment is chance, so until one was.
        for restart in range(20):
            time.sleep(0.4)
            cluster.stop(mode)
            time.sleep(0.2)
            cluster.start()
            if restart and troubles:
                break
        time.sleep(0.4)
        stop.set()
        for one in written:
            one.result()
    assert troubles, "no commit met a restart"
    assert not [trouble for trouble in troubles if not isinstance(trouble, StorageError | Contended | Unknown)]
    assert sorted(logged(location, tmp_path)) == sorted(names)


def test_a_reader_waits_for_a_restart(cluster, location, monkeypatch):
    """The server is back while it pauses before its third attempt."""
    log = location.connect().open("catalog")
    log.create(1, b"one")
    cluster.stop()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            cluster.start()

    set_clock(monkeypatch, sleep=pause)
    assert log.get(1) == b"one"
    assert len(pauses) >= 2


def test_a_server_that_is_away_refuses_an_entry_at_once(cluster, location):
    """There was no connection, so nothing is under way: no doubt, and no waiting for one."""
    log = location.connect().open("catalog")
    cluster.stop()
    try:
        # The pool's connection still looks alive: only the attempt that finds it dead is in doubt.
        outcomes = []
        with pytest.raises(StorageError, match="try again later") as failure:
            outcomes.extend(log.create(1, b"one") for _ in range(3))
        assert failure.value.transient
        assert set(outcomes) <= {PutOutcome.UNCLEAR}
    finally:
        cluster.start()
    assert log.create(1, b"one") is PutOutcome.CREATED


def test_a_connection_cut_while_an_entry_is_stored_leaves_it_unclear(cluster, location):
    """The statement waits for a lock; its session is ended by the administrator."""
    log = location.connect().open("catalog")
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(cluster.url(), password=PASSWORD, autocommit=False) as holder,
    ):
        holder.execute(LOCK)
        created = pool.submit(log.create, 1, b"one")
        while not (
            ended := cluster.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%'"
            )
        ):
            time.sleep(0.02)
        assert ended == [(True,)]
        assert created.result(120) is PutOutcome.UNCLEAR
    assert log.create(1, b"one") is PutOutcome.CREATED


def test_a_statement_that_ran_out_of_time_is_unclear(cluster, location):
    """A limit of the administrator's; the same bytes are put again, here without the limit."""
    limited = f"{cluster.url()}?options=-cstatement_timeout%3D500"
    log = connect_logs(limited, connect("memory://unused"), location.instance).open("catalog")
    with psycopg.connect(cluster.url(), password=PASSWORD, autocommit=False) as holder:
        holder.execute(LOCK)
        assert log.create(1, b"one") is PutOutcome.UNCLEAR
    assert location.connect().open("catalog").create(1, b"one") is PutOutcome.CREATED


@pytest.mark.parametrize("log_start", [0, 3])
def test_a_connection_cut_while_the_log_start_is_raised_is_settled(cluster, location, log_start):
    """The statement waits for a lock, and its session is ended: it is sent again."""
    log = location.connect().open("catalog")
    if log_start:
        log.advance_log_start(0, log_start)
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(cluster.url(), password=PASSWORD, autocommit=False) as holder,
    ):
        holder.execute(LOCK)
        raised = pool.submit(log.advance_log_start, log_start, 5)
        while not cluster.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND (query LIKE 'INSERT%' OR query LIKE 'UPDATE%')"
        ):
            time.sleep(0.02)
        holder.rollback()
        assert raised.result(120)
    assert log.log_start() == 5


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_isolation_still_raises_the_log_start_once(cluster, location, level):
    """A loser that the server refuses for its own reasons asks again, and finds the winner's."""
    url = f"{cluster.url()}?options=-cdefault_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    logs = [connect_logs(url, connect("memory://unused"), location.instance).open("catalog") for _ in range(4)]
    for _ in range(10):
        log_start = logs[0].log_start()
        with ThreadPoolExecutor(4) as pool:
            raised = list(
                pool.map(
                    lambda n, log_start=log_start: logs[n].advance_log_start(log_start, log_start + 1 + n), range(4)
                )
            )
        assert sum(raised) == 1
        assert logs[0].log_start() == log_start + 1 + raised.index(True)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_isolation_still_has_one_winner(cluster, location, level):
    """A server whose default was changed may refuse a racer for its own reasons: put again, it learns who won."""
    url = f"{cluster.url()}?options=-cdefault_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    logs = [connect_logs(url, connect("memory://unused"), location.instance).open("catalog") for _ in range(4)]

    def put(writer, version):
        while (outcome := logs[writer].create(version, b"%d" % writer)) is PutOutcome.UNCLEAR:
            pass
        return outcome

    for version in range(1, 21):
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(put, range(4), [version] * 4))
        assert outcomes.count(PutOutcome.CREATED) == 1
        assert logs[0].get(version) == b"%d" % outcomes.index(PutOutcome.CREATED)


@pytest.mark.parametrize(
    ("level", "reported"), [("read committed", 1), ("repeatable read", None), ("serializable", None)]
)
def test_the_log_start_that_is_returned_with_a_create_is_not_that_of_its_beginning(cluster, location, level, reported):
    """The INSERT waits for the delete of its version, which a writer that slept so wins; the log start was raised.

    Where a transaction sees only what was there when it began, it tells nothing.
    """
    url = f"{cluster.url()}?options=-cdefault_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    log = connect_logs(url, connect("memory://unused"), location.instance).open("catalog")
    log.create(1, b"first")
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(cluster.url(), password=PASSWORD, autocommit=False) as trimmer,
    ):
        trimmer.execute("DELETE FROM lakebed_entries WHERE log = %s", [log.name])
        created = pool.submit(log.create, 1, b"second")
        while not cluster.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%'"):
            time.sleep(0.02)
        assert location.connect().open("catalog").advance_log_start(0, 1)
        trimmer.commit()
        assert created.result(120) is PutOutcome.CREATED
    assert log.known_log_start(1) == reported
    assert log.log_start() == 1


def test_a_look_that_fails_takes_the_insert_with_it(location, monkeypatch):
    """So an error of either says that nothing is stored."""
    monkeypatch.setattr(postgresql, "_LOOK", "; SELECT 1/0, 'read committed', TRUE")
    log = location.connect().open("catalog")
    with pytest.raises(StorageError, match="division by zero"):
        log.create(1, b"one")
    assert log.get(1) is None


def test_a_wrong_password_is_said_and_not_shown(cluster, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "s3kr1t")
    # Another pool than the one that is connected already.
    location = logs_at(f"{cluster.url()}?application_name=other")
    for call in (
        location.check,
        lambda: location.open("catalog").create(1, b""),
        lambda: location.open("catalog").get(1),
    ):
        with pytest.raises(StorageError, match=r"the password is wrong: see PGPASSWORD") as failure:
            call()
        assert not failure.value.transient
        assert "s3kr1t" not in f"{failure.value}{failure.value.facts}{failure.value.__cause__}"


def test_a_missing_password_is_said(cluster, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(StorageError, match="a password is asked for"):
        logs_at(f"{cluster.url()}?application_name=forgetful").check()


def test_a_missing_database_makes_no_instance(cluster, tmp_path):
    """It is its administrator's to make."""
    with pytest.raises(StorageError, match='database "none" does not exist') as failure:
        lakebed.create(str(tmp_path / "lake"), log_url=cluster.url("none"))
    assert not failure.value.transient
    assert not (tmp_path / "lake/instance.json").exists()


def test_a_table_that_is_gone_is_an_error_and_not_an_empty_log(cluster):
    cluster.sql("CREATE DATABASE emptied")
    location = logs_at(cluster.url("emptied"))
    location.check()
    cluster.sql("DROP TABLE lakebed_entries", database="emptied")
    log = location.open("catalog")
    for call in (lambda: log.get(1), lambda: log.create(1, b"x"), lambda: list(log.versions())):
        with pytest.raises(StorageError, match="lakebed_entries is missing") as failure:
            call()
        assert not failure.value.transient


def test_a_table_without_its_key_is_not_trusted(cluster):
    """Two racing entries would both be stored."""
    cluster.sql("CREATE DATABASE foreign_table")
    table = "CREATE TABLE lakebed_entries (log text, version bigint, data bytea, stored timestamptz, digest text)"
    cluster.sql(table, database="foreign_table")
    with pytest.raises(StorageError, match="no primary key"):
        logs_at(cluster.url("foreign_table")).check()


def test_a_server_that_acknowledges_early_is_refused(cluster):
    cluster.sql("CREATE DATABASE early", "ALTER DATABASE early SET synchronous_commit = off")
    with pytest.raises(UnsafeStoreError, match="synchronous_commit is off"):
        logs_at(cluster.url("early")).check()


def test_a_read_only_database_is_refused(cluster):
    cluster.sql("CREATE DATABASE frozen")
    location = logs_at(cluster.url("frozen"))
    location.check()
    log = location.open("catalog")
    log.create(1, b"one")
    cluster.sql("ALTER DATABASE frozen SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="read-only") as failure:
        logs_at(f"{cluster.url('frozen')}?application_name=later").check()
    assert not failure.value.transient
    readable = f"{cluster.url('frozen')}?target_session_attrs=any"
    reader = connect_logs(readable, connect("memory://unused"), location.instance).open("catalog")
    assert reader.get(1) == b"one"
    with pytest.raises(StorageError, match="read-only") as failure:
        reader.create(2, b"two")
    assert not failure.value.transient


def test_a_user_who_truncates_nothing_needs_no_more_than_select_and_insert(cluster):
    """Once the table has been made. Without these the error says so."""
    cluster.sql(
        "CREATE DATABASE shared",
        "CREATE ROLE writer LOGIN PASSWORD 'open sesame'",
        "CREATE ROLE unprivileged LOGIN PASSWORD 'open sesame'",
    )
    logs_at(cluster.url("shared")).check()
    cluster.sql(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT SELECT, INSERT ON lakebed_entries TO writer",
        database="shared",
    )
    location = logs_at(cluster.url("shared", user="writer"))
    location.check()
    log = location.open("catalog")
    assert log.create(1, b"one") is PutOutcome.CREATED
    # Trimming takes more, and says what. The first raise is an insert.
    assert log.advance_log_start(0, 1)
    for call in (lambda: log.advance_log_start(1, 2), lambda: log.remove([1])):
        with pytest.raises(StorageError, match="to update and delete") as failure:
            call()
        assert not failure.value.transient
    assert (log.log_start(), log.get(1)) == (1, b"one")
    with pytest.raises(StorageError, match="allow this user") as failure:
        logs_at(cluster.url("shared", user="unprivileged")).check()
    assert not failure.value.transient


def test_a_forked_process_has_connections_of_its_own(location):
    """Both go on, at once, and the parent's session outlives the child."""
    log = location.connect().open("catalog")
    log.create(1, b"1")
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if log.get(1) == b"1" and log.create(2, b"child") is PutOutcome.CREATED else 1)
        finally:
            os._exit(2)
    assert [log.get(1) for _ in range(50)] == [b"1"] * 50
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.get(2) == b"child"


def test_connections_are_bounded_whatever_the_threads(cluster, tmp_path):
    """Forty threads on ten logs, opened one by one, take eight."""
    location = LogUrl(f"{cluster.url()}?application_name=bounded")
    location.connect().check()
    logs = [location.catalog(tmp_path / "checkpoints") for _ in range(10)]
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda n: commit(logs[n % 10], f"n{n}"), range(80)))
    used = cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bounded'")[0][0]
    assert 1 < used <= 8
    assert len(logged(location, tmp_path)) == 80
