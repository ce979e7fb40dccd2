"""The roles of deploy/terraform and of docs/storage.md grant what Lakebed's requests need, and nothing else.

The server refuses what a policy does not grant, as S3 does, and notes which actions were used.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import parse_qs

import pyarrow as pa
import pytest

import lakebed
from lakebed import Pipeline, Schema
from lakebed.errors import StorageError
from lakebed.storage import connect
from lakebed.storage.object_store import PART_BYTES
from tests.orphans import delete_orphans
from tests.s3.conftest import Spoilt

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "deploy" / "terraform" / "aws" / "policies"
SCHEMA = Schema({"k": "int64"}, values={"v": "string"})
DENIED = Spoilt("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")
GCS = {
    "s3:GetObject": {"storage.objects.get"},
    "s3:ListBucket": {"storage.objects.list"},
    # To replace an object, GCS wants the permission to delete it.
    "s3:PutObject": {"storage.objects.create", "storage.objects.delete", "storage.multipartUploads.create"},
    "s3:DeleteObject": {"storage.objects.delete"},
    "s3:AbortMultipartUpload": {"storage.multipartUploads.abort"},
}
"""The permissions of Google Cloud Storage for the requests of each action."""


def action(request):
    """The action of S3 that a request needs: the service authorization reference of S3."""
    query = parse_qs(request.query, keep_blank_values=True)
    if not request.key:
        return {"GET": "s3:ListBucket", "POST": "s3:DeleteObject"}[request.method]
    if request.method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject"}[
        request.method
    ]


class Policy:
    """A policy of AWS as far as ours go, and which actions of it were used."""

    def __init__(self, text, bucket):
        self.statements = json.loads(text.replace("${bucket}", bucket).replace("${root}", "lake"))["Statement"]
        self.used, self.denied, self.broken = set(), set(), set()

    @property
    def granted(self):
        return {name for one in self.statements for name in self.actions(one)}

    @staticmethod
    def actions(statement):
        return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]

    def allows(self, request):
        name = action(request)
        # The bucket's own resource, for a listing; a request that deletes many names each of its objects.
        resource = f"arn:aws:s3:::{request.bucket}"
        if name != "s3:ListBucket":
            resource += f"/{request.key or 'lake/x'}"
        for one in self.statements:
            if name in self.actions(one) and fnmatchcase(resource, one["Resource"]):
                prefix = parse_qs(request.query).get("prefix", [""])[0]
                wanted = one.get("Condition", {}).get("StringLike", {}).get("s3:prefix", ["*"])
                return any(fnmatchcase(prefix, pattern) for pattern in wanted)
        return False

    def __call__(self, request):
        if not self.allows(request):
            self.denied.add((request.method, request.key, request.query))
            return DENIED
        self.used.add(action(request))
        return Spoilt("400 Bad Request") if any(part in request.query for part in self.broken) else None


def rows(begin, end, text="x"):
    return pa.table({"k": pa.array(range(begin, end)), "v": [f"{text}{number}" for number in range(begin, end)]})


def everything(url, options, policy, tmp_path):
    """What a service and its jobs do with an instance."""
    lake = lakebed.create(url, storage_options=options)
    table = lake.create_table("t", SCHEMA, settings={"history_s": 0, "split_rows": 50})
    for begin in range(0, 60, 10):
        table.write(rows(begin, begin + 40))
    table.tag("first")
    with table.pin():
        assert table.get(35).num_rows == 4
    table.untag("first")
    with Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.compact(table, strategy="full")
        pipeline.maintain(table)
        pipeline.gc(table, force=True)
    assert table.verify(files=True).sound
    delete_orphans(table)
    lake.create_table("gone", SCHEMA).write(rows(0, 5))
    lake.drop_table("gone")
    # A file over the size of one request is sent in parts; those of one that fails are given up.
    large, storage = tmp_path / "large", connect(url, options)
    large.write_bytes(bytes(PART_BYTES + 1))
    storage.send("data/large", large)
    policy.broken = {"partNumber="}
    with pytest.raises(StorageError, match="the store refused the request"):
        storage.send("data/larger", large)
    policy.broken = set()
    storage.delete(["data/large"])


def reading(url, options):
    """What a reader does."""
    table = lakebed.open(url, storage_options=options).table("t")
    assert table.get(5).num_rows
    assert table.count()
    assert table.scan().read_all().num_rows
    assert table.history().num_rows
    assert lakebed.open(url, storage_options=options).sql("SELECT count(*) FROM t").read_all().num_rows


def check_refused_beside(url, options):
    """Check that a folder whose name begins with that of the instance can neither be read nor listed."""
    beside = connect(f"{url}-beside", options)
    for call in (lambda: beside.get("x"), lambda: list(beside.list(""))):
        with pytest.raises(StorageError, match="permission denied"):
            call()


@pytest.fixture
def policy_of(s3_server, monkeypatch):
    """Has the server hold to a policy from here on."""
    bucket = s3_server.new_bucket()

    def held(text):
        policy = Policy(text, bucket.removeprefix("s3://"))
        s3_server.spoil = policy
        return policy, f"{bucket}/lake"

    return held


def in_docs():
    """The policy of a writer that docs/storage.md shows."""
    text = (ROOT / "docs" / "storage.md").read_text("utf-8")
    (found,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    return found.replace(":::bucket", ":::${bucket}")


def test_the_role_of_a_writer_grants_what_is_used_and_nothing_else(s3_server, policy_of, tmp_path):
    policy, url = policy_of((POLICIES / "writer.json.tftpl").read_text())
    everything(url, s3_server.storage_options, policy, tmp_path)
    assert not policy.denied
    assert policy.used == policy.granted
    check_refused_beside(url, s3_server.storage_options)
    # Google's role, by the permissions for the same requests.
    text = (ROOT / "deploy" / "terraform" / "gcp" / "roles.tf").read_text()
    granted = set(re.findall(r'"(storage\.[\w.]+)"', text))
    assert granted == set().union(*(GCS[one] for one in policy.used))


def test_the_role_of_a_reader_grants_what_is_used_and_nothing_else(s3_server, policy_of, tmp_path):
    policy, url = policy_of((POLICIES / "writer.json.tftpl").read_text())
    everything(url, s3_server.storage_options, policy, tmp_path)
    policy = Policy((POLICIES / "reader.json.tftpl").read_text(), url.split("/")[2])
    s3_server.spoil = policy
    reading(url, s3_server.storage_options)
    assert not policy.denied
    assert policy.used == policy.granted
    check_refused_beside(url, s3_server.storage_options)
    text = (ROOT / "deploy" / "terraform" / "gcp" / "roles.tf").read_text()
    (reads,) = re.findall(r"reads += \[(.*)\]", text)
    assert set(re.findall(r'"([\w.]+)"', reads)) == set().union(*(GCS[one] for one in policy.used))


def test_a_writer_without_one_of_its_actions_is_refused(s3_server, policy_of, tmp_path):
    """So the test above can fail."""
    text = (POLICIES / "writer.json.tftpl").read_text().replace('"s3:DeleteObject", ', "")
    policy, url = policy_of(text)
    with pytest.raises(StorageError, match="permission denied"):
        everything(url, s3_server.storage_options, policy, tmp_path)
    assert policy.denied


def test_the_policy_of_the_documentation_is_that_of_the_module():
    module = (POLICIES / "writer.json.tftpl").read_text().replace("${root}", "lake")
    assert json.loads(in_docs()) == json.loads(module)
