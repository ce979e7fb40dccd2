"""A service with a published table, on local disk or on S3, and the examples of docs/open.md for it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakebed
from lakebed.server.security import stored
from lakebed.server.security.roles import Permission, Role
from lakebed.upkeep.publish.run import publish
from tests import pages
from tests.s3.conftest import served as served_store
from tests.service.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

EXAMPLE_URL, EXAMPLE_TOKEN = "http://localhost:8017", "lakebed_…"
"""What stands in the examples for the service and the token."""

VARIABLES = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_region": "AWS_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL",
}


@dataclass(frozen=True)
class IcebergLake:
    """A service of an instance with the published table ``flights``; a token for it, and one that sees a part of it."""

    url: str
    table: lakebed.Table
    token: str
    partial: str

    def examples(self, heading: str) -> list[str]:
        """The code below a heading of the page, for this service."""
        text = pages.text_of("docs/open.md")
        first = text[: text.index(f"\n### {heading}\n")].count("\n") + 2
        last = first + text.splitlines()[first:].index(next(x for x in text.splitlines()[first:] if x.startswith("#")))
        found = [one.text for one in pages.blocks("docs/open.md") if first < one.line <= last]
        return [one.replace(EXAMPLE_URL, self.url).replace(EXAMPLE_TOKEN, self.token) for one in found]

    def rows(self) -> list[dict[str, Any]]:
        return list(self.table.scan().to_arrow().to_pylist())


@contextmanager
def iceberg_lake(kind: str, folder: Path, patched: pytest.MonkeyPatch) -> Iterator[IcebergLake]:
    """The service of a new instance, of the kind ``disk`` or ``s3``."""
    if kind == "disk":
        with _lake_at(str(folder / "lake"), {}, folder) as lake:
            yield lake
        return
    with served_store() as store:
        for option, variable in VARIABLES.items():
            # Of this process and of the service, but not of the engines.
            patched.setenv(variable, store.storage_options[option])
        handed_out = {
            "s3.endpoint": store.endpoint,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
            "s3.region": "us-east-1",
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
        }
        with _lake_at(f"{store.new_bucket()}/lake", handed_out, folder) as lake:
            for variable in VARIABLES.values():
                patched.delenv(variable)
            yield lake


@contextmanager
def _lake_at(url: str, handed_out: dict[str, str], folder: Path) -> Iterator[IcebergLake]:
    made = lakebed.create(url)
    schema = lakebed.Schema({"origin": "string"}, {"number": "int64"}, {"delay": "float64"})
    table = made.create_table("flights", schema, split_points=["o3"], settings={"publish": "iceberg"})
    for keys in (range(1000), range(1000, 1500)):
        table.write(rows_of(keys))
        publish(table)
    made.create_table("kept_back", schema)
    roles = ["read"], ["read", "part"]
    stored.create_role(made.storage, Role("part", Permission.READ, frozenset({"flights"}), where="delay > 0"))
    tokens = [stored.create_token(made.storage, "-".join(one), one)[1] for one in roles]
    properties = folder / "properties.json"
    properties.write_text(json.dumps(handed_out))
    with served(url, "--no-maintenance", "--iceberg-properties", str(properties)) as service:
        yield IcebergLake(service.url, table, *tokens)


def rows_of(keys: range) -> pa.Table:
    """A row for each number; the origin has seven values."""
    origins = [f"o{key % 7}" for key in keys]
    return pa.table({"origin": origins, "number": list(keys), "delay": [key / 2 for key in keys]})
