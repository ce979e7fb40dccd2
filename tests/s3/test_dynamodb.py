"""Logs in DynamoDB keep the contract of all places, from one process and from several; an instance works on one."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.errors import DamagedError, StorageError, UsageError
from lakebed.log.backends.dynamodb import PART_BYTES, NoAnswerError, check_answer, connect_dynamodb
from lakebed.storage import contract
from lakebed.storage.contract import PutOutcome
from lakebed.testing.log_processes import LogProcesses
from lakebed.testing.logs import LogConformance, LogUrl
from lakebed.upkeep.retention.orphans import delete_dropped
from tests.clocks import set_clock, skip_sleeps

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


def url_of(server):
    return f"dynamodb://test-{clock.random_token()[:12]}?region=us-east-1&endpoint_url={server.endpoint}"


def credentials(server):
    return {name: server.storage_options[name] for name in ("aws_access_key_id", "aws_secret_access_key")}


class Table:
    @pytest.fixture
    def location(self, s3_server):
        location = LogUrl(url_of(s3_server), credentials(s3_server))
        location.connect().check()
        return location


class TestDynamoDb(Table, LogConformance):
    # A page of DynamoDB has at most 1 MB.
    page_versions = 12
    page_entry = bytes(150_000)


class TestDynamoDbAcrossProcesses(Table, LogProcesses):
    pass


@pytest.fixture
def log(s3_server):
    logs = connect_dynamodb(url_of(s3_server), "0192aaaa-1", credentials(s3_server))
    logs.check()
    return logs.open("catalog")


def test_a_put_whose_answer_is_lost_is_unclear_and_can_be_settled(s3_server, spoilt, log):
    answers = iter([spoilt(None, after_effect=True)])
    s3_server.spoil = lambda request: next(answers, None) if request.method == "POST" else None
    assert log.create(1, b"one") is PutOutcome.UNCLEAR
    assert log.create(1, b"one") is PutOutcome.EXISTS
    assert log.get(1) == b"one"


def test_an_answer_lost_once_does_not_make_a_table_unsafe(s3_server, spoilt, monkeypatch):
    """The first put of the probe takes effect, and its answer is lost."""
    set_clock(monkeypatch, sleep=lambda _: None)
    logs = connect_dynamodb(url_of(s3_server), "0192aaaa-1", credentials(s3_server))
    logs.check()
    answers = iter([spoilt(None, after_effect=True)])
    s3_server.spoil = lambda request: next(answers, None) if request.call == "PutItem" else None
    logs.check()
    assert next(answers, None) is None


def test_an_entry_of_more_parts_than_any_that_is_put_is_not_read(log, monkeypatch):
    log.create(1, bytes(2 * PART_BYTES))
    monkeypatch.setattr(contract, "OBJECT_BYTES_MAX", PART_BYTES)
    with pytest.raises(DamagedError, match=r"entry 1 of .* has \d+ bytes, and Lakebed puts at most"):
        log.get(1)
    with pytest.raises(StorageError, match="and at most 358400 can be read back"):
        log.create(2, bytes(2 * PART_BYTES))


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Service Unavailable"])
def test_reads_are_repeated_while_the_service_fails(s3_server, spoilt, log, status):
    log.create(1, b"one")
    answers = iter([spoilt(status), spoilt(status)])
    s3_server.spoil = lambda request: next(answers, None)
    assert log.get(1) == b"one"


def test_a_large_entry_that_lost_its_race_leaves_the_winner_whole(log):
    size = 9 * PART_BYTES + 5
    assert log.create(1, b"a" * size) is PutOutcome.CREATED
    assert log.create(1, b"b" * size) is PutOutcome.EXISTS
    assert log.get(1) == b"a" * size
    log.advance_log_start(0, 1)
    log.remove([1])
    assert log.get(1) is None


def test_an_instance_keeps_its_log_in_dynamodb_and_its_data_in_s3(s3_server):
    url, log_url = s3_server.new_bucket() + "/lake", url_of(s3_server)
    lake = lakebed.create(url, log_url=log_url, storage_options=s3_server.storage_options)
    table = lake.create_table("t", SCHEMA)
    version = table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}), commit_id="once")
    assert table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}), commit_id="once") == version
    again = lakebed.open(url, storage_options=s3_server.storage_options).table("t")
    assert again.get("b").to_pydict() == {"k": ["b"], "v": [2]}
    assert again.history().num_rows == 2
    assert again.verify(files=True).sound
    assert delete_dropped(lake).logs == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dynamodb://", "3 to 255"),
        ("dynamodb://t/x", "3 to 255"),
        ("dynamodb://key:secret@table", "must not contain credentials"),
        ("dynamodb://table?endpoint_url=http://key:secret@host", "must not contain credentials"),
        ("dynamodb://table?color=red", "region= and endpoint_url= only"),
        ("dynamodb://table?region=a&region=b", "once each"),
    ],
)
def test_a_url_that_means_no_table_is_refused(url, message):
    with pytest.raises(UsageError, match=message) as caught:
        connect_dynamodb(url, "0192aaaa-1")
    assert "secret" not in str(caught.value)


def test_a_service_that_is_not_there_is_named(monkeypatch):
    skip_sleeps(monkeypatch)
    options = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
    logs = connect_dynamodb("dynamodb://table?region=r&endpoint_url=http://127.0.0.1:9", "0192aaaa-1", options)
    with pytest.raises(StorageError, match="dynamodb://table") as caught:
        logs.check()
    assert caught.value.transient


FOREIGN = {
    "empty": b"",
    "cut": b'{"Item": {"data": {"B": "AAAA',
    "page": b"<html>captive portal</html>",
    "null": b"null",
    "list": b"[]",
    "message": b'{"message": "welcome"}',
    "other operation": b'{"TableNames": []}',
    "another item": b'{"Item": {"log": {"S": "x"}, "version": {"N": "1"}, "data": {"B": "AAAA"}}}',
    "item without facts": b'{"Item": {}}',
}
"""Answers with status 200 that DynamoDB does not give to a request of a log."""


@pytest.fixture
def no_pauses(monkeypatch):
    set_clock(monkeypatch, sleep=lambda _: None)


CALLS = {
    "get": lambda log: log.get(1),
    "last_modified": lambda log: log.last_modified(1),
    "log_start": lambda log: log.log_start(),
    "versions": lambda log: list(log.versions()),
    "end": lambda log: log.end(1),
}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("call", "answer"),
    [
        pytest.param(call, answer, marks=[pytest.mark.slow] * (call != "get" and answer != "cut"))
        for call in CALLS
        for answer in FOREIGN
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(s3_server, spoilt, log, call, answer):
    """It would read as the end of the log: acknowledged rows would be missing, without an error."""
    log.create(1, b"one")
    expected = CALLS[call](log)
    answers = iter([spoilt("200 OK", body=FOREIGN[answer])] * 2)
    s3_server.spoil = lambda request: next(answers, None) if request.method == "POST" else None
    assert CALLS[call](log) == expected
    assert next(answers, None) is None
    s3_server.spoil = lambda request: spoilt("200 OK", body=FOREIGN[answer]) if request.method == "POST" else None
    with pytest.raises(StorageError, match="no answer of DynamoDB") as raised:
        CALLS[call](log)
    assert raised.value.transient


@pytest.mark.parametrize("answer", FOREIGN)
def test_a_put_with_an_answer_that_is_none_is_unclear(s3_server, spoilt, log, answer):
    """It would count as written, and the rows would never have been there."""
    answers = iter([spoilt("200 OK", body=FOREIGN[answer])])
    s3_server.spoil = lambda request: next(answers, None) if request.method == "POST" else None
    assert log.create(1, b"one") is PutOutcome.UNCLEAR
    assert log.get(1) is None
    assert log.create(1, b"one") is PutOutcome.CREATED


def test_an_answer_that_was_changed_or_cut_on_the_way_is_none():
    """DynamoDB sends the length and a checksum of each answer."""
    body, model = b'{"Item": {}}', SimpleNamespace(name="GetItem", output_shape=SimpleNamespace(members={"Item": 1}))
    crc = str(zlib.crc32(body))
    for headers, what in [({"content-length": "500"}, "12 of 500"), ({"x-amz-crc32": "1"}, "checksum"), ({}, None)]:
        answer = {"status_code": 200, "headers": {"x-amz-crc32": crc} | headers, "body": body}
        if what is None:
            check_answer(model, answer)
        else:
            with pytest.raises(NoAnswerError, match=what):
                check_answer(model, answer)
