"""The Iceberg REST catalog of a service: what each principal finds in it, and how it refuses."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import Schema
from lakebed.model.documents import dump
from lakebed.model.files import iceberg_folder, metadata_name
from lakebed.server.security import stored
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.security.principal import Permission
from lakebed.server.security.roles import Role
from lakebed.server.service.service import Service
from lakebed.server.web.api import iceberg_catalog
from lakebed.server.web.app import make_app
from lakebed.server.web.request_authentication import Exposure
from lakebed.testing.faults import CountingStorage
from lakebed.upkeep.publish import record
from lakebed.upkeep.publish.record import location_of
from tests.tables.retention.cases import through
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx import Response

    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

PUBLISHED = {"publish": "iceberg"}
ROOT = "/iceberg/v1"
TABLES = f"{ROOT}/namespaces/default/tables"
PROPERTIES = {"s3.endpoint": "http://store.example", "s3.secret-access-key": "planted"}


def publish(table: Table, number: int = 1, **members: Any) -> None:
    """Put metadata as the publisher does, of which the catalog reads the properties alone."""
    properties = {record.TABLE: table.id, record.VERSION: str(table.version), **record.unsealed()}
    location = location_of(table.storage, iceberg_folder(table.id))
    document = {"format-version": 2, "location": location, "properties": properties, **members}
    table.storage.create(metadata_name(table.id, number), record.sealed(dump(document)))


@dataclass(frozen=True)
class Served:
    """A service of an instance with published tables, and the headers of principals: ``all`` is the default."""

    client: TestClient[Any]
    lake: Instance
    tokens: dict[str, dict[str, str]]


PRINCIPALS = {
    "all": (["read"], None),
    "some": (["read"], ["a", "kept_back"]),
    "part": (["part"], None),
    "masked": (["read", "mask"], None),
}
"""The roles and tables of their tokens."""


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Tables ``a``, ``b``, ``c`` and ``hidden`` are published, ``kept_back`` is not, and ``not_yet`` will be."""
    lake = lakebed.create(folder / "lake")
    for name in ("a", "b", "c", "hidden"):
        publish(lake.create_table(name, Schema({"k": "int64"}, values={"v": "string"}), settings=PUBLISHED))
    lake.create_table("kept_back", Schema({"k": "int64"}))
    lake.create_table("not_yet", Schema({"k": "int64"}), settings=PUBLISHED)
    part = Role("part", Permission.READ, frozenset({"a", "b", "c"}), where="k > 0")
    mask = Role("mask", Permission.READ, frozenset({"b"}), masks=(("v", "NULL"),))
    for role in (part, mask):
        stored.create_role(lake.storage, role)
    tokens = {
        name: {"Authorization": f"Bearer {stored.create_token(lake.storage, name, roles, tables)[1]}"}
        for name, (roles, tables) in PRINCIPALS.items()
    }
    access = stored.AccessList(lake.storage)
    exposure = Exposure(iceberg_properties=PROPERTIES)
    app = make_app(Service(lake, maintain=False), BearerAuthenticator(access), exposure=exposure)
    with TestClient(app) as client:
        client.headers.update(tokens["all"])
        yield Served(client, lake, tokens)
    access.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests that change nothing."""
    with serving(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def client(shared: Served) -> TestClient[Any]:
    return shared.client


@pytest.fixture
def tokens(shared: Served) -> dict[str, dict[str, str]]:
    return shared.tokens


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """For a test that changes tables."""
    with serving(tmp_path) as made:
        yield made


def names_in(answer: Response) -> list[str]:
    return [one["name"] for one in answer.json()["identifiers"]]


def refused(answer: Response, status: int, kind: str) -> str:
    """The message of an error in Iceberg's form."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == (kind, status)
    return str(error["message"])


# -- what there is ----------------------------------------------------------------------------------------------------


def test_the_configuration_lists_the_operations_that_there_are(client: TestClient[Any]) -> None:
    found = client.get(f"{ROOT}/config", params={"warehouse": "any"}).json()
    assert (found["defaults"], found["overrides"]) == ({}, {})
    for endpoint in found["endpoints"]:
        method, path = endpoint.split()
        path = path.replace("/{prefix}", "").format(namespace="default", table="a")
        body = {"json": {"report-type": "scan-report"}} if method == "POST" else {}
        assert client.request(method, f"/iceberg{path}", **body).status_code in (200, 204), endpoint


