"""Tables whose log or checkpoints another program filled with strange values.

The bytes of an entry are those of a valid one, with one value changed and the digests recomputed. A process that has
never opened the table then reads it. A value that the format does not allow is damage, and is named; an allowed value
is read.
"""

import json

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import KeyRange, Schema
from lakebed.errors import Code
from lakebed.log.log_limits import LIMITS, LogLimits
from lakebed.log.segments import STATE_CACHE
from lakebed.model.files import entry_name, table_prefix
from lakebed.model.state import columns
from tests.adversarial.tables import assert_whole
from tests.documents import rewritten
from tests.raising import raises
from tests.tables.ingest.cases import ingested, put
from tests.variants import Planted, planted
from tests.waiting import join_checkpoints

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


def rows(*keys):
    return pa.table({"k": list(keys), "v": [1] * len(keys)})


def rewrite_last(root, log, prefix, **changes):
    """Change fields of the only transaction of the latest entry, whose digest no other entry has."""
    version = log.head.version
    path = root / entry_name(prefix, version)
    data = path.read_bytes()
    document = json.loads(data.partition(b"\n")[2]) | changes
    path.write_bytes(rewritten(data, json.dumps(document, separators=(",", ":")).encode() + b"\n"))


@pytest.fixture
def table(tmp_path):
    """A table whose log has no checkpoint, so that every reader reads the entries."""
    return lakebed.create(str(tmp_path)).create_table("t", SCHEMA, settings={"history_s": 0})


@pytest.fixture
def inbox(tmp_path_factory):
    """Outside of the instance, whose own files are not valid input."""
    return tmp_path_factory.mktemp("inbox")


def poisoned(tmp_path, table, **changes):
    """Return the table as opened by another process after the latest entry was changed."""
    join_checkpoints()
    rewrite_last(tmp_path, table.log, table_prefix(table.id), **changes)
    for found in (tmp_path / table_prefix(table.id) / "checkpoints").rglob("*"):
        if found.is_file():
            found.unlink()
    return lakebed.open(str(tmp_path)).table("t")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(({"request_key": key}, "request_key") for key in (7, True, 7.5, ["a", 1])),
        *(({"base_version": base}, "base_version") for base in (True, 1.0, 1.5, None)),
        ({"files": [{"id": "f"}]}, "files"),
    ],
    ids=str,
)
def test_a_value_of_a_wrong_type_in_an_entry_is_damage_that_is_named(tmp_path, table, changes, field):
    """The damaged entry is not written over, and with the entry restored the table is valid."""
    table.write(rows("a"))
    table.write(rows("b"), commit_id="second")
    path = tmp_path / entry_name(table_prefix(table.id), 3)
    sound = path.read_bytes()
    again = poisoned(tmp_path, table, **changes)
    for call in (again.count, again.history, lambda: again.write(rows("c")), again.requests):
        with pytest.raises(lakebed.DamagedError, match=f"entry 3 .*{field}"):
            call()
    assert not (tmp_path / entry_name(table_prefix(table.id), 4)).exists()
    path.write_bytes(sound)
    fresh = lakebed.open(str(tmp_path)).table("t")
    assert fresh.write(rows("c")) == 4
    assert_whole(tmp_path, "t", fresh)


@pytest.mark.parametrize("fence", ["yes", 1, None])
def test_a_fence_that_is_no_boolean_is_damage(tmp_path, table, fence):
    table.write(rows("a"))
    table.remove(KeyRange.prefix("a"), fence=True)
    with pytest.raises(lakebed.DamagedError, match=r"entry 3 .*fence"):
        poisoned(tmp_path, table, fence=fence).state()


def as_stored(request):
    """Return a request as stored in an entry."""
    return msgspec.to_builtins(request)


def device(size):
    """Return a request for a device, as stored in an entry."""
    source = ["/dev/zero", size, "0"]
    return {"id": "device", "files": [source], "base_version": 1, "submitted": 0, "failures": 0, "rejected": 0}


