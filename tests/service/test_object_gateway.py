"""``lakebed serve --s3`` in a process of its own, read as docs/open.md says, while the table changes."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

import lakebed
from lakebed import KeyRange, Latest
from lakebed.cli import main
from lakebed.server.security import access_keys, stored
from tests import pages
from tests.service.test_protection import certificate

PAGE = "docs/open.md"


@pytest.fixture
def lake(tmp_path):
    made = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema({"tail": "string"}, {}, {"delay": "int64"})
    flights = made.create_table("flights", schema, merge=Latest(), split_points=["M"])
    flights.write(pa.table({"tail": ["LH1", "LH2", "N1"], "delay": [1, 2, 3]}))
    flights.write(pa.table({"tail": ["LH2", "N2"], "delay": [5, 6]}))
    flights.tag("audited")
    return made


@contextmanager
def gateway(lake, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of the bucket of a service that runs, and its process; it is stopped at the end of the block."""
    command = [sys.executable, "-m", "lakebed.cli", "--instance", lake.url, "serve", "--s3", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"lakebed: S3 at (https?://\S+), bucket lakebed", line):
                yield found[1], process
                break
        else:
            raise AssertionError(said)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def run(lake, capsys):
    """The exit code and the output of a command in this process."""

    def ran(*words):
        capsys.readouterr()
        return main(["--instance", lake.url, *words]), capsys.readouterr().out

    return ran


def client_of(url, key_id, secret, **options):
    config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
    given = {"aws_access_key_id": key_id, "aws_secret_access_key": secret, "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=url, config=config, **given, **options)


def read(client, prefix):
    """The version that a listing shows, and its rows."""
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="lakebed", Prefix=prefix)["Contents"]]
    (version,) = {int(re.search(r"/v([0-9]+)-", key)[1]) for key in keys}
    bodies = [client.get_object(Bucket="lakebed", Key=key)["Body"].read() for key in keys]
    return version, pa.concat_tables([pq.read_table(io.BytesIO(body)) for body in bodies]).sort_by("tail").to_pylist()


def test_the_examples_of_the_page_read_the_table(lake):
    key, secret = access_keys.create_access_key(lake.storage, "ann", ["read"])
    expected = lake["flights"].scan().read_all().to_pylist()
    with gateway(lake, "--port", "0", "--no-maintenance") as (url, _):
        names = {}
        section = [block for block in pages.blocks(PAGE, "python") if "iceberg" not in block.text.lower()]
        constants, *examples = section
        exec(constants.text, names)
        names |= {"ENDPOINT": url, "ACCESS_KEY_ID": key.id, "SECRET": secret}
        for block in examples:
            exec(block.text, names)
        with urlopen(names["url"], timeout=60) as answer:
            assert pq.read_table(io.BytesIO(answer.read())).num_rows
    assert names["frame"].sort("tail").to_dicts() == expected
    assert names["arrow"].sort_by("tail").to_pylist() == [row for row in expected if row["delay"] > 2]


def test_a_bucket_alone_with_keys_of_the_command_line(lake, run):
    everything = json.loads(run("--json", "access-key", "create", "ann", "--role", "read")[1])
    words = ["access-key", "create", "bob", "--role", "read", "--table", "flights"]
    tagged = json.loads(run("--json", *words, "--at", "audited")[1])
    prefixed = json.loads(run("--json", *words, "--starts-with", "LH", "--expires", "1h")[1])
    assert (tagged["version"], prefixed["keys"]) == (lake["flights"].tags()["audited"], "--starts-with LH")
    listed = run("access-key", "list")[1]
    assert all(one["id"] in listed and one["secret"] not in listed for one in (everything, tagged, prefixed))
    flights = lake["flights"]
    flights.write(pa.table({"tail": ["Z"], "delay": [9]}))
    with gateway(lake, "--s3-only") as (url, process):
        clients = [client_of(url, one["id"], one["secret"]) for one in (everything, tagged, prefixed)]
        assert read(clients[0], "flights/") == (flights.version, flights.scan().read_all().to_pylist())
        assert read(clients[1], "flights/") == (tagged["version"], flights.at("audited").scan().read_all().to_pylist())
        prefix = flights.scan(KeyRange.starts_with("LH")).read_all().to_pylist()
        assert read(clients[2], "flights/") == (flights.version, prefix)
        assert run("access-key", "drop", everything["id"])[0] == 0
        assert run("access-key", "drop", everything["id"])[0] != 0
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            client_of(url, tagged["id"], everything["secret"]).list_buckets()
    assert process.returncode == 0


def test_over_tls_beside_the_service(lake, tmp_path):
    key, secret = access_keys.create_access_key(lake.storage, "ann", ["read"])
    stored.create_token(lake.storage, "ann", ["read"])
    cert, private = certificate(tmp_path)
    tls = ["--tls-cert", str(cert), "--tls-key", str(private)]
    with gateway(lake, "--port", "0", "--no-maintenance", *tls) as (url, _):
        assert url.startswith("https://")
        secure = client_of(url.replace("127.0.0.1", "localhost"), key.id, secret, verify=str(cert))
        assert read(secure, "flights/")[1] == lake["flights"].scan().read_all().to_pylist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--s3-only"], "add --s3 PORT"),
        (["serve", "--s3", "0", "--s3-only", "--flight-port", "0"], "exclude each other"),
        (["access-key", "create", "a", "--role", "read", "--at", "1"], "one --table"),
        (["access-key", "create", "a", "--role", "read", "--table", "none", "--at", "1"], "no table named"),
        (["access-key", "create", "a", "--role", "none"], "no role named"),
        (["access-key", "create", "a b", "--role", "read"], "A-Z a-z"),
        (["access-key", "drop", "none"], "access-key list"),
    ],
)
def test_what_cannot_be_is_refused(lake, capsys, words, said):
    assert main(["--instance", lake.url, *words]) in (2, 3, 4)
    assert said in capsys.readouterr().err


def test_each_read_is_of_the_version_that_it_names_while_the_table_changes(lake):
    """A writer upserts, deletes, removes and compacts; each listing, read to its end, has the rows of its version."""
    key, secret = access_keys.create_access_key(lake.storage, "ann", ["read"])
    flights, asked = lake["flights"], threading.Event()

    def change() -> None:
        pipeline = lakebed.Pipeline(lake, launcher="this-thread")
        number = 0
        while not asked.is_set():
            number += 1
            tails = [f"{'LN'[n % 2]}{n}" for n in range(number, number + 50)]
            flights.write(pa.table({"tail": tails, "delay": [number] * 50}))
            flights.delete([(tails[0],)])
            if number % 5 == 0:
                flights.remove(KeyRange(("L2",), ("L3",)))
                pipeline.compact("flights")

    with gateway(lake, "--s3-only") as (url, _):
        client = client_of(url, key.id, secret)
        writer = threading.Thread(target=change)
        writer.start()
        try:
            seen = [read(client, "flights/") for _ in range(30)]
        finally:
            asked.set()
            writer.join()
    assert len({version for version, _ in seen}) > 5
    for version, rows in seen:
        assert rows == flights.at(version=version).scan().read_all().sort_by("tail").to_pylist()
