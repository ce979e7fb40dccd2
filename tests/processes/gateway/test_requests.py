"""Requests for objects as S3 answers them: ranges, conditions, and what is refused."""

from __future__ import annotations

import datetime as dt
import http.client
import io
import json
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import clock
from lakebed.server.gateway import gateway as application
from lakebed.server.gateway.preconditions import Representation, asked_range, is_unmodified
from lakebed.server.gateway.s3_errors import S3Error
from lakebed.server.security import access_keys, stored
from lakebed.server.security.access_keys import AccessKeys, Share
from lakebed.server.security.audit import AuditLog
from lakebed.server.security.roles import Permission, Role
from tests.processes.gateway.opened import BUCKET, body_of, code_of, keys_of, opened, raw, refusal_of


@pytest.fixture
def found(flights, gateway):
    """A client, a key, and the bytes of its object."""
    client = gateway.client()
    (key, *_) = keys_of(client, "flights/")
    return client, key, body_of(client, key)


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_parts_of_an_object(found):
    client, key, body = found
    size = len(body)
    wanted = {
        "bytes=0-0": (0, 1), "bytes=5-9": (5, 10), f"bytes={size - 1}-": (size - 1, size), "bytes=-4": (size - 4, size),
        f"bytes=0-{size * 9}": (0, size), f"bytes=-{size * 9}": (0, size), "bytes=1-1": (1, 2),
    }  # fmt: skip
    for text, (begin, end) in wanted.items():
        part = client.get_object(Bucket=BUCKET, Key=key, Range=text)
        assert part["Body"].read() == body[begin:end], text
        assert part["ContentRange"] == f"bytes {begin}-{end - 1}/{size}"
        assert part["ResponseMetadata"]["HTTPStatusCode"] == 206
        head = client.head_object(Bucket=BUCKET, Key=key, Range=text)
        assert head["ContentLength"] == end - begin


def test_a_range_beyond_the_end_has_no_answer(found, gateway):
    client, key, body = found
    for text in (f"bytes={len(body)}-", f"bytes={10**17}-", "bytes=-0"):
        assert refusal_of(client.get_object, Key=key, Range=text) == ("InvalidRange", 416)
    status, headers, _ = raw(gateway, "GET", f"/{BUCKET}/{key}", headers={"range": f"bytes={len(body)}-"})
    assert (status, headers["content-range"]) == (416, f"bytes */{len(body)}")


