"""Listings: by the states of tables alone, in pages that stay in one version."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.upkeep.retention.run import collect_garbage
from tests.processes.gateway.opened import BUCKET, code_of, keys_of, listed, raw, refusal_of, wait_for_state
from tests.tables.cases import compact


@pytest.fixture
def many(lake):
    """A table of 25 whole files, each of a commit, of a partition."""
    table = lake.create_table("many", lakebed.Schema({"k": "int64"}))
    for k in range(25):
        table.write(pa.table({"k": [k]}))
    return table


def test_the_bucket_has_a_folder_for_each_table(flights, lake, gateway):
    lake.create_table("flights-old", lakebed.Schema({"k": "int64"}))
    page = gateway.client().list_objects_v2(Bucket=BUCKET, Delimiter="/")
    # By the bytes of keys: - is below /.
    assert [one["Prefix"] for one in page["CommonPrefixes"]] == ["flights-old/", "flights/"]
    assert "Contents" not in page
    assert page["KeyCount"] == 2


def test_an_object_is_a_file_of_the_newest_version_with_its_size_and_time(flights, gateway):
    found = listed(gateway.client(), "flights/")
    files = {file.id: file for file in flights.state().referenced().values()}
    assert {one["Key"] for one in found} == {f"flights/v{flights.version}-{file}.parquet" for file in files}
    for one in found:
        file = files[one["Key"].partition("-")[2].removesuffix(".parquet")]
        assert one["Size"] == file.size_bytes
        assert one["LastModified"].timestamp() == pytest.approx(file.last_modified_us / 1e6, abs=0.001)


def test_an_older_version_a_tag_and_a_time_are_folders(flights, gateway):
    client = gateway.client()
    version = flights.version - 1
    flights.tag("audited", version=version)
    older = keys_of(client, f"flights@{version}/")
    assert len(older) == 2
    assert keys_of(client, "flights@audited/") == [key.replace(f"@{version}", "@audited") for key in older]
    time = next(iter(flights.history_rows())).time
    assert keys_of(client, f"flights@{time:%Y-%m-%dT%H:%M:%S.%fZ}/")
    assert keys_of(client, "flights@") == []
    assert keys_of(client, "flights@none/") == []
    assert keys_of(client, "flights@99/") == []


@pytest.mark.parametrize("prefix", ["none/", "flights/x", "/", "../flights/", "flights//", "tables/", "flights/v4-x"])
def test_a_prefix_of_no_key_lists_nothing(flights, gateway, prefix):
    page = gateway.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    assert page["KeyCount"] == 0
    assert page["Prefix"] == prefix


@pytest.mark.parametrize("size", [1, 2, 7, 24, 25, 26, 1000, 10_000])
def test_pages_have_all_keys_once_in_order(many, gateway, size):
    client = gateway.client()
    all_keys = keys_of(client, "many/")
    assert len(all_keys) == 25
    assert all_keys == sorted(all_keys)
    found, options = [], {}
    while True:
        page = client.list_objects_v2(Bucket=BUCKET, Prefix="many/", MaxKeys=size, **options)
        assert page["KeyCount"] == len(page.get("Contents", ())) <= page["MaxKeys"] <= 1000
        found += [one["Key"] for one in page["Contents"]]
        if not page["IsTruncated"]:
            break
        options = {"ContinuationToken": page["NextContinuationToken"]}
    assert found == all_keys


def test_a_listing_stays_in_the_version_of_its_first_page(many, gateway):
    client = gateway.client()
    before = keys_of(client, "many/")
    first = client.list_objects_v2(Bucket=BUCKET, Prefix="many/", MaxKeys=10)
    many.write(pa.table({"k": [99]}))
    second = client.list_objects_v2(Bucket=BUCKET, Prefix="many/", ContinuationToken=first["NextContinuationToken"])
    keys = [one["Key"] for page in (first, second) for one in page["Contents"]]
    assert keys == before
    # So does one that is continued by its last key.
    third = client.list_objects_v2(Bucket=BUCKET, Prefix="many/", StartAfter=first["Contents"][-1]["Key"])
    assert third["Contents"] == second["Contents"]
    assert len(keys_of(client, "many/")) == 26


def test_start_after_need_not_be_a_key(flights, gateway):
    client = gateway.client()
    keys = keys_of(client, "flights/")
    assert keys_of(client, "flights/", StartAfter="flights/") == keys
    assert keys_of(client, "", StartAfter="a") == keys
    assert keys_of(client, "", StartAfter="g") == []
    assert keys_of(client, "flights/", StartAfter=keys[0]) == keys[1:]


def test_folders_are_paged_and_come_once(flights, lake, gateway):
    for name in ("a", "b", "c"):
        lake.create_table(name, lakebed.Schema({"k": "int64"}))
    client = gateway.client()
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    assert [one["Prefix"] for page in pages for one in page["CommonPrefixes"]] == ["a/", "b/", "c/", "flights/"]
    by_dash = client.list_objects_v2(Bucket=BUCKET, Delimiter="-", Prefix="flights/")
    assert [one["Prefix"] for one in by_dash["CommonPrefixes"]] == [f"flights/v{flights.version}-"]
    after = client.list_objects_v2(Bucket=BUCKET, Delimiter="/", StartAfter="b/v1-x")
    # As S3 does: the folder has a key after that one.
    assert [one["Prefix"] for one in after["CommonPrefixes"]] == ["b/", "c/", "flights/"]


def test_keys_are_url_encoded_if_the_client_asks(flights, gateway):
    flights.tag("t")
    page = gateway.client().list_objects_v2(Bucket=BUCKET, Prefix="flights@t/", EncodingType="url", Delimiter="&")
    assert page["Contents"][0]["Key"].startswith("flights%40t/v")
    assert (page["Prefix"], page["Delimiter"], page["EncodingType"]) == ("flights%40t/", "%26", "url")


def test_a_page_of_no_keys_is_the_end(flights, gateway):
    page = gateway.client().list_objects_v2(Bucket=BUCKET, MaxKeys=0)
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)


@pytest.mark.parametrize(
    "options", [{"ContinuationToken": "x"}, {"ContinuationToken": "eA=="}, {"MaxKeys": -1}, {"ContinuationToken": ""}]
)
def test_what_is_no_page_is_refused(flights, gateway, options):
    assert refusal_of(gateway.client().list_objects_v2, **options) == ("InvalidArgument", 400)


def test_a_listing_whose_version_was_collected_cannot_go_on(many, gateway):
    client = gateway.client()
    first = client.list_objects_v2(Bucket=BUCKET, Prefix="many/", MaxKeys=10)
    many.set(history_s=0)
    compact(many)
    collect_garbage(many)
    wait_for_state()
    options = {"Prefix": "many/", "ContinuationToken": first["NextContinuationToken"]}
    assert refusal_of(client.list_objects_v2, **options) == ("InvalidArgument", 400)
    assert len(keys_of(client, "many/")) == 1


@pytest.mark.parametrize("size", [1, 7, 25, 1000])
def test_the_listing_of_version_1_has_the_same_keys(many, gateway, size):
    client = gateway.client()
    pages = list(
        client.get_paginator("list_objects").paginate(
            Bucket=BUCKET, Prefix="many/", PaginationConfig={"PageSize": size}
        )
    )
    assert [one for page in pages for one in page["Contents"]] == listed(client, "many/")
    assert len(pages) == -(-25 // size)
    assert [page["IsTruncated"] for page in pages] == [True] * (len(pages) - 1) + [False]
    assert "KeyCount" not in pages[0]
    many.write(pa.table({"k": [99]}))
    # As with a token, the version of the marker.
    (last,) = client.list_objects(Bucket=BUCKET, Prefix="many/", Marker=pages[0]["Contents"][0]["Key"], MaxKeys=1)[
        "Contents"
    ]
    assert last["Key"] == [one["Key"] for page in pages for one in page["Contents"]][1]


def test_folders_of_the_listing_of_version_1_are_paged_and_come_once(flights, lake, gateway):
    for name in ("a", "b", "c"):
        lake.create_table(name, lakebed.Schema({"k": "int64"}))
    client = gateway.client()
    for size in (1, 2, 3, 4):
        pages = client.get_paginator("list_objects").paginate(
            Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": size}
        )
        assert [one["Prefix"] for page in pages for one in page["CommonPrefixes"]] == ["a/", "b/", "c/", "flights/"]
    first = client.list_objects(Bucket=BUCKET, Delimiter="/", MaxKeys=2, EncodingType="url")
    assert (first["Marker"], first["NextMarker"], first["EncodingType"]) == ("", "b/", "url")
    after = client.list_objects(Bucket=BUCKET, Delimiter="/", Marker="b/v1-x")
    assert [one["Prefix"] for one in after["CommonPrefixes"]] == ["b/", "c/", "flights/"]


def test_parameters_of_one_listing_are_none_of_the_other(flights, gateway):
    client = gateway.client()
    assert refusal_of(client.list_objects, MaxKeys=-1) == ("InvalidArgument", 400)
    for query in ("start-after=x", "continuation-token=x", "list-type=2&marker=x", "list-type=3"):
        status, _, body = raw(gateway, "GET", f"/{BUCKET}?{query}")
        assert (status, code_of(body)) == (501, "NotImplemented"), query


def test_other_operations_are_not_here(flights, gateway):
    client = gateway.client()
    for call in (client.get_bucket_acl, client.get_bucket_versioning, client.list_object_versions):
        assert refusal_of(call) == ("NotImplemented", 501)


def test_the_bucket_is_there_and_no_other(flights, gateway):
    client = gateway.client()
    (found,) = client.list_buckets()["Buckets"]
    assert found["Name"] == BUCKET
    assert client.head_bucket(Bucket=BUCKET)["ResponseMetadata"]["HTTPHeaders"]["x-amz-bucket-region"] == "us-east-1"
    assert client.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
    for call in (client.list_objects_v2, client.get_bucket_location):
        with pytest.raises(client.exceptions.NoSuchBucket):
            call(Bucket="another")
