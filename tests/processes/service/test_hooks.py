"""Hooks: what a webhook and a command receive, in which order, and what becomes of receivers that fail."""

import http.server
import json
import shlex
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
from msgspec import structs

import lakebed
from lakebed import clock
from lakebed.errors import Code, UsageError
from lakebed.model.files import delivered_name, hook_name
from lakebed.model.table_summary import Record
from lakebed.read.changes.events import RANGES_MAX, read_events
from lakebed.read.inspect.hooks import (
    Delivered,
    add_hook,
    checked_hook,
    read_delivered,
    read_hooks,
    remove_hook,
    write_delivered,
)
from lakebed.server.service import hook_delivery
from lakebed.server.service.hook_delivery import Hooks, signature_of
from lakebed.server.service.plan import Retry, ServiceLimits
from lakebed.server.service.service import Service
from lakebed.server.service.subscriptions import DeliveryLimits
from lakebed.testing.faults import CountingStorage
from lakebed.upkeep.retention.run import gc
from tests.raising import raises
from tests.tables.retention.cases import let_time_pass
from tests.waiting import WAIT_S, until


def hooks_of(lake, report, *, commands=False, command_s=WAIT_S):
    """The hooks of a service whose waits are short."""
    limits = DeliveryLimits(list_s=0.01, store_s=0.01, command_s=command_s)
    return Hooks(lake, commands=commands, report=report, limits=limits, retry=Retry(0.01, 300.0))


@pytest.fixture
def table(lake):
    schema = lakebed.Schema({"k": "int64", "s": "string"}, values={"v": "string"})
    return lake.create_table("t", schema)


def rows(*keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "s": ["a"] * len(keys), "v": ["x"] * len(keys)})


class Receiver:
    """A web server that keeps what it was sent; ``answers`` has the statuses to come, then it answers 200."""

    def __init__(self):
        self.requests, self.answers, self.url = [], [], ""
        self.came = threading.Condition()

    @property
    def bodies(self):
        return [json.loads(body) for _, body in self.requests]

    @property
    def versions(self):
        return [event["version"] for body in self.bodies for event in body["events"]]

    def wait_for(self, *versions):
        """Wait until the versions of the accepted requests are these."""
        with self.came:
            assert self.came.wait_for(lambda: self.versions[-len(versions) :] == list(versions), WAIT_S), self.versions


