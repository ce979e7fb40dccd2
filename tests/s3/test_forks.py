"""A child that is forked from a process which used an object store gets an error, and does not wait for its answer."""

import json

import pyarrow as pa

import lakebed
from tests.adversarial.test_forks import said
from tests.s3.conftest import S3Server


def test_a_child_of_a_process_that_used_an_object_store_is_asked_to_spawn(s3_server: S3Server, tmp_path) -> None:
    url = f"{s3_server.new_bucket()}/lake"
    made = lakebed.create(url, storage_options=s3_server.storage_options)
    made.create_table("t", lakebed.Schema({"k": "int64"})).write(pa.table({"k": [5, 6]}))
    answers = json.loads(said(tmp_path, "store", url, json.dumps(s3_server.storage_options)))
    assert answers == {"get": "process_forked", "open": "process_forked"}
