"""S3 over real HTTP: the contract, what each spoilt answer means, and how many requests a call is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import Code, StorageError, UnsafeStoreError
from lakebed.storage import PutOutcome, Storage, check_conditional_puts, connect, keeps_replace_if
from lakebed.storage.digests import digest_bytes
from lakebed.storage.external import open_external
from lakebed.testing.conformance import StorageConformance
from tests.raising import raises


class TestS3Storage(StorageConformance):
    @pytest.fixture
    def storage(self, s3_server: Any) -> Storage:
        return connect(s3_server.new_bucket(), s3_server.storage_options)


class TestS3StorageWithACache(StorageConformance):
    @pytest.fixture
    def storage(self, s3_server: Any, tmp_path: Path) -> Storage:
        return connect(s3_server.new_bucket(), s3_server.storage_options | {"cache_dir": str(tmp_path / "cache")})


class TestS3StorageBelowAPrefix(StorageConformance):
    @pytest.fixture
    def storage(self, s3_server: Any) -> Storage:
        storage = connect(s3_server.new_bucket(), s3_server.storage_options)
        storage.create("outside", b"")
        storage.create("deep/prefix10/outside", b"")
        return connect(f"{storage.url}/deep/prefix1", s3_server.storage_options)


@pytest.fixture
def storage(s3_server: Any) -> Storage:
    storage = connect(s3_server.new_bucket(), s3_server.storage_options)
    s3_server.requests.clear()
    return storage


def test_a_create_is_one_conditional_request(s3_server: Any, storage: Storage) -> None:
    storage.create("log/1", b"1")
    storage.create("log/1", b"2")
    assert [(r.method, r.key, r.if_none_match) for r in s3_server.requests] == [("PUT", "log/1", "*")] * 2


def test_a_replace_of_a_version_is_one_conditional_request(s3_server: Any, storage: Storage) -> None:
    storage.create("log_start", b"1")
    one = storage.get_versioned("log_start")
    assert one is not None
    s3_server.requests.clear()
    storage.replace_if("log_start", one.version, b"2")
    storage.replace_if("log_start", one.version, b"3")
    assert [(r.method, r.key, r.if_match) for r in s3_server.requests] == [("PUT", "log_start", one.version.tag)] * 2


def test_requests_per_call(s3_server: Any, storage: Storage, tmp_path: Path) -> None:
    """The price list: every one of these is paid for."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    large.write_bytes(bytes(33 * 1024 * 1024))

    def requests(call: Any) -> list[str]:
        s3_server.requests.clear()
        call()
        return sorted(seen.method for seen in s3_server.requests)

    def fetch() -> None:
        with storage.fetch("small"):
            pass

    assert requests(lambda: storage.get("none")) == ["GET"]
    assert requests(lambda: storage.get_versioned("none")) == ["GET"]
    assert requests(lambda: storage.replace("pins/1", b"1")) == ["PUT"]
    assert requests(lambda: storage.send("small", small)) == ["HEAD", "PUT"]
    assert requests(lambda: storage.send("large", large)) == ["HEAD", "POST", "POST", "PUT", "PUT", "PUT"]
    assert requests(fetch) == ["GET"]
    assert requests(lambda: storage.last_modified("small")) == ["HEAD"]
    assert requests(lambda: list(storage.list(""))) == ["GET"]
    assert requests(lambda: storage.delete([f"d/{n}" for n in range(1500)])) == ["POST", "POST"]
    assert requests(storage.now) == ["HEAD", "POST", "PUT"]


CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code></Error>"


