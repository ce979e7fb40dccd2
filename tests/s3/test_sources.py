"""Source files on an object store: distinguished by their ETags, for its last-modified times are of whole seconds."""

import io
import os

import boto3
import pyarrow.parquet as pq
import pytest

from lakebed import UsageError
from lakebed.storage import connect
from lakebed.write.conformer import Conformer
from lakebed.write.sources import find_files, read_file, why_changed
from tests.tables.ingest.cases import ingested, standings
from tests.tables.retention.cases import SCHEMA, letters, made, rows


@pytest.fixture
def inbox(s3_server, monkeypatch):
    """The URL of a folder; sources are read with credentials of the environment."""
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv({"endpoint_url": "AWS_ENDPOINT_URL"}.get(name, name.upper()), value)
    return s3_server.new_bucket() + "/inbox"


@pytest.fixture
def put(inbox, s3_server, tmp_path):
    """Puts a file with a row for each letter."""
    store = connect(inbox, s3_server.storage_options)

    def put(name, text):
        pq.write_table(rows(text), tmp_path / "rows.parquet")
        store.replace(f"{name}.parquet", (tmp_path / "rows.parquet").read_bytes())

    return put


def test_a_file_that_was_written_over_in_the_same_second_is_another(inbox, put):
    put("a", "ab")
    (before,) = find_files(inbox)
    put("a", "cd")
    (after,) = find_files(f"{inbox}/*.parquet")
    assert (before.size_bytes, before.url) == (after.size_bytes, after.url)
    assert "was changed since it was found" in why_changed(before)
    assert why_changed(after) is None


def test_any_name_in_a_bucket_is_found_and_read(inbox, put):
    """Nothing in a key is escaped, and a glob is a glob."""
    put("odd", "x")
    with io.BytesIO() as out:
        pq.write_table(rows("yz"), out)
        client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        client.put_object(Bucket=inbox.split("/")[2], Key="inbox/a b%20?é.parquet", Body=out.getvalue())
    files = find_files([f"{inbox}/[no]d?.parquet", f"{inbox}/a*"])
    assert [file.url for file in files] == [f"{inbox}/odd.parquet", f"{inbox}/a b%20?é.parquet"]
    assert sum(batch.num_rows for file in files for batch in read_file(file, Conformer(SCHEMA))) == 3


def test_the_same_bytes_put_again_are_the_same_file(inbox, put):
    put("a", "ab")
    table = made()
    table.submit(inbox)
    put("a", "ab")
    assert standings(table.submit(inbox)) == "a open"
    assert ingested(table).requests == 1
    assert letters(table) == "ab"


def test_a_file_that_was_deleted_or_changed_after_its_submission_is_rejected(inbox, put, s3_server):
    table = made()
    for name in "abc":
        put(name, name)
    table.submit([f"{inbox}/a.parquet", f"{inbox}/[bc].parquet"])
    connect(inbox, s3_server.storage_options).delete(["a.parquet"])
    put("b", "x")
    report = ingested(table)
    assert [(one.url.rpartition("/")[2], one.rejected) for one in report.failed] == [
        ("a.parquet", True),
        ("b.parquet", True),
    ]
    assert letters(table) == "c"


def test_a_glob_of_a_bucket_means_the_files_that_one_of_a_disk_means(inbox, put):
    """A folder that it matches stands for its files, hidden names and the markers of folders are none."""
    for name in ("a", "p=1/b", "p=1/_c", "_temporary/0/d", ".e"):
        put(name, "x")
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    for key in ("", "p=1/", "empty/", "p=1_$folder$", "_SUCCESS", ".a.parquet.crc"):
        client.put_object(Bucket=inbox.split("/")[2], Key=f"inbox/{key}", Body=b"")
    for pattern in ("", "/*", "/**", "/**/*.parquet"):
        assert [file.url for file in find_files(inbox + pattern)] == [f"{inbox}/a.parquet", f"{inbox}/p=1/b.parquet"]
    assert [file.url for file in find_files(f"{inbox}/_*/**")] == [f"{inbox}/_temporary/0/d.parquet"]


def test_a_file_of_a_bucket_that_is_named_by_two_schemes_is_refused(inbox, put):
    put("a", "x")
    other = inbox.replace("s3://", "s3a://")
    for pair in ([f"{inbox}/a.parquet", f"{other}/a.parquet"], [inbox, f"{other}/*"]):
        with pytest.raises(UsageError, match="is named twice"):
            find_files(pair)
        with pytest.raises(UsageError, match="is named twice"):
            made().write(pair)


@pytest.mark.parametrize("key", ["x//a.parquet", "x/../a.parquet"])
def test_a_key_that_the_client_cannot_have_is_refused(inbox, key):
    with pytest.raises(UsageError, match="cannot read s3://"):
        find_files(f"{inbox}/{key}")