def test_the_instance_is_one_namespace(client: TestClient[Any]) -> None:
    assert client.get(f"{ROOT}/namespaces").json() == {"namespaces": [["default"]], "next-page-token": None}
    assert client.get(f"{ROOT}/namespaces", params={"parent": ""}).json()["namespaces"] == [["default"]]
    assert client.get(f"{ROOT}/namespaces", params={"parent": "default"}).json()["namespaces"] == []
    assert client.get(f"{ROOT}/namespaces/default").json() == {"namespace": ["default"], "properties": None}
    assert client.head(f"{ROOT}/namespaces/default").status_code == 204
    assert client.get(f"{ROOT}/namespaces/default/views").json()["identifiers"] == []


@pytest.mark.parametrize("namespace", ["other", "default\x1fmore", "default.more", "Default", "%"])
def test_there_is_no_other_namespace(client: TestClient[Any], namespace: str) -> None:
    path = f"{ROOT}/namespaces/{quote(namespace, safe='')}"
    for found in (path, f"{path}/tables", f"{path}/views"):
        refused(client.get(found), 404, "NoSuchNamespaceException")
    refused(client.get(f"{path}/tables/a"), 404, "NoSuchTableException")
    said = refused(client.get(f"{ROOT}/namespaces", params={"parent": namespace}), 404, "NoSuchNamespaceException")
    assert "namespace default" in said
    assert client.head(path).status_code == 404


def test_published_tables_are_listed_and_loaded(served: Served) -> None:
    client, lake = served.client, served.lake
    assert names_in(client.get(TABLES)) == ["a", "b", "c", "hidden"]
    table = lake.table("a")
    publish(table, 2, snapshots=[])
    found = client.get(f"{TABLES}/a")
    assert found.json()["metadata-location"] == f"{lake.url}/{metadata_name(table.id, 2)}"
    stored_bytes = table.storage.get(metadata_name(table.id, 2))
    assert stored_bytes is not None
    # The bytes are those of the store, since engines may compare them.
    assert stored_bytes in found.content
    assert client.head(f"{TABLES}/a").status_code == 204


def test_a_table_that_is_not_published_is_not_there(served: Served) -> None:
    client, lake = served.client, served.lake
    for name in ("kept_back", "not_yet"):
        assert "publish=iceberg" in refused(client.get(f"{TABLES}/{name}"), 404, "NoSuchTableException")
    assert client.head(f"{TABLES}/kept_back").status_code == 404
    refused(client.get(f"{TABLES}/none"), 404, "NoSuchTableException")
    table = lake.table("a")
    record.end(table.storage, table.id)
    refused(client.get(f"{TABLES}/a"), 404, "NoSuchTableException")
    assert names_in(client.get(TABLES)) == ["b", "c", "hidden"]


def test_a_table_with_damaged_metadata_is_listed_beside_the_others(served: Served) -> None:
    """Loading it says what is wrong; the others can be found."""
    client, lake = served.client, served.lake
    table = lake.table("b")
    table.storage.create(metadata_name(table.id, 2), b'{"properties": {}}')
    assert names_in(client.get(TABLES)) == ["a", "b", "c", "hidden"]
    answer = client.get(f"{TABLES}/b")
    assert answer.status_code == 500
    assert "not written by Lakebed" in answer.text


def test_listing_tables_that_the_service_publishes_takes_no_request_for_each(tmp_path: Path) -> None:
    lake = lakebed.create(tmp_path / "lake")
    storage = CountingStorage(lake.storage)
    counted, requests = through(lake, storage), []
    for name in "abc":
        lake.create_table(name, Schema({"k": "int64"}), settings=PUBLISHED)
        service = Service(counted)
        positions = service.publications.status
        with service:
            until(lambda get=positions: [one.version for one in get().values()] == [1] * len(lake.tables()))
        with TestClient(make_app(service)) as client:
            storage.clear()
            assert len(names_in(client.get(TABLES))) == len(lake.tables())
            requests.append(storage.calls.total())
    assert len(set(requests)) == 1


@pytest.mark.parametrize("name", ["a/b", "../a", "a\x1fb", "a.b", "a%2Fb", "", " ", "a" * 5000, "\N{SNOWMAN}", "a\0"])
def test_a_name_that_no_table_can_have(client: TestClient[Any], name: str) -> None:
    answer = client.get(f"{TABLES}/{quote(name, safe='')}")
    assert (answer.status_code, "identifiers" in answer.json()) in ((404, False), (200, True))
    if answer.status_code == 404:
        refused(answer, 404, "NoSuchTableException")