@pytest.mark.parametrize(
    "answer",
    [
        (None, b""),
        ("500 Internal Server Error", b""),
        ("503 Slow Down", b"<Error><Code>SlowDown</Code></Error>"),
        ("429 Too Many Requests", b""),
        ("409 Conflict", CONFLICT),
        ("408 Request Timeout", b""),
    ],
)
@pytest.mark.parametrize("after_effect", [False, True])
def test_an_answer_that_proves_nothing_is_unclear_and_one_request(
    s3_server: Any, storage: Storage, spoilt: Any, answer: tuple[str | None, bytes], after_effect: bool
) -> None:
    s3_server.spoil = lambda _: spoilt(*answer, after_effect)
    assert storage.create("log/1", b"mine") is PutOutcome.UNCLEAR
    assert s3_server.count("PUT", "log/1") == 1
    s3_server.spoil = None
    assert storage.create("log/1", b"mine") is (PutOutcome.EXISTS if after_effect else PutOutcome.CREATED)
    assert storage.get("log/1") == b"mine"


@pytest.mark.parametrize("answer", [(None, b""), ("500 Internal Server Error", b""), ("409 Conflict", CONFLICT)])
@pytest.mark.parametrize("after_effect", [False, True])
def test_a_replace_without_an_answer_is_unclear_and_one_request(
    s3_server: Any, storage: Storage, spoilt: Any, answer: tuple[str | None, bytes], after_effect: bool
) -> None:
    storage.create("log_start", b"1")
    one = storage.get_versioned("log_start")
    assert one is not None
    s3_server.requests.clear()
    s3_server.spoil = lambda _: spoilt(*answer, after_effect)
    assert storage.replace_if("log_start", one.version, b"2") is PutOutcome.UNCLEAR
    assert s3_server.count("PUT", "log_start") == 1
    s3_server.spoil = None
    again = PutOutcome.EXISTS if after_effect else PutOutcome.CREATED
    assert storage.replace_if("log_start", one.version, b"2") is again
    assert storage.get("log_start") == b"2"


def test_a_server_that_cannot_replace_a_version_says_so(s3_server: Any, storage: Storage, spoilt: Any) -> None:
    """Commits are safe there all the same; only the log stays whole."""
    s3_server.spoil = lambda r: spoilt("501 Not Implemented", b"<Code>NotImplemented</Code>") if r.if_match else None
    storage.create("log_start", b"1")
    one = storage.get_versioned("log_start")
    assert one is not None
    with pytest.raises(UnsafeStoreError, match="cannot be truncated"):
        storage.replace_if("log_start", one.version, b"2")
    assert not keeps_replace_if(storage)
    check_conditional_puts(storage)


def test_a_server_that_does_not_answer_in_time_is_unclear(s3_server: Any, spoilt: Any) -> None:
    import time

    storage = connect(s3_server.new_bucket(), {**s3_server.storage_options, "timeout": "300ms"})
    s3_server.spoil = lambda _: time.sleep(1)
    assert storage.create("log/1", b"mine") is PutOutcome.UNCLEAR


def test_a_server_that_is_not_there_is_unclear() -> None:
    options = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "endpoint_url": "http://127.0.0.1:9"}
    assert connect("s3://bucket", options).create("log/1", b"") is PutOutcome.UNCLEAR


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>"), "permission denied"),
        (("401 Unauthorized", b""), "not accepted"),
        (("400 Bad Request", b"<Error><Code>ExpiredToken</Code></Error>"), "expired"),
        (("400 Bad Request", b"<Error><Code>EntityTooLarge</Code></Error>"), "refused the request"),
        (("301 Moved Permanently", b""), "another region"),
        (("501 Not Implemented", b""), "refused the request"),
    ],
)
def test_a_refusal_is_an_error_that_says_what_to_mend(
    s3_server: Any, storage: Storage, spoilt: Any, answer: tuple[str, bytes], says: str
) -> None:
    s3_server.spoil = lambda _: spoilt(*answer)
    with pytest.raises(StorageError, match=says) as caught:
        storage.create("log/1", b"")
    assert storage.object_url("log/1") in str(caught.value)
    assert not caught.value.transient