def test_what_is_no_single_range_gives_the_whole(found):
    client, key, body = found
    for text in ("bytes=0-1,4-5", "bytes=5-4", "rows=0-1", "bytes=a-b", "bytes=", "bytes=--1", "bytes=" + "9" * 60):
        answer = client.get_object(Bucket=BUCKET, Key=key, Range=text)
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert answer["Body"].read() == body


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 20))
def test_a_range_is_that_of_python(begin, last, size):
    representation = Representation(size, "t", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    def asked(text):
        try:
            return asked_range({"range": text}.get, representation)
        except S3Error:
            return (0, 0)

    content = bytes(range(size))
    if begin <= last:
        assert content[slice(*asked(f"bytes={begin}-{last}"))] == content[begin : last + 1]
    assert content[slice(*asked(f"bytes=-{last}"))] == (content[-last:] if last else b"")
    assert content[slice(*asked(f"bytes={begin}-"))] == content[begin:]


def test_a_large_object_comes_in_parts(lake, gateway):
    table = lake.create_table(
        "large", lakebed.Schema({"k": "int64"}, {}, {"v": "binary"}), settings={"page_rows": 1000}
    )
    chance = clock.chance(1)
    table.write(pa.table({"k": range(9000), "v": [chance.randbytes(1000) for _ in range(9000)]}))
    client = gateway.client()
    (key,) = keys_of(client, "large/")
    (file,) = (lake.storage.folder / "tables" / table.id / "data").rglob("*.parquet")
    whole = file.read_bytes()
    assert len(whole) > 8 * application.NEAR_BYTES
    assert body_of(client, key) == whole
    begin, end = application.NEAR_BYTES - 7, 5 * application.NEAR_BYTES + 3
    assert body_of(client, key, Range=f"bytes={begin}-{end - 1}") == whole[begin:end]


def test_a_client_that_leaves_ends_the_read(lake, gateway, monkeypatch):
    test_a_large_object_comes_in_parts(lake, gateway)
    client = gateway.client()
    (key,) = keys_of(client, "large/")
    body = client.get_object(Bucket=BUCKET, Key=key)["Body"]
    body.read(1000)
    body.close()
    assert len(body_of(client, key)) > 8 * application.NEAR_BYTES


# -- conditions --------------------------------------------------------------------------------------------------------


def test_conditions(found):
    client, key, body = found
    head = client.head_object(Bucket=BUCKET, Key=key)
    tag, time = head["ETag"], head["LastModified"]
    before, after = time - dt.timedelta(days=1), time + dt.timedelta(days=1)
    for options in (
        {"IfMatch": tag}, {"IfMatch": "*"}, {"IfMatch": f'"x", {tag}'}, {"IfNoneMatch": '"x"'},
        {"IfModifiedSince": before}, {"IfUnmodifiedSince": time}, {"IfMatch": tag, "IfUnmodifiedSince": before},
        {"IfNoneMatch": '"x"', "IfModifiedSince": after},
    ):  # fmt: skip
        assert body_of(client, key, **options) == body, options
    for options in ({"IfMatch": '"x"'}, {"IfUnmodifiedSince": before}, {"IfMatch": '"x"', "IfNoneMatch": tag}):
        assert refusal_of(client.get_object, Key=key, **options) == ("PreconditionFailed", 412)
    for options in ({"IfNoneMatch": tag}, {"IfNoneMatch": "*"}, {"IfModifiedSince": time}, {"IfModifiedSince": after}):
        assert refusal_of(client.get_object, Key=key, **options) == ("304", 304)
        assert refusal_of(client.head_object, Key=key, **options) == ("304", 304)


def test_dates_that_are_none_are_no_conditions():
    representation = Representation(1, "t", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    for text in ("yesterday", "", "Thu, 99 Jan 2026 00:00:00 GMT"):
        assert not is_unmodified({"if-modified-since": text, "if-unmodified-since": text}.get, representation)


def test_a_range_of_another_object_is_not_sent(found, gateway):
    client, key, _ = found
    tag = client.head_object(Bucket=BUCKET, Key=key)["ETag"]
    for condition, status in ((tag, 206), ('"x"', 200)):
        headers = {"range": "bytes=0-1", "if-range": condition}
        assert raw(gateway, "GET", f"/{BUCKET}/{key}", headers=headers)[0] == status


# -- what is refused -------------------------------------------------------------------------------------------------


def test_nothing_is_written(found):
    client, key, body = found
    options = {"Key": key, "Bucket": BUCKET}
    for call, more in (
        (client.put_object, {"Body": b"x"}), (client.delete_object, {}), (client.put_object, {"Body": b""}),
        (client.create_multipart_upload, {}), (client.copy_object, {"CopySource": f"{BUCKET}/{key}"}),
    ):  # fmt: skip
        with pytest.raises(ClientError) as refused:
            call(**options, **more)
        assert refused.value.response["Error"]["Code"] == "MethodNotAllowed"
    with pytest.raises(ClientError, match="MethodNotAllowed"):
        client.create_bucket(Bucket="x")
    assert body_of(client, key) == body


@pytest.mark.parametrize(
    "key",
    [
        "flights", "flights/", "flights/x.parquet", "flights/v4-x/../y.parquet", "../instance.json", "instance.json",
        "flights/../../instance.json", "tables/x/log/1.ndjson", "/flights/v4-part-00000000.parquet",
        "flights//v4-part-00000000.parquet", "flights/v4-part-00000000.parquet/", "flights/v999-part-00000000.parquet",
        "flights/v0-part-00000000.parquet", "none/v4-part-00000000.parquet", "flights@none/v4-part-00000000.parquet",
        "flights@4@4/v4-part-00000000.parquet", "flights/v4-part-00000000.parquet\0", "flights/v4-é.parquet",
        "flights/v4-part-99999999.parquet", "x" * 3000, ".", "..", "access/keys/x.json",
    ],
)  # fmt: skip
def test_what_no_listing_has_is_no_key(flights, gateway, key):
    client = gateway.client()
    assert refusal_of(client.get_object, Key=key)[1] in (403, 404)
    assert refusal_of(client.head_object, Key=key)[1] in (403, 404)


def test_an_encoded_slash_is_no_slash(found, gateway):
    _, key, _ = found
    for path in (f"/{BUCKET}/{quote(key, safe='')}", f"/{BUCKET}%2F{key}"):
        status, _, body = raw(gateway, "GET", path)
        assert (status, code_of(body)) == (403, "SignatureDoesNotMatch")


def test_paths_with_dots_are_not_resolved(found, gateway):
    _, key, _ = found
    for path in (f"/x/../{BUCKET}/{key}", f"/{BUCKET}/./{key}", f"//{BUCKET}/{key}", f"/{BUCKET}/x/../{key}"):
        status, _, _ = raw(gateway, "GET", path)
        assert status in (403, 404), path


@pytest.mark.parametrize("query", ["versionId=1", "acl", "partNumber=1", "response-content-type=x", "tagging"])
def test_parameters_that_would_change_the_answer_are_refused(found, gateway, query):
    _, key, _ = found
    status, _, body = raw(gateway, "GET", f"/{BUCKET}/{key}?{query}")
    assert (status, code_of(body)) == (501, "NotImplemented")


def test_errors_of_head_have_no_body(found, gateway):
    status, headers, body = raw(gateway, "HEAD", f"/{BUCKET}/none")
    assert (status, body) == (404, b"")
    assert int(headers["content-length"]) > 0


def test_unsigned_requests_are_refused_whatever_they_ask(found, gateway):
    _, key, _ = found
    for method, path in (("GET", "/"), ("GET", f"/{BUCKET}/{key}"), ("PUT", f"/{BUCKET}/x"), ("GET", "/health/live")):
        status, _, body = raw(gateway, method, path, sign=False)
        assert (status, code_of(body)) == (403, "AccessDenied")


def test_huge_headers_close_the_connection(found, gateway):
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        raw(gateway, "GET", "/", headers={"x-amz-meta-x": "x" * 200_000})


def test_a_wrong_secret_and_an_unknown_key(flights, gateway):
    key = gateway.key()
    wrong = gateway.client({**key, "aws_secret_access_key": "x"})
    assert refusal_of(wrong.list_objects_v2) == ("SignatureDoesNotMatch", 403)
    unknown = gateway.client({**key, "aws_access_key_id": clock.new_id()})
    assert refusal_of(unknown.list_objects_v2) == ("InvalidAccessKeyId", 403)


def test_a_dropped_and_an_expired_key(flights, lake, gateway):
    key = gateway.key()
    client = gateway.client(key)
    assert keys_of(client)
    access_keys.drop_access_key(lake.storage, key["aws_access_key_id"])
    gateway.reread()
    assert refusal_of(client.list_objects_v2) == ("InvalidAccessKeyId", 403)
    past = clock.now() - dt.timedelta(seconds=1)
    old, secret = access_keys.create_access_key(lake.storage, "ann", ["read"], expires=past)
    gateway.reread()
    expired = gateway.client({"aws_access_key_id": old.id, "aws_secret_access_key": secret})
    assert refusal_of(expired.list_objects_v2) == ("AccessDenied", 403)


def test_a_key_whose_role_was_dropped_is_refused(flights, lake, gateway):
    stored.create_role(lake.storage, Role("part", Permission.READ, None, "at > 0"))
    client = gateway.client(gateway.key("part"))
    assert keys_of(client)
    stored.drop_role(lake.storage, "part")
    gateway.reread()
    assert refusal_of(client.list_objects_v2) == ("AccessDenied", 403)


def test_a_presigned_url_reads_one_object(found, gateway):
    _, key, body = found
    client = gateway.client(signature_version="s3v4")
    url = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key}, ExpiresIn=7 * 24 * 3600)
    for _ in range(2):
        with urlopen(url, timeout=60) as answer:
            assert answer.read() == body
    parts = urlsplit(url)
    status, _, refused = raw(gateway, "GET", f"{parts.path}x?{parts.query}", sign=False)
    assert (status, code_of(refused)) == (403, "SignatureDoesNotMatch")


