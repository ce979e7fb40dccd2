"""The contracts of log backends and of committers, as pytest suites.

Subclass them in a test file, with a fixture for the log's location::

    class TestMyLogs(LogConformance):
        @pytest.fixture
        def location(self, tmp_path):
            return LogUrl(str(tmp_path / "logs"))

Each test takes a fresh instance id, so all may share a database; a store must be fresh. For backends that another
process can reach there is :mod:`lakebed.testing.log_processes` as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from lakebed import clock
from lakebed.errors import Code, UsageError
from lakebed.log.backends.backend import Around, LogBackend, LogLocation
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.entry import decode
from lakebed.log.locations import connect_logs
from lakebed.log.log import Log
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Committed, NotCommitted, Outcome
from lakebed.model.documents import load
from lakebed.model.state.catalog import CatalogChange, CatalogProposal, CatalogState, RegisterTable
from lakebed.model.state.machine import CATALOG
from lakebed.storage import connect
from lakebed.storage.contract import PutOutcome
from lakebed.storage.digests import digest_bytes

CatalogLog = Log[CatalogState, CatalogProposal, CatalogChange]

SKEW = timedelta(seconds=1)
"""A store may keep last-modified times in whole seconds."""

ENTRY_BYTES_MAX = LIMITS.line_bytes + 64 * 1024
"""One transaction of the maximum size, and a header that names sidecars."""


@dataclass(frozen=True, slots=True)
class LogUrl:
    """The location of a log in a form that can be sent to another process."""

    log_url: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    instance: str = field(default_factory=clock.new_id)
    data_url: str | None = None
    """The store of the data, if the log needs its options: they reach only a store of the same kind."""

    def connect(self) -> LogLocation:
        """Open the location again."""
        data = connect(self.data_url, self.storage_options) if self.data_url else connect("memory://unused")
        return connect_logs(self.log_url, data, self.instance, storage_options=self.storage_options)

    def catalog(self, checkpoints: Path) -> CatalogLog:
        """Return a log that accepts names, for a test of commits; any machine would do."""
        beside = CheckpointLocation(connect(checkpoints), "catalog")
        return Log(self.connect().open("catalog"), beside, self.instance, CATALOG)


class LogConformance:
    """Each promise of :class:`lakebed.log.backends.backend.LogBackend`, and a committer on top of it."""

    threads = 8
    page_versions = 1200
    """More entries than a listing of the backend returns in one page."""
    page_entry = b"x"
    """The content of each of these entries: a backend may bound its pages in bytes."""

    @pytest.fixture
    def location(self) -> LogUrl:
        """Override: a location for a fresh log."""
        raise NotImplementedError

    @pytest.fixture
    def log(self, location: LogUrl) -> LogBackend:
        """An empty log."""
        logs = location.connect()
        logs.check()
        return logs.open("catalog")

    def test_a_place_can_be_checked_again_and_the_check_leaves_nothing(self, location: LogUrl) -> None:
        """Many services may check at once as they start together; a log without entries does not exist."""
        with ThreadPoolExecutor(self.threads) as pool:
            for checked in [pool.submit(location.connect().check) for _ in range(self.threads)]:
                checked.result()
        assert list(location.connect().open("catalog").versions()) == []

    def test_an_entry_is_there_once_it_was_acknowledged(self, log: LogBackend) -> None:
        """An entry does not exist before."""
        assert log.get(1) is None
        assert log.create(1, b"one") is PutOutcome.CREATED
        assert log.get(1) == b"one"
        assert log.get(2) is None

    def test_nothing_overwrites(self, log: LogBackend) -> None:
        """Whether the bytes are equal or not: it exists."""
        log.create(1, b"first")
        assert log.create(1, b"second") is PutOutcome.EXISTS
        assert log.create(1, b"first") is PutOutcome.EXISTS
        assert log.get(1) == b"first"

    def test_of_racing_creates_one_wins(self, location: LogUrl, log: LogBackend) -> None:
        """Eight connections, ten versions: each has one winner, and contains the winner's bytes."""
        racers = [location.connect().open("catalog") for _ in range(self.threads)]
        for version in range(1, 11):
            barrier = threading.Barrier(self.threads)

            def put(writer: int, version: int = version, barrier: threading.Barrier = barrier) -> PutOutcome:
                barrier.wait()
                return racers[writer].create(version, b"writer %d" % writer)

            with ThreadPoolExecutor(self.threads) as pool:
                outcomes = list(pool.map(put, range(self.threads)))
            assert sorted(outcome.value for outcome in outcomes) == ["created"] + ["exists"] * (self.threads - 1)
            assert log.get(version) == b"writer %d" % outcomes.index(PutOutcome.CREATED)

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0", bytes(range(256)), b"\xff\xfe'\\x41\n\r", bytes(range(256)) * (ENTRY_BYTES_MAX // 256)],
        ids=["empty", "nul", "all", "quotes", "large"],
    )
    def test_bytes_come_back_as_they_went(self, log: LogBackend, data: bytes) -> None:
        """Bytes are not converted, padded, or limited below the size of a commit; an empty entry is valid."""
        assert log.create(1, data) is PutOutcome.CREATED
        assert log.get(1) == data
        assert log.create(1, b"other") is PutOutcome.EXISTS

    def test_a_last_modified_is_the_places_own_time(self, log: LogBackend) -> None:
        """Aware, UTC, and by the clock that ``now`` reads."""
        assert log.last_modified(1) is None
        before = log.now()
        log.create(1, b"1")
        last_modified = log.last_modified(1)
        assert last_modified is not None
        assert last_modified.tzinfo is UTC
        assert before - SKEW <= last_modified <= log.now() + SKEW
        assert log.last_modified(1) == last_modified

    def test_last_modified_times_do_not_go_back(self, log: LogBackend) -> None:
        """Entry n+1 is written after entry n was read."""
        for version in range(1, 21):
            log.create(version, b"x")
        times = [log.last_modified(number) for number in range(1, 21)]
        assert times == sorted(time for time in times if time is not None)

    def test_all_numbers_are_listed(self, log: LogBackend) -> None:
        """In any order, none twice, and beyond one page of a listing."""
        assert list(log.versions()) == []
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda version: log.create(version, self.page_entry), range(1, self.page_versions + 1)))
        assert sorted(log.versions()) == list(range(1, self.page_versions + 1))

    def test_logs_of_one_place_do_not_see_each_other(self, location: LogUrl, log: LogBackend) -> None:
        """One name may be the prefix of another."""
        others = [location.connect().open(prefix) for prefix in ("tables/t", "tables/t1", "tables/t-1")]
        for count, other in enumerate([log, *others]):
            assert list(other.versions()) == []
            assert other.create(1, b"%d" % count) is PutOutcome.CREATED
        assert [other.get(1) for other in [log, *others]] == [b"0", b"1", b"2", b"3"]
        assert others[0].last_modified(2) is None
        others[0].advance_log_start(0, 1)  # this log does not exist
        assert sorted(location.connect().prefixes()) == ["catalog", "tables/t", "tables/t-1", "tables/t1"]

    def test_a_place_opened_anew_has_it_all(self, location: LogUrl, log: LogBackend) -> None:
        """Acknowledged data is not only in memory."""
        for version in range(1, 6):
            log.create(version, b"%d" % version)
        again = location.connect().open("catalog")
        assert [again.get(number) for number in range(1, 7)] == [b"1", b"2", b"3", b"4", b"5", None]
        assert all(again.last_modified(number) == log.last_modified(number) for number in range(1, 6))
        assert again.create(5, b"x") is PutOutcome.EXISTS

    @pytest.mark.parametrize("shows", ["whole_end", "around"])
    def test_what_is_around_an_entry_is_shown(self, log: LogBackend, shows: str) -> None:
        """1 2 3 . 5: behind 0 and 3 there is an entry beyond the next one, behind 5 there is none; 4 is missing."""
        for version in (1, 2, 3, 5):
            log.create(version, b"%d" % version)
        log.advance_log_start(0, 1)

        def look(version: int) -> Around:
            if shows == "around":
                return log.around(version)
            end = log.whole_end(version)
            assert end.log_start == log.end(version).log_start == 1
            assert end.around is not None
            return end.around

        assert [look(version).beyond for version in (1, 3, 5)] == [look(1).beyond, 5, 0]
        assert look(1).beyond in (0, 3, 5)
        assert look(3).digest in (None, digest_bytes(b"3"))
        assert look(4).digest == ""
        assert look(0).digest is None

    def test_all_entries_from_a_version_on_are_shown_or_none(self, log: LogBackend) -> None:
        """1 2 3 . 5, in order; the log start is no entry."""
        assert log.entries_from(1) in (None, [])
        for version in (5, 1, 3, 2):
            log.create(version, b"%d" % version)
        log.advance_log_start(0, 1)
        for version, shown in ((1, [1, 2, 3, 5]), (3, [3, 5]), (4, [5]), (6, [])):
            assert log.entries_from(version) in (None, shown)

    def test_an_entry_goes_in_behind_the_one_that_its_writer_knows(self, log: LogBackend) -> None:
        """Behind another one it is refused where that is seen, and then nothing is stored."""
        log.create(1, b"one")
        assert log.create(2, b"two", digest_bytes(b"one")) is PutOutcome.CREATED
        outcome = log.create(3, b"three", digest_bytes(b"other"))
        assert (outcome, log.get(3)) in ((PutOutcome.UNLINKED, None), (PutOutcome.CREATED, b"three"))

    def test_at_most_one_writer_has_the_turn(self, location: LogUrl, log: LogBackend) -> None:
        """A backend without turns gives none; one with turns gives the next one when the last one ends."""
        log.create(1, b"x")
        other = location.connect().open("catalog")
        with log.turn(0.0, 0.001) as has_turn, other.turn(0.0, 0.001) as has_too:
            assert not (has_turn and has_too)
        with other.turn(1.0, 0.001) as has_later:
            assert has_later is has_turn

    def test_the_log_start_rises_from_nothing_and_by_compare_and_set(self, location: LogUrl, log: LogBackend) -> None:
        """0 -> 3 -> 5; a raise from 0 or 3 then fails. The log start is not an entry, and stays."""
        assert log.log_start() == 0
        assert log.advance_log_start(0, 3)
        assert not log.advance_log_start(0, 4)
        assert log.log_start() == 3
        assert log.advance_log_start(3, 5)
        assert not log.advance_log_start(3, 5)
        assert not log.advance_log_start(9, 10)
        assert log.log_start() == location.connect().open("catalog").log_start() == 5
        assert list(log.versions()) == []
        assert list(log.foreign()) == []
        assert log.get(0) is None

    @pytest.mark.parametrize(("expected", "to"), [(0, 0), (3, 3), (3, 2), (-1, 1)])
    def test_the_log_start_never_falls(self, log: LogBackend, expected: int, to: int) -> None:
        """A raise by nothing is also refused."""
        log.advance_log_start(0, 3)
        with pytest.raises(UsageError, match="only rise"):
            log.advance_log_start(expected, to)
        assert log.log_start() == 3

    def test_of_racing_raises_one_wins(self, location: LogUrl, log: LogBackend) -> None:
        """Eight connections, ten rounds, the first from nothing; the log start is the winner's."""
        racers = [location.connect().open("catalog") for _ in range(self.threads)]
        for version in range(10):
            barrier = threading.Barrier(self.threads)
            log_start = log.log_start()
            assert log_start > 0 or version == 0

            def rise(racer: int, log_start: int = log_start, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return racers[racer].advance_log_start(log_start, log_start + 1 + racer)

            with ThreadPoolExecutor(self.threads) as pool:
                raised = list(pool.map(rise, range(self.threads)))
            assert sum(raised) == 1
            assert log.log_start() == log_start + 1 + raised.index(True)

    def test_each_log_has_a_log_start_of_its_own(self, location: LogUrl, log: LogBackend) -> None:
        """One name may be the prefix of another."""
        others = [location.connect().open(prefix) for prefix in ("tables/t", "tables/t1")]
        assert others[0].advance_log_start(0, 7)
        assert [log.log_start(), others[0].log_start(), others[1].log_start()] == [0, 7, 0]

    def test_entries_are_removed_and_those_above_stay(self, location: LogUrl, log: LogBackend) -> None:
        """1 2 3 4 5 -> 4 5; a repeat, or missing versions, are allowed. More than a batch of deletions."""
        for version in (1, 2, 3, 1500, 1501):
            log.create(version, b"%d" % version)
        log.advance_log_start(0, 1499)
        log.remove(range(1, 1500))
        log.remove([3, 1, 2])
        log.remove([])
        again = location.connect().open("catalog")
        for found in (log, again):
            assert sorted(found.versions()) == [1500, 1501]
            assert [found.get(version) for version in (1, 2, 3, 1500)] == [None, None, None, b"1500"]
            assert [found.last_modified(3), found.known_last_modified(3)] == [None, None]
            assert found.last_modified(1501) is not None
            assert found.log_start() == 1499

    def test_the_newest_entry_of_a_process_is_not_known_once_it_is_removed(self, log: LogBackend) -> None:
        """The entry cached from the create is removed as well."""
        log.create(1, b"one")
        log.advance_log_start(0, 1)
        log.remove([1])
        assert log.known_last_modified(1) is None
        assert log.log_start() == 1

    def test_a_log_start_known_from_a_create_is_as_new_as_the_entry(self, location: LogUrl, log: LogBackend) -> None:
        """Other writers raise it and delete a version, which a writer that slept creates again."""
        other = location.connect().open("catalog")
        for version in range(1, 21):
            assert log.create(version, b"first") is PutOutcome.CREATED
            assert log.known_log_start(version) in (None, version - 1)
            with ThreadPoolExecutor(1) as pool:
                truncated = (
                    pool.submit(other.advance_log_start, version - 1, version),
                    pool.submit(other.remove, [version]),
                )
                while log.create(version, b"second") is not PutOutcome.CREATED:
                    pass
                known = log.known_log_start(version)
                assert (log.log_start() if known is None else known) == version
                assert [step.result() for step in truncated] == [True, None]
        assert log.create(20, b"third") is PutOutcome.EXISTS
        assert log.known_log_start(21) is None

    def test_a_removed_number_can_be_created_again(self, log: LogBackend) -> None:
        """The backend does not remember versions, so a log needs a log start."""
        log.create(1, b"first")
        log.advance_log_start(0, 1)
        log.remove([1])
        assert log.create(1, b"second") is PutOutcome.CREATED

    def test_many_threads_on_many_log_objects_lose_and_double_nothing(self, location: LogUrl, tmp_path: Path) -> None:
        """Four objects race for the versions; four threads of each share the entries."""
        location.connect().check()
        logs = [location.catalog(tmp_path / "checkpoints") for _ in range(4)]
        acknowledged: dict[str, int] = {}

        def write(writer: int) -> None:
            for count in range(10):
                name = f"w{writer}-{count}"
                acknowledged[name] = commit(logs[writer % len(logs)], name)

        with ThreadPoolExecutor(16) as pool:
            for written in [pool.submit(write, writer) for writer in range(16)]:
                written.result()
        assert len(acknowledged) == 160
        assert logged(location, tmp_path) == acknowledged
        assert {log.follow() == logs[0].follow() for log in logs} == {True}


class CommitterConformance:
    """Each rule of :class:`lakebed.log.committer.Committer`, on the catalog of an instance."""

    threads = 8

    @pytest.fixture
    def open_log(self) -> Callable[[], CatalogLog]:
        """Override: opens the catalog of one fresh instance, each time as another process would, with the committer."""
        raise NotImplementedError

    def test_what_is_committed_is_in_the_log_at_its_version(self, open_log: Callable[[], CatalogLog]) -> None:
        """For the process that committed it, which no later read leaves behind, and for one that opens the log then."""
        log = open_log()
        versions = [commit(log, name) for name in ("a", "b")]
        assert versions == [1, 2]
        assert log.committed <= log.follow().version == 2
        assert open_log().follow().tables.keys() == log.follow().tables.keys() == {"a", "b"}

    def test_a_proposal_that_the_state_refuses_is_not_in_the_log(self, open_log: Callable[[], CatalogLog]) -> None:
        """Its outcome says why, and the next proposal is committed as if it had not been made."""
        log = open_log()
        commit(log, "a")
        refused = log.commit(RegisterTable("other", "a", 0))
        assert isinstance(refused, NotCommitted)
        assert refused.code is Code.TABLE_EXISTS
        assert commit(log, "b") == 2
        assert open_log().follow().tables.keys() == {"a", "b"}

    def test_of_racing_proposals_that_exclude_each_other_one_is_committed(
        self, open_log: Callable[[], CatalogLog]
    ) -> None:
        """From two processes with several threads each: one table has the name, and all others learn that."""
        logs = [open_log() for _ in range(2)]

        def propose(writer: int) -> Outcome:
            return logs[writer % 2].commit(RegisterTable(f"t{writer}", "name", 0))

        with ThreadPoolExecutor(self.threads) as pool:
            outcomes = list(pool.map(propose, range(self.threads)))
        (winner,) = (writer for writer, outcome in enumerate(outcomes) if isinstance(outcome, Committed))
        assert sum(isinstance(outcome, NotCommitted) for outcome in outcomes) == self.threads - 1
        assert open_log().follow().tables.keys() == {f"t{winner}"}

    def test_many_threads_of_two_processes_lose_and_double_nothing(self, open_log: Callable[[], CatalogLog]) -> None:
        """Each name is committed once, and no version is reported before it is in the log."""
        logs = [open_log() for _ in range(2)]

        def write(writer: int) -> list[int]:
            return [commit(logs[writer % 2], f"w{writer}-{count}") for count in range(5)]

        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(write, range(self.threads)))
        assert all(versions == sorted(versions) for versions in found)
        state = open_log().follow()
        assert len(state.tables) == 5 * self.threads
        assert max(max(versions) for versions in found) == state.version


def commit(log: CatalogLog, name: str) -> int:
    """Commit a name; return the version of its entry."""
    outcome = log.commit(RegisterTable(name, name, 0))
    assert isinstance(outcome, Committed), outcome
    return outcome.version


def logged(location: LogUrl, folder: Path) -> dict[str, int]:
    """Return every name in the entries with its version, compared with the state read by a new connection."""
    log = location.connect().open("catalog")
    found, previous = dict[str, int](), ""
    for version in sorted(log.versions()):
        assert version == 1 or previous, f"no entry {version - 1}"
        entry = decode(log.get(version) or b"", location.instance, version, previous)
        names = [load(document)["name"] for document in entry.documents]
        assert len({*found, *names}) == len(found) + len(names), "doubled"
        found |= dict.fromkeys(names, version)
        previous = entry.digest
    assert location.catalog(folder / "checkpoints").follow().tables.keys() == found.keys()
    return found
