"""One set of storage options for data, log, sources and exports: from options, variables and profiles."""

from __future__ import annotations

import io
import os
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from lakebed.jobs.tasks import place_of
from lakebed.storage import connect
from lakebed.storage.external import ObjectFiles, open_external, options_for
from lakebed.write.sources import find_files
from tests.machine import hide_packages
from tests.s3.conftest import S3Server

SCHEMA = lakebed.Schema({"k": "string"}, {}, {"n": "int64"})
ROWS = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int64())})
SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no profile and no instance metadata of the user who runs the tests."""
    for name in os.environ:
        if name.upper().startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def instance(s3_server: S3Server) -> lakebed.Instance:
    made = lakebed.create(f"{s3_server.new_bucket()}/lake", storage_options=s3_server.storage_options)
    made.create_table("t", SCHEMA)
    return made


@pytest.fixture
def source(s3_server: S3Server) -> str:
    """The URL of a file of two rows in a bucket of its own."""
    bucket = s3_server.new_bucket()
    with io.BytesIO() as out:
        pq.write_table(ROWS, out)
        connect(bucket, s3_server.storage_options).replace("in/a.parquet", out.getvalue())
    return f"{bucket}/in/a.parquet"


def profile(tmp_path: Path, s3_server: S3Server, *lines: str) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[lake]\naws_access_key_id = test\naws_secret_access_key = test\n")
    text = "\n".join(lines or (f"endpoint_url = {s3_server.endpoint}", "region = eu-west-1"))
    (tmp_path / ".aws" / "config").write_text(f"[profile lake]\n{text}\n")


# -- sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_options_of_the_instance_reach_a_source(instance: lakebed.Instance, source: str, scheme: str) -> None:
    table = instance.table("t")
    url = source.replace("s3://", f"{scheme}://")
    assert table.submit(url).files[0].url == source
    assert table.submit(url.removesuffix("/a.parquet")).files[0].standing == "open"


def test_without_options_the_environment_has_to_have_them(
    source: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    assert [file.url for file in find_files(source)] == [source]


def test_options_reach_no_store_of_another_kind(s3_server: S3Server) -> None:
    given = s3_server.storage_options
    assert options_for("s3a://b/x", "s3://c/lake", given) == given
    assert options_for("gs://b/x", "s3://c/lake", given) == {}
    assert options_for("/disk", "s3://c/lake", given) == {}


def test_exports_take_the_options_of_an_instance_of_the_same_kind(instance: lakebed.Instance, tmp_path: Path) -> None:
    assert place_of("s3a://bucket/out", instance).options == instance.storage_options
    assert place_of(str(tmp_path), instance).options == {}


def test_the_options_of_the_data_reach_no_log_of_another_kind(s3_server: S3Server, tmp_path: Path) -> None:
    url, log_url, given = f"{s3_server.new_bucket()}/lake", (tmp_path / "logs").as_uri(), s3_server.storage_options
    lakebed.create(url, log_url=log_url, storage_options=given).create_table("t", SCHEMA).write(ROWS)
    opened = lakebed.open(url, log_url=log_url, storage_options=given)
    assert opened.table("t").get("a")["n"].to_pylist() == [1]


@pytest.mark.parametrize("url", ["s3://key:hunter2hunter2@bucket/in", "s3://key@bucket/in?x=1"])
def test_credentials_in_the_url_of_a_source_are_refused_and_not_shown(instance: lakebed.Instance, url: str) -> None:
    with pytest.raises(lakebed.UsageError, match="a URL must not contain credentials") as caught:
        instance.table("t").submit(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# -- lakebed write ----------------------------------------------------------------------------------------------


def test_write_takes_files_of_a_store(
    instance: lakebed.Instance, source: str, s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = source.removesuffix("/a.parquet")
    store = connect(bucket, s3_server.storage_options)
    with io.BytesIO() as out:
        pyarrow.csv.write_csv(ROWS, out)
        store.replace("b.csv", out.getvalue())
        store.replace("c.csv.gz", pa.compress(out.getvalue(), "gzip", asbytes=True))
    with io.BytesIO() as out:
        with pa.ipc.new_file(out, ROWS.schema) as writer:
            writer.write_table(ROWS)
        store.replace("d.arrow", out.getvalue())
    with io.BytesIO() as out:
        with pa.ipc.new_stream(out, ROWS.schema) as writer:
            writer.write_table(ROWS)
        store.replace("e.arrows", out.getvalue())
    options = [word for name, value in s3_server.storage_options.items() for word in ("--option", f"{name}={value}")]
    files = [f"{bucket}/{name}" for name in ("b.csv", "c.csv.gz", "d.arrow", "e.arrows")]
    assert main(["--instance", instance.url, *options, "write", "t", source, *files]) == 0, capsys.readouterr().err
    assert instance.table("t").scan().read_all()["n"].to_pylist() == [1] * 5 + [2] * 5
    assert main(["--instance", instance.url, *options, "write", "t", f"{bucket}/none.parquet"]) == 4
    assert f"no file {bucket}/none.parquet" in capsys.readouterr().err


# -- profiles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_profile_has_credentials_region_and_endpoint(
    how: str, source: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(tmp_path, s3_server)
    options = {"aws_profile": "lake"} if how == "option" else {}
    if how == "variable":
        monkeypatch.setenv("AWS_PROFILE", "lake")
        assert [file.url for file in find_files(source)] == [source]
    storage = connect(source.removesuffix("/a.parquet"), options)
    assert [found.name for found in storage.list("")] == ["a.parquet"]
    assert dict(storage.clients.retrying.config)["region"] == "eu-west-1"


def test_the_endpoint_of_a_service_comes_before_that_of_the_profile(
    source: str, s3_server: S3Server, tmp_path: Path
) -> None:
    services = ["services = here", "endpoint_url = http://127.0.0.1:1", "[services here]", "s3 =", "  endpoint_url = "]
    profile(tmp_path, s3_server, *services[:-1], f"{services[-1]}{s3_server.endpoint}")
    assert list(connect(source.removesuffix("/a.parquet"), {"aws_profile": "lake", "aws_region": "x"}).list(""))


def test_what_is_said_nearer_comes_before_the_profile(source: str, s3_server: S3Server, tmp_path: Path) -> None:
    profile(tmp_path, s3_server, "endpoint_url = http://127.0.0.1:1")
    given = {"aws_profile": "lake", "endpoint_url": s3_server.endpoint, "aws_region": "us-east-1"}
    assert list(connect(source.removesuffix("/a.parquet"), given).list(""))


@pytest.mark.parametrize("how", ["storage option 'aws_profile'", "the variable AWS_PROFILE"])
def test_a_profile_without_boto3_names_what_to_install(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_packages(monkeypatch, "boto3")
    if "variable" in how:
        monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(lakebed.UsageError, match=rf"{how} names a profile .* pip install boto3"):
        connect("s3://bucket", {} if "variable" in how else {"aws_profile": "lake"})


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lakebed.UsageError, match=r"profile \(nowhere\) could not be found"):
        connect("s3://bucket", {"aws_profile": "nowhere"})


def test_a_login_that_has_expired_is_an_error_of_storage(tmp_path: Path, s3_server: S3Server) -> None:
    sso = ["sso_session = us", "sso_account_id = 1", "sso_role_name = r", f"endpoint_url = {s3_server.endpoint}"]
    profile(
        tmp_path,
        s3_server,
        *sso,
        "region = eu-west-1",
        "[sso-session us]",
        "sso_start_url = https://x",
        "sso_region = a",
    )
    (tmp_path / ".aws" / "credentials").unlink()
    with pytest.raises(lakebed.StorageError, match=r"(?i)sso|token"):
        connect("s3://bucket", {"aws_profile": "lake"}).get("x")


# -- secrets ----------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_error_and_no_repr(s3_server: S3Server) -> None:
    """A password in the endpoint, and keys, where no server answers."""
    endpoint = f"http://user:{SECRET}@127.0.0.1:1"
    options = {"aws_access_key_id": SECRET, "aws_secret_access_key": SECRET, "endpoint_url": endpoint}
    options |= {"aws_region": "us-east-1", "timeout": "1s", "connect_timeout": "1s"}
    storage = connect("s3://bucket/lake", options)
    files, path = open_external("s3://other/x", storage)
    assert isinstance(files, ObjectFiles)
    object.__setattr__(storage.clients, "_retrying", storage.clients.once)
    files._store = storage.clients.once
    shown = [repr(storage), repr(storage.clients), repr(files)]
    for ask in (lambda: storage.get("x"), lambda: list(storage.list("")), lambda: files.look(path)):
        with pytest.raises(lakebed.StorageError) as caught:
            ask()
        shown += ["".join(traceback.format_exception(caught.value)), str(caught.value.facts)]
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ({"aws_secret_access_key": SECRET}, "without an access key id"),
        ({"aws_access_key_id": "me"}, "without a secret access key"),
        ({"AWS_ACCESS_KEY_ID": "me", "session_token": "x"}, "without a secret access key"),
    ],
)
def test_half_of_the_credentials_are_refused_by_name(given: dict[str, str], lacks: str) -> None:
    with pytest.raises(lakebed.StorageError, match=lacks) as caught:
        connect("s3://b", {**given, "region": "us-east-1"})
    assert caught.value.code == "store_credentials"
    assert "aws_access_key_id and aws_secret_access_key" in caught.value.message
    assert SECRET not in "".join(traceback.format_exception(caught.value))
