"""The object gateway to an instance, answering over a real socket in a thread of the test."""

from __future__ import annotations

import http.client
import io
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from lakebed import clock
from lakebed.server.gateway.bucket import STALENESS_S
from lakebed.server.gateway.gateway import make_gateway
from lakebed.server.monitoring.monitor import Monitor
from lakebed.server.security import access_keys
from lakebed.server.security.access_keys import AccessKeys, Share
from lakebed.server.security.stored import AccessList
from lakebed.server.service.service import Service
from lakebed.server.web.waiting import RequestLimits
from tests.processes.web.serving import running

BUCKET = "lakebed"


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs, and the access keys that it knows."""

    url: str
    instance: Any
    keys: AccessKeys

    def key(self, role: str = "read", tables: list[str] | None = None, share: Share | None = None) -> dict[str, str]:
        """A new access key, as boto3 takes it, which the gateway accepts at once."""
        created, secret = access_keys.create_access_key(self.instance.storage, "ann", [role], tables, share=share)
        self.reread()
        return {"aws_access_key_id": created.id, "aws_secret_access_key": secret}

    def reread(self) -> None:
        """Have the gateway read its access keys and roles again."""
        self.keys._refreshed._known = None
        self.keys._access._refreshed._known = None

    def client(self, key: dict[str, str] | None = None, **options: Any) -> Any:
        """A client of boto3."""
        config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **options)
        given = self.key() if key is None else key
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", config=config, **given)


@contextmanager
def opened(instance: Any, *, cache_bytes: int = 1 << 30, audit: Any = None) -> Iterator[Gateway]:
    """A gateway to the instance."""
    service = Service(instance, maintain=False)
    access = AccessList(instance.storage)
    keys = AccessKeys(instance.storage, access)
    app = make_gateway(service, keys, RequestLimits(), Monitor(service), audit, cache_bytes=cache_bytes)
    try:
        with running(app) as url:
            yield Gateway(url, instance, keys)
    finally:
        keys.close()
        access.close()


def keys_of(client: Any, prefix: str = "", **options: Any) -> list[str]:
    """All keys with the prefix, by as many pages as it takes."""
    return [one["Key"] for one in listed(client, prefix, **options)]


def listed(client: Any, prefix: str = "", **options: Any) -> list[dict[str, Any]]:
    """All objects with the prefix, by as many pages as it takes."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix, **options)
    return [one for page in pages for one in page.get("Contents", ())]


def rows_of(client: Any, prefix: str) -> pa.Table:
    """The rows of all objects with the prefix, in order."""
    tables = [pq.read_table(io.BytesIO(body_of(client, key))) for key in keys_of(client, prefix)]
    rows = pa.concat_tables(tables)
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


def body_of(client: Any, key: str, **options: Any) -> bytes:
    """The bytes of an object."""
    body: bytes = client.get_object(Bucket=BUCKET, Key=key, **options)["Body"].read()
    return body


def refusal_of(call: Any, **options: Any) -> tuple[str, int]:
    """The code and the status with which a request is refused."""
    with pytest.raises(ClientError) as refused:
        call(Bucket=BUCKET, **options)
    answer = refused.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def wait_for_state() -> None:
    """Let the time pass for which the gateway trusts the states that it read."""
    clock.sleep(STALENESS_S)


def raw(
    gateway: Gateway, method: str, path: str, key: Any = None, headers: Any = (), *, sign: bool = True, body: Any = None
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of a request that is sent as it is written here."""
    host = urlsplit(gateway.url).netloc
    sent = {"host": host, **dict(headers)}
    if sign:
        given = gateway.key() if key is None else key
        request = AWSRequest(method, f"{gateway.url}{path}", headers=dict(headers))
        S3SigV4Auth(Credentials(*given.values()), "s3", "us-east-1").add_auth(request)
        sent |= {name.lower(): str(value) for name, value in request.headers.items()}
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def code_of(body: bytes) -> str | None:
    """The code of the document of an error."""
    return ET.fromstring(body).findtext("Code")