# -- access keys as they are stored ------------------------------------------------------------------------------------


def test_no_secret_is_stored(lake):
    key, secret = access_keys.create_access_key(lake.storage, "ann", ["read"])
    for path in lake.storage.folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    assert access_keys.access_keys_of(lake.storage) == [key]


def test_a_damaged_access_key_is_refused_and_others_go_on(flights, lake, gateway):
    damaged, sound = gateway.key(), gateway.key()
    path = lake.storage.folder / "access" / "keys" / f"{damaged['aws_access_key_id']}.json"
    path.write_bytes(path.read_bytes().replace(b"read", b"admi"))
    # A gateway that has read it before keeps it: objects of keys are never changed.
    with opened(lake) as another:
        assert refusal_of(another.client(damaged).list_objects_v2) == ("InvalidAccessKeyId", 403)
        assert keys_of(another.client(sound))


def test_a_share_survives_its_document(lake):
    share = Share("a-table-id", 3, ((b"\x00\xff", None), (b"a", b"b")), "--prefix a")
    key, _ = access_keys.create_access_key(lake.storage, "ann", ["read"], ["t"], share=share)
    assert access_keys.access_keys_of(lake.storage) == [key]
    access = stored.AccessList(lake.storage)
    keys = AccessKeys(lake.storage, access)
    found = keys.find(key.id)
    keys.close()
    access.close()
    assert found is not None
    assert found[0] == key


def test_a_share_is_of_one_table(lake):
    for tables in (None, ["a", "b"]):
        with pytest.raises(lakebed.UsageError, match="one table"):
            access_keys.create_access_key(lake.storage, "ann", ["read"], tables, share=Share("x", 1, None, ""))


def test_requests_are_audited_without_signatures(flights, lake, tmp_path):
    log = tmp_path / "audit.log"
    with opened(lake, audit=AuditLog(str(log))) as audited:
        client = audited.client(signature_version="s3v4")
        (key, *_) = keys_of(client, "flights/")
        url = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key})
        with urlopen(url, timeout=60) as answer:
            size = len(answer.read())
        raw(audited, "GET", "/", sign=False)
    lines = [json.loads(line) for line in io.StringIO(log.read_text("utf-8"))]
    got = next(line for line in lines if line["path"].startswith(f"/{BUCKET}/{key}"))
    assert (got["principal"], got["protocol"], got["table"], got["bytes"]) == ("ann", "s3", "flights", size)
    assert "X-Amz-Signature=***" in got["path"]
    assert lines[-1]["principal"] is None
    assert lines[-1]["status"] == 403
