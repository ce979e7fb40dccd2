"""Object-store servers of other makers than moto: real programs on loopback ports, each with an empty bucket a test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import boto3
import pytest

from lakebed.clock import random_token
from tests.stores.gcs import XmlPuts
from tests.waiting import unclaimed_port

START_S = 60
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = base64.b64encode(b"no secret: a key for tests on the loopback interface, 64 bytes..").decode()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens; ``new_root`` makes a bucket and gives its URL."""

    kind: str
    options: dict[str, str]
    new_root: Callable[[], str]


def programs() -> Path:
    found = os.environ.get("STORES_BIN")
    if not found:
        pytest.skip("STORES_BIN names no folder of servers: run `make test-stores`")
    return Path(found)


def started(
    command: list[str], port: int, log: Path, variables: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The program, once it accepts connections."""
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | (variables or {}))
    give_up_s = time.monotonic() + START_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return running
        if running.poll() is not None or time.monotonic() > give_up_s:
            running.kill()
            raise RuntimeError(f"{command[0]} does not listen: {log.read_text()[-2000:]}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("versitygw"), unclaimed_port()
    (folder / "data").mkdir()
    access, secret = "test-access", "test-secret"
    command = [str(programs() / "versitygw"), "--port", f"127.0.0.1:{port}", "posix", str(folder / "data")]
    running = started(
        command, port, folder / "log", {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret, "VGW_REGION": "us-east-1"}
    )
    options = {
        "aws_access_key_id": access,
        "aws_secret_access_key": secret,
        "aws_region": "us-east-1",
        "endpoint_url": f"http://127.0.0.1:{port}",
    }
    client = boto3.client(
        "s3",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        endpoint_url=options["endpoint_url"],
    )

    def new_root() -> str:
        name = f"test-{random_token()[:12]}"
        client.create_bucket(Bucket=name)
        return f"s3://{name}"

    yield Server("s3", options, new_root)
    running.kill()
    running.wait()


@pytest.fixture(scope="session")
def gcs_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("gcs"), unclaimed_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(programs() / "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-external-url", url, "-public-host", f"127.0.0.1:{port}"]
    running = started(command, port, folder / "log")
    front = XmlPuts(port)

    def new_root() -> str:
        name = f"test-{random_token()[:12]}"
        body = f'{{"name": "{name}"}}'.encode()
        request = Request(f"{url}/storage/v1/b?project=test", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=120):
            return f"gs://{name}"

    account = folder / "account.json"
    unsigned = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    account.write_text(
        json.dumps({"gcs_base_url": f"http://127.0.0.1:{front.server_port}", "disable_oauth": True} | unsigned)
    )
    yield Server("gs", {"google_service_account": str(account), "allow_http": "true"}, new_root)
    front.shutdown()
    running.kill()
    running.wait()


@pytest.fixture(scope="session")
def azure_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("azurite"), unclaimed_port()
    command = [str(programs() / "node_modules/.bin/azurite-blob"), "--blobPort", str(port), "--inMemoryPersistence"]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    running = started(command, port, folder / "log", {"AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_KEY}"})
    endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"

    def new_root() -> str:
        name = f"test-{random_token()[:12]}"
        create_container(endpoint, name)
        return f"az://{name}"

    options = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY, "endpoint": endpoint}
    yield Server("az", options, new_root)
    running.kill()
    running.wait()


def create_container(endpoint: str, name: str) -> None:
    """A request signed as Azure's "Shared Key" wants it."""
    date, version = formatdate(usegmt=True), "2021-08-06"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signed = "PUT" + "\n" * 12 + headers + resource
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    request = Request(f"{endpoint}/{name}?restype=container", method="PUT")
    request.add_header("x-ms-date", date)
    request.add_header("x-ms-version", version)
    request.add_header("Authorization", f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}")
    try:
        with urlopen(request, timeout=120):
            return
    except HTTPError as error:
        raise RuntimeError(error.read().decode()) from error
    except URLError as error:
        raise RuntimeError(str(error)) from error


@pytest.fixture(params=["s3_store", "gcs_store", "azure_store"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found
