"""Signatures are those that botocore makes, whatever the key and the query, and nothing else is one."""

from __future__ import annotations

import datetime as dt
import time
from unittest import mock
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from lakebed.server.gateway.s3_errors import S3Error
from lakebed.server.gateway.signatures import EXPIRES_MAX_S, SKEW, SignedRequest, signer_of

KEY, SECRET = "an-id", "a-secret/of+many=signs"
NOW = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text("a/+ %&=~@:é-", max_size=20)


def secret_of(key_id):
    if key_id != KEY:
        raise S3Error("InvalidAccessKeyId", "none")
    return SECRET


def signed(method="GET", key="t/a.parquet", query=(), headers=(), *, expires=None, at=NOW, payload=None):
    """A request as botocore signs it and an HTTP client sends it."""
    url = f"https://gateway.example:9000/lakebed/{quote(key, safe='/~')}"
    request = AWSRequest(method, url, headers=dict(headers), params=dict(query))
    if payload is not None:
        request.context["payload_signing_enabled"] = False
    auth = S3SigV4Auth if expires is None else S3SigV4QueryAuth
    options = {} if expires is None else {"expires": expires}
    with mock.patch("botocore.auth.get_current_datetime", return_value=at.replace(tzinfo=None), create=True):
        auth(Credentials(KEY, SECRET), "s3", "us-east-1", **options).add_auth(request)
    sent = request.prepare()
    parts = urlsplit(sent.url)
    given = [
        (name.lower(), value if isinstance(value, str) else value.decode()) for name, value in sent.headers.items()
    ]
    if "host" not in dict(given):
        given.append(("host", "gateway.example:9000"))
    return SignedRequest(method, parts.path, parts.query, given)


def changed(request, **values):
    """The request with other parts."""
    parts = {name: getattr(request, name) for name in ("method", "path", "query", "headers")}
    return SignedRequest(**{**parts, **values})


def with_header(request, name, value):
    return changed(request, headers=[*((n, v) for n, v in request.headers if n != name), (name, value)])


def refusal(request, now=NOW):
    with pytest.raises(S3Error) as refused:
        signer_of(request, secret_of, now)
    return refused.value.code


@given(key=TEXTS.map(lambda text: f"t/{text}"), query=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=4))
def test_what_botocore_signs_in_headers_is_accepted(key, query):
    request = signed(key=key, query=query)
    assert signer_of(request, secret_of, NOW) == KEY
    assert request.decoded_path == f"/lakebed/{key}"
    assert request.by_name == query


@given(key=TEXTS.map(lambda text: f"t/{text}"), expires=st.integers(1, EXPIRES_MAX_S))
def test_what_botocore_presigns_is_accepted_until_it_expires(key, expires):
    request = signed(key=key, expires=expires)
    assert signer_of(request, secret_of, NOW) == KEY
    assert signer_of(request, secret_of, NOW + dt.timedelta(seconds=expires)) == KEY
    assert refusal(request, NOW + dt.timedelta(seconds=expires + 1)) == "AccessDenied"