@contextmanager
def receiving():
    receiver = Receiver()

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with receiver.came:
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    receiver.requests.append((dict(self.headers), body))
                receiver.came.notify_all()
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            """Not among the output of tests."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver():
    with receiving() as found:
        yield found


@contextmanager
def delivering(lake, *, commands=False, command_s=WAIT_S):
    """The delivery of a service; also what it said of failures."""
    said = []
    delivery = hooks_of(lake, said.append, commands=commands, command_s=command_s)
    ended = threading.Event()

    def look():
        while not ended.wait(0.01):
            delivery.subscriptions.look({})

    with ThreadPoolExecutor(1) as pool:
        looked = pool.submit(look)
        try:
            yield delivery, said
        finally:
            ended.set()
            looked.result()
            delivery.subscriptions.stop()


def hook(table, version=None, **target):
    made = checked_hook(table.id, **target)
    add_hook(table.storage, made, table.state().version if version is None else version)
    return made


def delivered(table, made):
    return read_delivered(table.storage, made.id)[0]


def test_a_webhook_learns_of_each_commit_in_version_order(lake, table, receiver):
    """Table, version, kind, rows and key ranges."""
    made = hook(table, url=receiver.url)
    with delivering(lake):
        table.write(rows(1, 2, 3), commit_id="monday")
        table.remove(lakebed.KeyRange(2, 3))
        receiver.wait_for(2, 3)
    body = receiver.bodies[0]
    assert (body["hook"], body["instance"], body["table"], body["table_id"]) == (made.id, lake.id, "t", table.id)
    (written,), (removed,) = [event["changes"] for body in receiver.bodies for event in body["events"]]
    assert written == {
        "kind": "add_files",
        "changes_rows": True,
        "rows_added": 3,
        "rows_removed": 0,
        "files_added": 1,
        "bytes_added": written["bytes_added"],
        "request_key": "monday",
        "detail": "1 reference in 1 partition",
        "ranges": [{"min": [1, "a"], "max": [3, "a"], "max_inclusive": True}],
    }
    assert (removed["kind"], removed["rows_removed"]) == ("remove_range", None)
    assert removed["ranges"] == [{"min": [2], "max": [3], "max_inclusive": False}]
    assert delivered(table, made).version == 3


def test_a_hook_learns_of_what_was_committed_while_no_service_ran(lake, table, receiver):
    """And of nothing before it was added; a restart goes on where the last one stopped."""
    table.write(rows(1))
    made = hook(table, url=receiver.url)
    table.write(rows(2))
    with delivering(lake):
        receiver.wait_for(3)
    table.write(rows(3))
    table.write(rows(4))
    with delivering(lake):
        receiver.wait_for(3, 4, 5)
    assert receiver.versions == [3, 4, 5]
    assert delivered(table, made).version == 5


def test_a_run_of_all_maintenance_delivers_what_is_pending(lake, table, receiver):
    """It ends when everything is delivered, and with it the process."""
    made = hook(table, url=receiver.url)
    for key in range(3):
        table.write(rows(key))
    Service(lake, launcher="in-process[1]").run_once()
    assert receiver.versions[:3] == [2, 3, 4]
    assert delivered(table, made).version == table.version


def test_a_service_delivers_soon_though_the_table_was_idle_for_long(lake, table, receiver):
    """Other idle tables are looked at less and less often, and a hook that has everything costs no request."""
    hook(table, url=receiver.url)
    limits = ServiceLimits(follow_s=0.05, follow_max_s=WAIT_S * 10)
    with Service(lake, maintain=False, limits=limits) as service:
        (watch,) = service._follower.watches.values()
        watch.changed_s -= 1e6
        until(lambda: service.hooks.status() and service.hooks.status()[0].delivered == 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hook_delivery, "read_events", no_call)
            looks = watch.looks
            until(lambda: watch.looks > looks + 3)
        lakebed.open(lake.url).table("t").write(rows(1))
        receiver.wait_for(2)


@pytest.mark.parametrize("step", ["_round", "_look_at_subscribers"])
def test_a_step_of_a_round_that_fails_is_shown_and_stops_no_other(lake, table, step):
    done = threading.Event()

    class Broken(Service):
        def _round(self):
            self._do("_round")

        def _look_at_subscribers(self):
            self._do("_look_at_subscribers")

        def _do(self, asked):
            if asked == step:
                raise ValueError("broken")
            done.set()

    with Broken(lake, maintain=False, limits=ServiceLimits(follow_s=0.01)) as service:
        until(lambda: service.status().error is not None)
        done.clear()
        assert done.wait(WAIT_S)
        assert "broken" in service.status().error.message


def no_call(*_):
    raise AssertionError("it has everything")


def test_a_hook_may_begin_at_an_older_version(lake, table, receiver):
    table.write(rows(1))
    hook(table, 0, url=receiver.url)
    with delivering(lake):
        receiver.wait_for(1, 2)


def test_a_receiver_that_fails_is_tried_again_and_reported_and_misses_nothing(lake, table, receiver):
    receiver.answers = [500, 404, 302]
    made = hook(table, url=receiver.url)
    table.write(rows(1))
    with delivering(lake) as (delivery, said):
        receiver.wait_for(2)
        until(lambda: not delivery.status()[0].failures)
    assert receiver.versions == [2]
    assert len(said) == 2
    assert "answers 500" in said[0]
    assert "takes events again, after 3 failures" in said[1]
    assert delivered(table, made).error is None


def test_a_receiver_that_is_down_blocks_neither_commits_nor_other_hooks(lake, table, receiver):
    """Its failure can be read by other processes."""
    down = hook(table, url="http://127.0.0.1:9/")
    hook(table, url=receiver.url)
    with delivering(lake) as (delivery, _):
        table.write(rows(1))
        table.write(rows(2))
        receiver.wait_for(2, 3)
        until(lambda: delivered(table, down).failures)
        status = next(one for one in delivery.status() if one.id == down.id)
    assert (status.delivered, status.error) == (1, "http://127.0.0.1:9/ does not answer: NewConnectionError")
    found = delivered(table, down)
    assert (found.version, found.error) == (1, status.error)
    assert found.since is not None


def test_a_service_that_ends_takes_no_receiver_for_up_again(lake, table):
    """A try that begins while it ends sends nothing."""
    down = hook(table, url="http://127.0.0.1:9/")
    table.write(rows(1))
    with delivering(lake) as (delivery, said):
        until(lambda: delivered(table, down).failures)
        (state,) = delivery.subscriptions._states.values()
        until(lambda: not state.busy)
        state.record = Record(next_s=clock.monotonic_s() + 600)
        delivery.subscriptions._stopping.set()
        delivery.subscriptions._deliver(state)
    assert delivered(table, down).error is not None
    assert not [sentence for sentence in said if "takes events again" in sentence]


def test_many_versions_come_in_few_requests_and_in_order(lake, table, receiver):
    hook(table, url=receiver.url)
    for number in range(130):
        table.set(log_s=86_400 + number)
    with delivering(lake):
        receiver.wait_for(*range(2, 132))
    assert [len(body["events"]) for body in receiver.bodies] == [100, 30]


def test_a_hook_learns_only_of_its_kinds(lake, table, receiver):
    made = hook(table, url=receiver.url, kinds=("add_files",))
    with delivering(lake):
        table.set(runs_max=7)
        table.write(rows(1))
        table.set(runs_max=8)
        receiver.wait_for(3)
        until(lambda: delivered(table, made).version >= 4)
    assert receiver.versions == [3]


def test_a_request_is_signed_with_the_secret(lake, table, receiver):
    hook(table, url=receiver.url, secret="sesame")
    table.write(rows(1))
    with delivering(lake):
        receiver.wait_for(2)
    ((headers, body),) = receiver.requests
    assert headers["Lakebed-Signature"] == signature_of(body, "sesame")
    assert headers["Lakebed-Signature"].startswith("sha256=")
    assert b"sesame" not in body


def test_a_command_reads_the_events_from_its_standard_input(lake, table, tmp_path):
    program = (
        "import os, sys; open(sys.argv[1], 'a').write(os.environ['LAKEBED_HOOK'] + ' ' + sys.stdin.read() + '\\n')"
    )
    made = hook(table, command=shlex.join([sys.executable, "-c", program, str(tmp_path / "out")]))
    with delivering(lake, commands=True):
        table.write(rows(1))
        until(lambda: delivered(table, made).version >= 2)
    name, _, body = (tmp_path / "out").read_text().partition(" ")
    assert name == made.id
    assert [event["version"] for event in json.loads(body)["events"]] == [2]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("no-such-program-at-all", "cannot run"),
        (shlex.join([sys.executable, "-c", "raise SystemExit('why not')"]), "ended with 1: why not"),
        (shlex.join([sys.executable, "-c", "import time; time.sleep(600)"]), "took longer"),
    ],
)
def test_a_command_that_fails_is_reported(lake, table, command, error):
    hook(table, command=command)
    table.write(rows(1))
    with delivering(lake, commands=True, command_s=0.3 if error == "took longer" else WAIT_S) as (_, said):
        until(lambda: said)
    assert error in said[0]


def test_no_command_is_run_unless_the_service_allows_it(lake, table, tmp_path):
    """Anyone who can write to the storage can add a hook."""
    hook(table, command=f"touch {tmp_path / 'ran'}")
    table.write(rows(1))
    with delivering(lake) as (_, said):
        until(lambda: said)
    assert "--hook-commands" in said[0]
    assert not (tmp_path / "ran").exists()


def test_entries_that_are_gone_are_reported_as_missed(lake, table, receiver):
    """The log was truncated while the receiver was down."""
    hook(table, url=receiver.url)
    table.write(rows(1))
    table.write(rows(2))
    start = table.log.retain_checkpoint()
    table.write(rows(3))
    table.log.truncate(start)
    with delivering(lake):
        receiver.wait_for(3, 4)
    first, second = [event for body in receiver.bodies for event in body["events"]]
    assert (first["missed_from"], first["version"], first["changes"]) == (2, 3, [])
    assert second["missed_from"] is None


def test_a_hook_that_is_removed_gets_nothing_more(lake, table, receiver):
    made = hook(table, url=receiver.url)
    with delivering(lake) as (delivery, _):
        table.write(rows(1))
        receiver.wait_for(2)
        remove_hook(lake.storage, made.id)
        until(lambda: not delivery.status())
        table.write(rows(2))
    assert receiver.versions == [2]
    assert list(lake.storage.list("hooks")) == []


def test_a_hook_removed_while_its_progress_is_stored_leaves_no_object(lake, table):
    """A local file is replaced under a lock, and deleted without it."""
    made = hook(table, command="true")
    delivered, version = read_delivered(lake.storage, made.id)

    class RemovedMeanwhile(CountingStorage):
        def replace_if(self, name, version, data):
            outcome = super().replace_if(name, version, data)
            kept = self.inner.get(name)
            remove_hook(self.inner, made.id)
            self.inner.create(name, kept)
            return outcome

    write_delivered(RemovedMeanwhile(lake.storage), made.id, delivered, version)
    assert list(lake.storage.list("hooks")) == []


def test_a_hook_of_a_dropped_table_gets_the_last_events_and_is_removed(lake, table, receiver):
    hook(table, url=receiver.url)
    receiver.answers = [500]
    with delivering(lake) as (delivery, _):
        table.write(rows(1))
        lake.drop_table("t")
        receiver.wait_for(2, 3)
        until(lambda: not delivery.status())
    assert [change["kind"] for body in receiver.bodies for event in body["events"] for change in event["changes"]] == [
        "add_files",
        "drop_table",
    ]
    assert receiver.bodies[-1]["table_id"] == table.id
    assert list(lake.storage.list("hooks")) == []


def test_what_is_left_of_a_hook_that_was_added_in_part_is_collected(lake, table):
    """The process was killed between its two objects. One that is being added looks the same, but is not as old."""
    whole = hook(table, command="true")
    lake.storage.delete([hook_name(hook(table, command="true").id)])
    gc(lake)
    assert len(list(lake.storage.list("hooks"))) == 3
    lake.set(orphan_age_s=0)
    let_time_pass(lake.storage)
    gc(lake)
    names = [one.name for one in lake.storage.list("hooks")]
    assert sorted(names) == sorted([hook_name(whole.id), delivered_name(whole.id)])


def test_a_service_that_finds_another_at_work_leaves_the_hook_to_it(lake, table, receiver):
    """It has delivered, and loses the race for the record of it."""
    made = hook(table, url=receiver.url)
    table.write(rows(1))
    delivery = hooks_of(lake, print)
    delivery.subscriptions.look({})
    receiver.wait_for(2)
    until(lambda: delivered(table, made).version >= 2)
    _, version = read_delivered(table.storage, made.id)
    (state,) = delivery.subscriptions._states.values()
    until(lambda: not state.busy)
    assert write_delivered(table.storage, made.id, Delivered(version=2), version)
    table.write(rows(2))
    delivery.subscriptions.look({})
    receiver.wait_for(2, 3)
    until(lambda: not state.busy)
    assert state.record.next_s > clock.monotonic_s() + 20
    delivery.subscriptions.stop()


def test_a_transaction_of_very_many_ranges_has_one_that_covers_them(lake):
    table = lake.create_table("many", lakebed.Schema({"k": "int64"}))
    going = [lakebed.KeyRange(10 * number, 10 * number + 1) for number in range(RANGES_MAX + 1)]
    table.write(pa.table({"k": pa.array(range(10 * RANGES_MAX + 1), pa.int64())}))
    table.remove(*going[1:])
    table.remove(*going)
    some, all_of_them = [event.changes[0].ranges for event, _ in read_events(table.log, 2, 4)]
    assert len(some) == RANGES_MAX
    assert all_of_them == [{"min": [0], "max": [10 * RANGES_MAX + 1], "max_inclusive": False}]


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"url": "http://a", "command": "true"},
        {"url": "ftp://a"},
        {"url": "http://"},
        {"url": "http://u:p@a"},
        {"command": ""},
        {"command": "'"},
        {"command": "true", "secret": "x"},
        {"url": "http://a", "secret": " "},
    ],
)
def test_a_hook_that_cannot_be_meant_is_refused(target):
    with pytest.raises(UsageError) as error:
        checked_hook("table-0001", **target)
    assert "u:p" not in str(error.value)


@pytest.mark.parametrize("name", ["no-such-hook", "../instance", ""])
def test_a_hook_that_is_not_there_cannot_be_removed(lake, name):
    with raises(Code.HOOK_NOT_FOUND):
        remove_hook(lake.storage, name)
    assert list(read_hooks(lake.storage, {})) == []


# -- a delivery state that is lost or changed -------------------------------------------------------------------


def lose(storage, name):
    storage.delete([name])


def flip(storage, name):
    storage.replace(name, storage.get(name).replace(b'"version":2', b'"version":6'))


def halve(storage, name):
    storage.replace(name, storage.get(name)[:20])


@pytest.mark.parametrize("damage", [lose, flip, halve])
def test_a_hook_whose_delivery_state_is_damaged_begins_again_where_it_was_added(lake, table, receiver, damage):
    """An event may be delivered twice, and none is left out; what happened is reported."""
    table.write(rows(1))
    made = hook(table, version=1, url=receiver.url)
    with delivering(lake):
        receiver.wait_for(2)
        until(lambda: delivered(table, made).version == 2)
    damage(lake.storage, delivered_name(made.id))
    table.write(rows(2))
    with delivering(lake) as (_, said):
        receiver.wait_for(2, 2, 3)
        until(lambda: delivered(table, made).version == 3)
    assert "the events after version 1 are delivered again" in said[0]


def test_a_hook_that_is_ahead_of_its_table_says_that_the_log_went_back(lake, table, receiver):
    """It would deliver nothing until the table has as many versions again, and then not the right ones."""
    made = hook(table, version=44, url=receiver.url)
    with delivering(lake) as (delivery, said):
        until(lambda: said)
        until(lambda: delivered(table, made).failures)
        (status,) = delivery.status()
    assert "up to version 44, and table t is at version 1: its log went back" in status.error
    assert receiver.requests == []


def test_a_hook_says_if_the_entry_that_it_delivered_last_was_replaced(lake, table, receiver):
    """The log went back, and has grown beyond the hook's version since."""
    made = hook(table, version=1, url=receiver.url)
    table.write(rows(1))
    with delivering(lake):
        receiver.wait_for(2)
        until(lambda: delivered(table, made).version == 2)
    found, version = read_delivered(lake.storage, made.id)
    assert found.entry_digest == table.log.head.digest
    write_delivered(lake.storage, made.id, structs.replace(found, entry_digest="0" * 32), version)
    table.write(rows(2))
    with delivering(lake) as (_, said):
        until(lambda: said)
    assert "the log of" in said[0]
    assert "went back: entry 2" in said[0]
    assert receiver.versions == [2]


def test_a_damaged_hook_is_shown_and_affects_no_other(lake, table, receiver):
    damaged = hook(table, url=receiver.url)
    name = hook_name(damaged.id)
    lake.storage.replace(name, lake.storage.get(name).replace(b"hook", b"hock"))
    hook(table, url=receiver.url)
    table.write(rows(1))
    with delivering(lake) as (delivery, said):
        receiver.wait_for(2)
        assert f"`lakebed hook drop {damaged.id}`" in delivery.status()[-1].error
    assert damaged.id in said[0]
    remove_hook(lake.storage, damaged.id)