def test_a_request_for_a_device_is_rejected_alone(tmp_path, table, inbox):
    put(inbox, "ab", "cd")
    table.submit(inbox)
    held = [as_stored(one) for one in table.state().open_requests.values()]
    requests = [*({**one, "submitted": 0} for one in held), device(0) | {"reason": ""}]
    fresh = poisoned(tmp_path, table, requests=requests)
    report = ingested(fresh)
    assert (report.requests, report.rows, report.waiting) == (2, 4, 0)
    (failed,) = report.failed
    assert (failed.url, failed.rejected) == ("/dev/zero", True)
    assert "not a regular file" in failed.reason
    assert_whole(tmp_path, "t", fresh)


def test_a_request_without_a_size_is_damage(tmp_path, table, inbox):
    put(inbox, "ab")
    table.submit(inbox)
    again = poisoned(tmp_path, table, requests=[device(None) | {"reason": ""}])
    with pytest.raises(lakebed.DamagedError, match=r"entry 2 .*requests"):
        again.requests()


@pytest.mark.parametrize("inline_bytes", [0, LIMITS.inline_bytes])
def test_a_checkpoint_with_nulls_is_not_believed(tmp_path, table, inline_bytes, inbox):
    """Its digests are valid. A checkpoint is derived: the log has the right state."""
    put(inbox, "ab")
    table.submit(inbox)
    state = table.state()
    ((name, request),) = state.open_requests.items()
    strange = msgspec.structs.replace(request, files=(msgspec.structs.replace(request.files[0], size_bytes=None),))
    head = replace(table.log.head, state=replace(state, open_requests=state.open_requests.updated({name: strange})))
    with planted(lambda: [Planted(columns, "_has_nulls", lambda _: False)]):
        table.log.limits = LogLimits(inline_bytes=inline_bytes)
        table.log.checkpoints.write_whole(head)
    STATE_CACHE.limit(0)
    STATE_CACHE.limit(1024 * 1024 * 1024)
    fresh = lakebed.open(str(tmp_path)).table("t")
    assert fresh.requests().column("size_bytes").to_pylist() == [request.files[0].size_bytes]
    assert ingested(fresh).rows == 2
    assert_whole(tmp_path, "t", fresh)


@pytest.mark.parametrize("url", ["nowhere://x/y.parquet", "s3://", "a\0b", "", "\u202e"])
def test_a_request_for_what_this_process_cannot_read_does_not_stop_the_others(tmp_path, table, url, inbox):
    put(inbox, "ab")
    table.submit(inbox)
    (held,) = (as_stored(one) for one in table.state().open_requests.values())
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
    join_checkpoints()
    table.log.checkpoints.write_whole(table.log.head)
    path = tmp_path / table_prefix(table.id) / "checkpoints/latest/manifest.ndjson"
    body = path.read_bytes().partition(b"\n")[2]
    body = json.dumps(json.loads(body) | {"segments": parts}).encode() + b"\n"
    path.write_bytes(rewritten(path.read_bytes(), body))
    fresh = lakebed.open(str(tmp_path)).table("t")
    with raises(Code.DOCUMENT_DAMAGED):
        fresh.log.checkpoints.read()
    # A checkpoint is derived: the log has the right state.
    assert fresh.count().rows == 1


@pytest.mark.parametrize("depth", [100, 700, 985, 1_100, 100_000])
def test_deep_json_is_damage_wherever_it_stands(tmp_path, table, depth):
    deep = "[" * depth + "]" * depth
    table.write(rows("a"))
    for field in ("features", "instance", "log_url"):
        path = tmp_path / "instance.json"
        kept = path.read_text("utf-8")
        path.write_text(json.dumps(json.loads(kept) | {field: "DEEP"}).replace('"DEEP"', deep) + "\n", "utf-8")
        with raises(Code.DOCUMENT_DAMAGED, Code.FORMAT_TOO_NEW):
            lakebed.open(str(tmp_path))
        path.write_text(kept, "utf-8")
    for field in ("base_version", "files", "references", "type"):
        again = poisoned(tmp_path, table, **{field: "DEEP"})
        path = tmp_path / entry_name(table_prefix(table.id), 2)
        kept = path.read_bytes()
        body = kept.partition(b"\n")[2].replace(b'"DEEP"', deep.encode())
        path.write_bytes(rewritten(kept, body))
        for ask in (again.count, again.history):
            with raises(Code.DOCUMENT_DAMAGED):
                ask()
        path.write_bytes(kept)