@given(st.data())
def test_a_change_of_anything_signed_is_refused(data):
    request = signed(key="t/a b.parquet", query={"prefix": "x y", "empty": ""}, headers={"x-amz-meta": "  a   b "})
    assert signer_of(request, secret_of, NOW) == KEY
    other = data.draw(
        st.sampled_from(
            [
                changed(request, method="HEAD"),
                changed(request, path=request.path.replace("a", "b")),
                changed(request, path=request.path + "%2F.."),
                changed(request, query=request.query + "&more="),
                changed(request, query=request.query.replace("empty=", "empty=1")),
                with_header(request, "host", "other.example"),
                with_header(request, "x-amz-meta", "c"),
                with_header(request, "x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
                with_header(request, "authorization", dict(request.headers)["authorization"][:-1] + "x"),
            ]
        )
    )
    assert refusal(other) in ("SignatureDoesNotMatch", "AuthorizationHeaderMalformed")


def test_the_clock_of_the_client_may_differ_by_fifteen_minutes():
    request = signed()
    for way in (1, -1):
        assert signer_of(request, secret_of, NOW + way * SKEW) == KEY
        assert refusal(request, NOW + way * (SKEW + dt.timedelta(seconds=1))) == "RequestTimeTooSkewed"


def test_a_presigned_request_is_not_valid_long_before_its_time():
    assert refusal(signed(expires=60), NOW - SKEW - dt.timedelta(seconds=1)) == "AccessDenied"


@pytest.mark.parametrize("expires", ["0", "-1", "604801", "9" * 30, "x", "1.5", "²"])
def test_a_presigned_request_is_for_a_week_at_most(expires):
    request = signed(expires=60)
    query = request.query.replace("X-Amz-Expires=60", f"X-Amz-Expires={quote(expires)}")
    assert refusal(changed(request, query=query)) == "AuthorizationQueryParametersError"


@pytest.mark.parametrize("missing", ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-SignedHeaders"])
def test_a_presigned_request_without_a_parameter_is_refused(missing):
    request = signed(expires=60)
    query = "&".join(one for one in request.query.split("&") if not one.startswith(missing))
    assert refusal(changed(request, query=query)) == "AuthorizationQueryParametersError"


def authorized(text):
    return lambda request: with_header(request, "authorization", text)


SIGNED = "AWS4-HMAC-SHA256 Credential={}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=" + "0" * 64
REFUSED = {
    "unsigned": (lambda r: changed(r, headers=[("host", "x")]), "AccessDenied"),
    "two headers host": (lambda r: changed(r, headers=[*r.headers, ("host", "x")]), "InvalidRequest"),
    "two headers range": (lambda r: changed(r, headers=[*r.headers, ("range", "a"), ("range", "b")]), "InvalidRequest"),
    "both ways": (lambda r: changed(r, query="X-Amz-Signature=1"), "InvalidArgument"),
    "a session": (lambda r: with_header(r, "x-amz-security-token", "x"), "InvalidToken"),
    "version 2": (authorized("AWS id:signature"), "InvalidRequest"),
    "version 2 in the query": (
        lambda r: changed(r, query="AWSAccessKeyId=x&Signature=y", headers=[("host", "x")]),
        "InvalidRequest",
    ),
    "no signature": (authorized("AWS4-HMAC-SHA256 Credential=x"), "AuthorizationHeaderMalformed"),
    "no scope": (authorized(SIGNED.format("x")), "AuthorizationHeaderMalformed"),
    "another service": (authorized(SIGNED.format("x/20260131/r/ec2/aws4_request")), "AuthorizationHeaderMalformed"),
    "another day": (authorized(SIGNED.format("x/20260130/r/s3/aws4_request")), "AccessDenied"),
    "another key": (authorized(SIGNED.format("x/20260131/r/s3/aws4_request")), "InvalidAccessKeyId"),
    "no time": (lambda r: with_header(r, "x-amz-date", "yesterday"), "AccessDenied"),
    "a date that no calendar has": (
        lambda r: changed(
            r,
            headers=[
                *(one for one in r.headers if one[0] != "x-amz-date"),
                ("date", "Fri, 31 Dec 9999 23:59:59 -2300"),
            ],
        ),
        "AccessDenied",
    ),
    "no digest": (
        lambda r: changed(r, headers=[one for one in r.headers if one[0] != "x-amz-content-sha256"]),
        "InvalidRequest",
    ),
    "a digest of a body": (lambda r: with_header(r, "x-amz-content-sha256", "0" * 64), "XAmzContentSHA256Mismatch"),
    "an unsigned header": (lambda r: with_header(r, "x-amz-more", "x"), "AccessDenied"),
    "a header signed twice": (
        authorized(SIGNED.format("x/20260131/r/s3/aws4_request").replace("host;", "host;host;")),
        "InvalidRequest",
    ),
    "a parameter twice": (lambda r: changed(r, query="prefix=a&prefix=b"), "InvalidArgument"),
    "many parameters": (lambda r: changed(r, query="&".join(f"p{n}=" for n in range(101))), "InvalidURI"),
    "no UTF-8": (lambda r: changed(r, path="/lakebed/%ff"), "InvalidURI"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_signature_is_refused_of(name):
    change, code = REFUSED[name]
    assert refusal(change(signed())) == code


def test_the_host_must_be_signed():
    request = signed()
    authorization = dict(request.headers)["authorization"].replace("host;", "")
    assert refusal(with_header(request, "authorization", authorization)) == "AccessDenied"


@pytest.mark.parametrize("payload", ["UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"])
def test_a_digest_that_is_of_no_bytes_is_accepted(payload):
    with mock.patch.object(S3SigV4Auth, "payload", return_value=payload):
        request = signed()
    assert dict(request.headers)["x-amz-content-sha256"] == payload
    assert signer_of(request, secret_of, NOW) == KEY


def test_clients_that_leave_signs_of_a_path_as_they_are_sign_them_encoded():
    request = signed(key="t@12/a=b.parquet")
    assert "%40" in request.path
    assert signer_of(changed(request, path="/lakebed/t@12/a=b.parquet"), secret_of, NOW) == KEY


def test_a_head_full_of_headers_is_refused_at_once():
    """Each is looked at once, whatever is signed: the work is in the loop that answers all requests."""
    request = signed()
    names = ";".join(f"a{n}" for n in range(5_000))
    authorization = SIGNED.format(f"{KEY}/20260131/r/s3/aws4_request").replace("host;", f"{names};host;x-amz-1;")
    many = with_header(request, "authorization", authorization)
    many = changed(many, headers=[*many.headers, *[("x-amz-1", "")] * 3_000])
    began = time.process_time()
    assert refusal(many) == "SignatureDoesNotMatch"
    assert time.process_time() - began < 0.3
