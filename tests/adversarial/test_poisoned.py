"""Tables that an earlier version filled with values of a wrong type open, answer, and are maintained again.

Each is made as that version made it: the bytes of an entry are those of a good one, with one value changed, and the
digests reckoned anew. A process that has never seen the table then does all that a table is for.
"""

import json
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema, clock
from lakebed.log.entry import digest_of
from lakebed.model.files import entry_name, table_prefix
from lakebed.retention.run import collect_garbage
from lakebed.state.codec import encode_request
from lakebed.state.transactions import Source
from tests.adversarial.tables import assert_whole
from tests.unit.ingest.cases import ingested, put

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


def rows(*keys):
    return pa.table({"k": list(keys), "v": [1] * len(keys)})


def rewrite_last(root, log, prefix, **changes):
    """Change fields of the newest entry's one transaction; nothing follows it, so nothing names its digest."""
    version = log.head.version
    path = root / entry_name(prefix, version)
    head, _, body = path.read_bytes().partition(b"\n")
    document = json.loads(body) | changes
    body = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    header = json.loads(head) | {"digest": digest_of(body)}
    path.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + body)


@pytest.fixture
def table(tmp_path):
    """A table whose log has no checkpoint, so that every reader has to believe the entries."""
    return lakebed.create(str(tmp_path)).create_table("t", SCHEMA, settings={"gc_delay_s": 0, "history_s": 0})


def poisoned(tmp_path, table, **changes):
    """The table as another process finds it once the newest entry says something else."""
    for thread in threading.enumerate():
        if thread.name == "lakebed-checkpoint":
            thread.join()
    rewrite_last(tmp_path, table.log, table_prefix(table.id), **changes)
    for found in (tmp_path / table_prefix(table.id) / "checkpoints").rglob("*"):
        if found.is_file():
            found.unlink()
    return lakebed.open(str(tmp_path)).table("t")


@pytest.mark.parametrize(("key", "meant"), [(7, "7"), (True, "true"), (7.5, "7.5"), (["a", 1], '["a",1]')])
def test_a_request_key_that_was_no_text_is_its_json_from_now_on(tmp_path, table, key, meant):
    table.write(rows("a"), commit_id="first")
    table.write(rows("b"), commit_id="second")
    again = poisoned(tmp_path, table, request_key=key)
    assert again.write(rows("b"), commit_id=meant) == 3
    assert again.outcome(meant) == 3
    assert again.count().rows == 2
    assert again.history().column("request_key").to_pylist()[0] == meant
    assert_whole(tmp_path, "t", again)


@pytest.mark.parametrize("base", [True, 1.0, 1.5])
def test_a_base_number_that_was_no_whole_number_is_the_one_below_it(tmp_path, table, base):
    table.write(rows("a"))
    table.write(rows("b"), commit_id="second", base_version=1)
    again = poisoned(tmp_path, table, base_version=base)
    assert again.write(rows("b"), commit_id="second", base_version=1) == 3
    assert_whole(tmp_path, "t", again)


@pytest.mark.parametrize("fence", ["yes", 1])
def test_a_fence_that_was_no_boolean_stands(tmp_path, table, fence):
    table.write(rows("a"))
    table.remove(KeyRange.prefix("a"), fence=True)
    again = poisoned(tmp_path, table, fence=fence)
    assert [one.version for one in again.state().fences] == [3]
    assert_whole(tmp_path, "t", again)


def test_a_request_for_a_device_is_rejected_alone(tmp_path, table):
    """It is on record without a size, in an entry and in a checkpoint; every ingest of the table ended on it."""
    put(tmp_path / "inbox", "ab", "cd")
    table.submit(tmp_path / "inbox")
    source = ["/dev/zero", None, "0"]
    request = {"id": "device", "files": [source], "base_version": 1, "submitted": 0, "failures": 0, "rejected": 0}
    held = [encode_request(one) for one in table.state().open_requests.values()]
    requests = [*({**one, "submitted": 0} for one in held), request | {"reason": ""}]
    again = poisoned(tmp_path, table, requests=requests)
    # As the earlier version's checkpoint has it.
    state = again.state()
    device = replace(state.open_requests["device"], files=(Source("/dev/zero", None, "0"),))
    head = replace(again.log.head, state=replace(state, open_requests=state.open_requests.updated({"device": device})))
    again.log.checkpoints.write_whole(head)
    fresh = lakebed.open(str(tmp_path)).table("t")
    assert fresh.requests().column("size_bytes").to_pylist().count(0) == 1
    report = ingested(fresh)
    assert (report.requests, report.rows, report.waiting) == (2, 4, 0)
    (failed,) = report.failed
    assert (failed.url, failed.rejected) == ("/dev/zero", True)
    assert "no regular file" in failed.reason
    assert_whole(tmp_path, "t", fresh)


