"""What is said of a request that a store refused, or that did not reach it."""

from __future__ import annotations

import pytest

from lakebed.errors import Code, StorageError
from lakebed.storage import connect
from lakebed.storage.client_errors import explain

REFUSED = """Generic S3 error: GET http://s3.example/b/x?X-Amz-Signature=hush in 5ms - Server returned non-2xx status code: 404 Not Found: \
<?xml version="1.0" encoding="utf-8"?>
<Error><Code>NoSuchBucket</Code>
  <BucketName>b</BucketName></Error>

Debug source:
Generic"""  # noqa: E501 - as the client writes it


def test_the_answer_of_a_store_is_given_in_one_line() -> None:
    error = explain(OSError(REFUSED), "list", "s3://b/x")
    assert error.code == Code.STORE_NOT_FOUND.value
    assert "\n" not in error.message
    assert "hush" not in error.message
    assert error.message.endswith("<Error><Code>NoSuchBucket</Code> <BucketName>b</BucketName></Error>)")


def test_a_store_that_cannot_be_reached_has_its_endpoint_checked() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1", "access_key_id": "x", "secret_access_key": "y"}
    store = connect("s3://bucket/lake", options)
    with pytest.raises(StorageError, match="the store cannot be reached: check its endpoint") as failure:
        store.get("x")
    assert failure.value.transient