def test_a_missing_bucket_is_not_an_empty_store(s3_server: Any) -> None:
    storage = connect("s3://no-such-bucket-here", s3_server.storage_options)
    for call in (lambda: storage.create("a", b""), lambda: storage.get("a"), lambda: list(storage.list(""))):
        with pytest.raises(StorageError, match="bucket does not exist"):
            call()


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    storage = connect("s3://bucket", {"metadata_endpoint": "http://127.0.0.1:9", "aws_region": "us-east-1"})
    with pytest.raises(StorageError, match="no credentials found"):
        storage.create("a", b"")


def test_credentials_may_come_from_a_profile(s3_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    profiles = tmp_path / "credentials"
    profiles.write_text("[lake]\naws_access_key_id = from-profile\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    options = {"aws_profile": "lake", "aws_region": "us-east-1", "endpoint_url": s3_server.endpoint}
    storage = connect(s3_server.new_bucket(), options)
    assert storage.create("a", b"x") is PutOutcome.CREATED


def test_reads_ride_out_a_short_storm(s3_server: Any, storage: Storage, spoilt: Any) -> None:
    """Only conditional puts are never repeated silently."""
    storage.create("a", b"x")
    left = [spoilt("503 Slow Down"), spoilt(None)]
    s3_server.spoil = lambda _: left.pop() if left else None
    assert storage.get("a") == b"x"


def test_a_failed_upload_is_aborted(s3_server: Any, storage: Storage, spoilt: Any, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(17 * 1024 * 1024))
    s3_server.spoil = lambda r: spoilt("403 Forbidden") if "partNumber=2" in r.query else None
    with pytest.raises(StorageError, match="permission denied"):
        storage.send("data/j/f", large)
    assert s3_server.count("DELETE", "data/j/f") == 1
    assert large.exists()
    s3_server.spoil = None
    assert storage.get("data/j/f") is None


def test_an_upload_cut_short_is_noticed(s3_server: Any, storage: Storage, spoilt: Any, tmp_path: Path) -> None:
    """A server that says yes and stores nothing."""
    sent = tmp_path / "sent"
    sent.write_bytes(b"x")
    s3_server.spoil = lambda r: spoilt("200 OK") if r.method == "PUT" else None
    with raises(Code.STORE_UNAVAILABLE):
        storage.send("data/j/f", sent)


def test_a_server_that_ignores_the_condition_is_found_out(s3_server: Any, storage: Storage) -> None:
    s3_server.honours_conditions = False
    with pytest.raises(UnsafeStoreError, match="both believe"):
        check_conditional_puts(storage)
    assert not keeps_replace_if(storage)
    s3_server.honours_conditions = True
    check_conditional_puts(storage)
    assert keeps_replace_if(storage)


def test_a_fetched_copy_is_gone_afterwards(storage: Storage) -> None:
    storage.create("data/j/f.parquet", b"x")
    with storage.fetch("data/j/f.parquet", digest=digest_bytes(b"x")) as path:
        assert path.name == "f.parquet"
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.parent.exists()


def test_a_bucket_that_is_gone_is_no_missing_object(s3_server: Any, tmp_path: Path) -> None:
    """A missing object may be damage, for which another remedy is named. The answer to a HEAD does not say which."""
    storage = connect("s3://there-is-none/lake", s3_server.storage_options)
    files, path = open_external("s3://there-is-none/a", storage)
    calls = {
        "read_ranges": lambda: storage.read_ranges("a", [(0, 1)]),
        "get": lambda: storage.get("a"),
        "fetch": lambda: storage.fetch("a").__enter__(),
        "list": lambda: list(storage.list("")),
        "delete": lambda: storage.delete(["a"]),
        "look": lambda: files.look(path),
        "open": lambda: files.open(path).read(1),
    }
    for name, call in calls.items():
        with pytest.raises(StorageError, match="the bucket does not exist: create it, or correct the URL") as caught:
            call()
        assert caught.value.code == "store_not_found", name