def test_a_key_that_was_no_text_does_not_stop_a_collection_that_forgets_it(tmp_path, table):
    table.write(rows("a"), commit_id="first")
    again = poisoned(tmp_path, table, request_key=7)
    again.set(requests_s=0, log_s=0)
    again.remove(KeyRange())
    clock.sleep(0.01)
    assert collect_garbage(again).files == 1
    assert_whole(tmp_path, "t", again)


@pytest.mark.parametrize("url", ["nowhere://x/y.parquet", "s3://", "a\0b", "", "\u202e"])
def test_a_request_for_what_this_process_cannot_read_does_not_stop_the_others(tmp_path, table, url):
    put(tmp_path / "inbox", "ab")
    table.submit(tmp_path / "inbox")
    (held,) = (encode_request(one) for one in table.state().open_requests.values())
    odd = held | {"id": "odd", "files": [[url, 100, "0"]], "submitted": 0}
    again = poisoned(tmp_path, table, requests=[odd, held | {"submitted": 0}])
    report = ingested(again)
    assert (report.requests, report.rows) == (1, 2)
    assert len(report.errors) + len(report.failed) == 1
    again.state()
    if again.log.head.state.open_requests:
        again.withdraw("odd")
    assert_whole(tmp_path, "t", again)


@pytest.mark.parametrize(
    "parts",
    [
        {"files": [["../../../x", "d", 1, 1, "a", "b"]]},
        {"files": [["0" * 32, "d", "1", 1, "a", "b"]]},
        {"files": [["0" * 32, "d", 1, None, "a", "b"]]},
        {"references": [["0" * 32, "d", 1, 1, "a", "b"]]},
        {"files": [7]},
        {"others": []},
        {"files": 7},
        [],
    ],
    ids=str,
)
def test_a_checkpoint_of_strange_parts_is_not_believed(tmp_path, table, parts):
    table.write(rows("a"))
    for thread in threading.enumerate():
        if thread.name == "lakebed-checkpoint":
            thread.join()
    table.log.checkpoints.write_whole(table.log.head)
    path = tmp_path / table_prefix(table.id) / "checkpoints/latest/manifest.ndjson"
    head, _, body = path.read_bytes().partition(b"\n")
    body = json.dumps(json.loads(body) | {"segments": parts}).encode() + b"\n"
    path.write_bytes(json.dumps(json.loads(head) | {"digest": digest_of(body)}).encode() + b"\n" + body)
    fresh = lakebed.open(str(tmp_path)).table("t")
    with pytest.raises(lakebed.DamagedError):
        fresh.log.checkpoints.read()
    # It is a short cut: the log tells what it should be.
    assert fresh.count().rows == 1


@pytest.mark.parametrize("depth", [100, 700, 985, 1_100, 100_000])
def test_deep_json_is_damage_wherever_it_stands(tmp_path, table, depth):
    deep = "[" * depth + "]" * depth
    table.write(rows("a"))
    for field in ("features", "instance", "log_url"):
        path = tmp_path / "instance.json"
        kept = path.read_text("utf-8")
        path.write_text(json.dumps(json.loads(kept) | {field: "DEEP"}).replace('"DEEP"', deep) + "\n", "utf-8")
        with pytest.raises((lakebed.DamagedError, lakebed.UnsupportedFormatError)):
            lakebed.open(str(tmp_path))
        path.write_text(kept, "utf-8")
    for field in ("base_version", "files", "references", "type"):
        again = poisoned(tmp_path, table, **{field: "DEEP"})
        path = tmp_path / entry_name(table_prefix(table.id), 2)
        kept = path.read_bytes()
        body = kept.partition(b"\n")[2].replace(b'"DEEP"', deep.encode())
        head = json.loads(kept.partition(b"\n")[0]) | {"digest": digest_of(body)}
        path.write_bytes(json.dumps(head).encode() + b"\n" + body)
        for ask in (again.count, again.history):
            with pytest.raises(lakebed.DamagedError):
                ask()
        path.write_bytes(kept)
