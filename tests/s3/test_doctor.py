"""`lakebed doctor` of buckets that are not as they should be: each fault is a finding that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import lakebed
from lakebed import clock
from lakebed.cli import main
from tests.clocks import set_clock
from tests.s3.conftest import S3Request, S3Server, Spoilt

Findings = dict[str, dict[str, str]]
Doctor = Callable[..., Findings]


@pytest.fixture
def doctor(
    s3_server: S3Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Doctor:
    """What it found of the store, by check. A storage option that is None is left out."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)

    def run(url: str, **options: str | None) -> Findings:
        given = {name: value for name, value in {**s3_server.storage_options, **options}.items() if value is not None}
        words = [word for name, value in given.items() for word in ("--option", f"{name}={value}")]
        code = main(["--instance", url, *words, "--json", "doctor"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        store = checks[[check["check"] for check in checks].index("url") :]
        assert (code == 0) == all(check["status"] != "failed" for check in store)
        return {check["check"]: check for check in store}

    return run


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """A bucket with an instance."""
    url = s3_server.new_bucket()
    lakebed.create(url, storage_options=s3_server.storage_options)
    return url


def answer(status: str, code: str) -> Spoilt:
    return Spoilt(status, f"<Error><Code>{code}</Code><Message>Refused</Message></Error>".encode())


def test_a_sound_bucket_has_no_fault_and_needs_no_region(bucket: str, doctor: Doctor) -> None:
    assert {check["status"] for check in doctor(bucket, aws_region=None).values()} == {"ok"}


def test_a_store_that_ignores_conditions_is_unsafe(s3_server: S3Server, bucket: str, doctor: Doctor) -> None:
    s3_server.honours_conditions = False
    found = doctor(bucket)
    assert found["permissions"]["status"] == "ok"
    assert found["create if absent"]["code"] == "create_not_exclusive"
    assert "Use a store that honours If-None-Match" in found["create if absent"]["found"]


@pytest.mark.parametrize("refused", [("501 NOT IMPLEMENTED", "NotImplemented"), ("400 BAD REQUEST", "InvalidArgument")])
def test_a_store_that_refuses_conditions_is_unsafe(
    s3_server: S3Server, bucket: str, doctor: Doctor, refused: tuple[str, str]
) -> None:
    s3_server.spoil = lambda request: answer(*refused) if request.if_none_match else None
    found = doctor(bucket)
    assert found["permissions"]["status"] == "ok"
    assert found["create if absent"]["code"] == "create_not_exclusive"
    assert "it refuses create-if-absent" in found["create if absent"]["found"]
    assert "Use a store that honours If-None-Match" in found["create if absent"]["found"]


def test_a_store_that_refuses_to_replace_by_version_keeps_its_log(
    s3_server: S3Server, bucket: str, doctor: Doctor
) -> None:
    s3_server.spoil = lambda request: answer("501 NOT IMPLEMENTED", "NotImplemented") if request.if_match else None
    found = doctor(bucket)
    assert found["create if absent"]["status"] == "ok"
    assert found["replace if unchanged"]["status"] == "warning"
    assert "use a store that honours If-Match" in found["replace if unchanged"]["remedy"]


def is_list(request: S3Request) -> bool:
    return "list-type" in request.query


def is_write(request: S3Request) -> bool:
    return request.method in ("PUT", "POST", "DELETE")


def is_delete(request: S3Request) -> bool:
    return request.method == "DELETE" or "delete" in request.query


@pytest.mark.parametrize(("forbidden", "permission"), [(is_list, "list"), (is_write, "write"), (is_delete, "delete")])
def test_a_missing_permission_is_named(
    s3_server: S3Server, bucket: str, doctor: Doctor, forbidden: Callable[[S3Request], bool], permission: str
) -> None:
    s3_server.spoil = lambda request: answer("403 FORBIDDEN", "AccessDenied") if forbidden(request) else None
    fault = doctor(bucket)[f"permission to {permission}"]
    assert fault["code"] == "store_permission"
    assert "allow these credentials to get, put, delete and list below the root" in fault["found"]


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        (("403 FORBIDDEN", "InvalidAccessKeyId"), "the credentials were not accepted: check them"),
        (("403 FORBIDDEN", "SignatureDoesNotMatch"), "the credentials were not accepted: check them"),
        (("403 FORBIDDEN", "RequestTimeTooSkewed"), "synchronise it by NTP"),
        (("400 BAD REQUEST", "ExpiredToken"), "the credentials have expired: renew them"),
        (("301 MOVED PERMANENTLY", "PermanentRedirect"), "the bucket is in another region: set it in storage options"),
    ],
)
def test_a_store_that_refuses_every_request_says_what_to_correct(
    s3_server: S3Server, bucket: str, doctor: Doctor, refused: tuple[str, str], remedy: str
) -> None:
    s3_server.spoil = lambda _: answer(*refused)
    found = doctor(bucket)
    assert remedy in found["permission to list"]["found"]
    assert remedy in found["instance"]["found"]


def test_a_clock_that_differs_from_the_stores_is_a_warning(
    bucket: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now
    set_clock(monkeypatch, now=lambda: now() + timedelta(minutes=2))
    found = doctor(bucket)["clock"]
    assert found["status"] == "warning"
    assert found["remedy"] == "synchronise this machine's clock by NTP"
    assert "ahead of the store" in found["found"]


def test_a_bucket_that_is_not_there_is_named(doctor: Doctor) -> None:
    fault = doctor("s3://no-such-bucket")["permission to list"]
    assert fault["code"] == "store_not_found"
    assert "the bucket does not exist: create it, or correct the URL" in fault["found"]


def test_an_endpoint_where_nothing_listens_is_to_be_checked(bucket: str, doctor: Doctor) -> None:
    fault = doctor(bucket, endpoint_url="http://127.0.0.1:1")["permission to list"]
    assert fault["code"] == "store_unavailable"
    assert "check its endpoint and the network" in fault["found"]


MISTAKES = {
    ("403 Forbidden", "InvalidAccessKeyId"): "credentials",
    ("403 Forbidden", "SignatureDoesNotMatch"): "credentials",
    ("403 Forbidden", "AccessDenied"): "permission",
    ("403 Forbidden", "RequestTimeTooSkewed"): "clock",
    ("400 Bad Request", "AuthorizationHeaderMalformed"): "region",
    ("404 Not Found", "NoSuchBucket"): "bucket",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[1])
@pytest.mark.parametrize("command", ["table list", "get t 1", "init"])
def test_a_mistake_on_s3_is_named_at_once_and_not_tried_again(
    s3_server: S3Server, bucket: str, capsys: pytest.CaptureFixture[str], command: str, mistake: tuple[str, str]
) -> None:
    """Retries wait, up to a minute in all. What has to be corrected is not tried again: the error comes in seconds."""
    s3_server.spoil = lambda _: answer(*mistake)
    s3_server.requests.clear()
    words = [word for name, value in s3_server.storage_options.items() for word in ("--option", f"{name}={value}")]
    assert main(["--instance", bucket, *words, *command.split()]) == 5
    assert MISTAKES[mistake] in capsys.readouterr().err
    assert len(s3_server.requests) <= 4