# -- entity tags and snapshots ----------------------------------------------------------------------------------------


def test_metadata_that_a_client_has_are_not_sent_again(served: Served) -> None:
    client, lake = served.client, served.lake
    tags = {mode: client.get(f"{TABLES}/a", params={"snapshots": mode}).headers["etag"] for mode in ("all", "refs")}
    assert tags["all"] != tags["refs"]
    for header in (tags["all"], f"W/{tags['all']}", f'"other", {tags["all"]}', "*"):
        found = client.get(f"{TABLES}/a", headers={"If-None-Match": header})
        assert (found.status_code, found.content, found.headers["etag"]) == (304, b"", tags["all"])
    assert client.get(f"{TABLES}/a", headers={"If-None-Match": tags["refs"]}).status_code == 200
    publish(lake.table("a"), 2)
    assert client.get(f"{TABLES}/a", headers={"If-None-Match": tags["all"]}).status_code == 200


def test_only_snapshots_with_a_ref(served: Served) -> None:
    client, lake = served.client, served.lake
    snapshots = [{"snapshot-id": number, "summary": {"operation": "append"}} for number in (1, 2, 2**62)]
    refs = {"main": {"snapshot-id": 2**62, "type": "branch"}, "audited": {"snapshot-id": 1, "type": "tag"}}
    publish(lake.table("a"), 2, snapshots=snapshots, refs=refs)
    found = client.get(f"{TABLES}/a", params={"snapshots": "refs"}).json()["metadata"]
    assert [one["snapshot-id"] for one in found["snapshots"]] == [1, 2**62]
    everything = client.get(f"{TABLES}/a").json()["metadata"]
    assert {name: value for name, value in found.items() if name != "snapshots"} == {
        name: value for name, value in everything.items() if name != "snapshots"
    }
    refused(client.get(f"{TABLES}/a", params={"snapshots": "some"}), 400, "BadRequestException")


# -- pages ------------------------------------------------------------------------------------------------------------


def test_tables_are_paged_while_they_come_and_go(served: Served) -> None:
    client, lake = served.client, served.lake
    first = client.get(TABLES, params={"pageToken": "", "pageSize": 2})
    assert names_in(first) == ["a", "b"]
    lake.rename_table("a", "z")
    lake.drop_table("b")
    publish(lake.create_table("b", Schema({"k": "int64"}), settings=PUBLISHED))
    lake.drop_table("c")
    token, pages = first.json()["next-page-token"], []
    while token is not None:
        answer = client.get(TABLES, params={"pageToken": token, "pageSize": 1})
        token = answer.json()["next-page-token"]
        pages.append(names_in(answer))
    # One of the tables is published later.
    assert pages == [["hidden"], [], ["z"]]


def test_pages(client: TestClient[Any]) -> None:
    assert len(names_in(client.get(TABLES, params={"pageSize": 1}))) == 4, "a client that cannot page gets all"
    assert names_in(client.get(TABLES, params={"pageToken": "never"})) == []
    for token in ("no name", "a.b", "../..", "\x1f"):
        assert "pageToken" in refused(client.get(TABLES, params={"pageToken": token}), 400, "BadRequestException")
    for size in ("0", "-1", "many"):
        refused(client.get(TABLES, params={"pageToken": "", "pageSize": size}), 400, "BadRequestException")
    names = [f"t{number}" for number in range(2 * iceberg_catalog.PAGE_TABLES_MAX)]
    assert len(iceberg_catalog.page_of(names, "", 10**9)[0]) == iceberg_catalog.PAGE_TABLES_MAX


# -- principals -------------------------------------------------------------------------------------------------------


def test_a_part_of_a_table_is_not_loaded_because_files_have_all_of_it(
    client: TestClient[Any], tokens: dict[str, dict[str, str]]
) -> None:
    headers = tokens["masked"]
    assert names_in(client.get(TABLES, headers=headers)) == ["a", "c", "hidden"]
    said = refused(client.get(f"{TABLES}/b", headers=headers), 403, "ForbiddenException")
    assert "read whole files" in said
    assert client.head(f"{TABLES}/b", headers=headers).status_code == 403
    report = client.post(f"{TABLES}/b/metrics", headers=headers, json={})
    refused(report, 403, "ForbiddenException")
    assert names_in(client.get(TABLES, headers=tokens["part"])) == []


def test_tables_of_others_are_not_visible(client: TestClient[Any], tokens: dict[str, dict[str, str]]) -> None:
    headers = tokens["some"]
    assert names_in(client.get(TABLES, headers=headers)) == ["a"]
    there, nowhere = (client.get(f"{TABLES}/{name}", headers=headers) for name in ("hidden", "nowhere"))
    assert refused(there, 403, "ForbiddenException").replace("hidden", "nowhere") == refused(
        nowhere, 403, "ForbiddenException"
    )


def test_a_request_without_a_token_is_refused(client: TestClient[Any]) -> None:
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer lakebed_wrong"}):
        for path in (f"{ROOT}/config", f"{ROOT}/namespaces", f"{TABLES}/a"):
            answer = client.get(path, headers=headers)
            refused(answer, 401, "NotAuthorizedException")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        refused(client.post(TABLES, headers=headers), 401, "NotAuthorizedException")


def test_properties_are_for_principals_that_read_all_tables(shared: Served) -> None:
    client, tokens = shared.client, shared.tokens
    loaded = client.get(f"{TABLES}/a").json()
    assert loaded["config"] == PROPERTIES
    folder = f"{shared.lake.url}/tables/{shared.lake.table('a').id}"
    assert loaded["storage-credentials"] == [
        {"prefix": f"{folder}/data", "config": PROPERTIES},
        {"prefix": f"{folder}/iceberg", "config": PROPERTIES},
    ]
    found = client.get(f"{TABLES}/a", headers=tokens["some"])
    assert found.json()["config"] == {}
    assert "storage-credentials" not in found.json()
    assert found.headers["etag"] != client.get(f"{TABLES}/a").headers["etag"]


def test_tokens_are_not_exchanged(client: TestClient[Any]) -> None:
    form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": "y"}
    answer = client.post(f"{ROOT}/oauth/tokens", data=form, headers={"Authorization": ""})
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")
    assert "lakebed token create" in answer.json()["error_description"]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "POST /namespaces",
        "DELETE /namespaces/default",
        "POST /namespaces/default/properties",
        "POST /namespaces/default/register",
        "POST /namespaces/default/tables",
        "POST /namespaces/default/tables/a",
        "DELETE /namespaces/default/tables/a",
        "POST /tables/rename",
        "POST /transactions/commit",
        "POST /namespaces/default/views",
        "DELETE /namespaces/default/views/v",
    ],
)
def test_nothing_is_written(client: TestClient[Any], path: str) -> None:
    method, found = path.split()
    body = {"content": b"{"} if method == "POST" else {}
    assert "read-only" in refused(client.request(method, ROOT + found, **body), 406, "UnsupportedOperationException")


def test_wrong_methods_and_paths(client: TestClient[Any]) -> None:
    refused(client.put(f"{TABLES}/a"), 405, "UnsupportedOperationException")
    refused(client.patch(f"{ROOT}/config"), 405, "UnsupportedOperationException")
    refused(client.get(f"{ROOT}/nothing"), 404, "NoSuchTableException")
    assert client.head(f"{TABLES}/none").content == b""
    # A body that has no use is not read.
    assert client.request("GET", f"{TABLES}/a", content=b"x" * 1000).status_code == 200


def test_reports_are_taken_within_a_bound(client: TestClient[Any]) -> None:
    assert client.post(f"{TABLES}/a/metrics", json={"report-type": "scan-report"}).status_code == 204
    refused(client.post(f"{TABLES}/none/metrics", json={}), 404, "NoSuchTableException")
    refused(client.post(f"{TABLES}/a/metrics", content=b"[]"), 400, "BadRequestException")
    refused(client.post(f"{TABLES}/a/metrics", content=b""), 400, "BadRequestException")
    refused(client.post(f"{TABLES}/a/metrics", content=b"[" * 100_000), 400, "BadRequestException")
    large = json.dumps({"x": "y" * iceberg_catalog.REPORT_BYTES_MAX})
    refused(client.post(f"{TABLES}/a/metrics", content=large), 413, "BadRequestException")


def test_foreign_metadata_are_not_served(served: Served) -> None:
    client, lake = served.client, served.lake
    table = lake.table("a")
    table.storage.create(metadata_name(table.id, 2), b'{"format-version": 2, "properties": {}}')
    assert "not written by Lakebed" in refused(client.get(f"{TABLES}/a"), 500, "InternalServerError")
    # The others are not affected.
    assert client.get(f"{TABLES}/b").status_code == 200


def test_parameters_of_later_clients_are_ignored(client: TestClient[Any]) -> None:
    assert client.get(f"{TABLES}/a", params={"referenced-by": "x", "new": "1"}).status_code == 200
