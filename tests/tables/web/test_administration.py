"""Who may change a table over HTTP, and see what it is made of: each operation by readers, writers, and by parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from lakebed.server.security.principal import Permission, Principal, Role
from tests.tables.web.cases import served

READER, WRITER, ADMIN = "reader", "writer", "admin"
PRINCIPALS = {
    READER: Principal.everywhere(READER, Permission.READ),
    WRITER: Principal.everywhere(WRITER, Permission.WRITE),
    ADMIN: Principal.everywhere(ADMIN, Permission.ADMIN),
    # Writes to all tables but for a role that shows a part of this one.
    "part": Principal(
        "part",
        (
            Role("writer", Permission.WRITE),
            Role("part", Permission.READ, frozenset({"t"}), where="k = 'a'", hidden=frozenset({"v"})),
        ),
    ),
}


class ByName:
    """Takes the name of a principal for a token."""

    def authenticate(self, authorization: str | None) -> Principal:
        return PRINCIPALS[(authorization or "").removeprefix("Bearer ")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with served(Path(tmp_path_factory.mktemp("served")), authenticator=ByName()) as made:
        yield made


VIEW = {"source": "t", "select": "SELECT k FROM source", "row_key": ["k"]}

OPERATIONS = {
    "partitions": ("GET", "/v1/tables/t/partitions", None, READER),
    "files": ("POST", "/v1/tables/t/files", {}, READER),
    "failures": ("GET", "/v1/tables/t/failures", None, READER),
    "outcome": ("GET", "/v1/tables/t/outcomes/once", None, READER),
    "remove": ("POST", "/v1/tables/t/remove", {"prefixes": [["none"]]}, WRITER),
    "restore": ("POST", "/v1/tables/t/restore", {"at": "2"}, WRITER),
    "withdraw": ("POST", "/v1/tables/t/requests/withdraw", {"requests": ["none"]}, WRITER),
    "alter": ("POST", "/v1/tables/t/alter", {"changes": [{"change": "filter", "predicate": None}]}, ADMIN),
    "pause": ("PATCH", "/v1/tables/t", {"pause": ["gc"]}, ADMIN),
    "verify": ("POST", "/v1/tables/t/verify", {"files": True}, ADMIN),
    "view": ("POST", "/v1/views", {**VIEW, "name": "w"}, ADMIN),
    "indexes": ("GET", "/v1/tables/t/indexes", None, READER),
    "index": ("POST", "/v1/indexes", {"name": "t_by_n", "table": "t", "on": ["n"]}, ADMIN),
    "refresh": ("POST", "/v1/tables/t/refresh", {}, WRITER),
    "insert": ("POST", "/v1/sql/execute", {"statement": "INSERT INTO t (k) SELECT k FROM t LIMIT 0"}, WRITER),
    "drop table": ("POST", "/v1/sql/execute", {"statement": "DROP TABLE IF EXISTS none"}, ADMIN),
    "drop index": ("DELETE", "/v1/indexes/t", None, ADMIN),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_needs_its_permission_on_the_whole_table(client: TestClient[Any], operation: str) -> None:
    method, path, body, needed = OPERATIONS[operation]
    ranks = (READER, WRITER, ADMIN)
    for name in PRINCIPALS:
        answer = client.request(method, path, json=body, headers={"Authorization": f"Bearer {name}"})
        allowed = name in ranks and ranks.index(name) >= ranks.index(needed)
        assert (answer.status_code != 403) == allowed, (name, answer.text)
        if not allowed:
            assert answer.json()["error"]["code"] == "permission_missing"


def test_a_view_of_a_part_is_refused(client: TestClient[Any]) -> None:
    """It would show all rows of its source to those who may read it."""
    PRINCIPALS["maker"] = Principal(
        "maker", (Role("m", Permission.ADMIN, frozenset({"made"})), *PRINCIPALS["part"].roles)
    )
    try:
        answer = client.post("/v1/views", json={**VIEW, "name": "made"}, headers={"Authorization": "Bearer maker"})
    finally:
        del PRINCIPALS["maker"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_missing")


def test_an_index_is_made_listed_refreshed_and_dropped(client: TestClient[Any]) -> None:
    admin = {"Authorization": f"Bearer {ADMIN}"}

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = client.request(method, path, json=body, headers=admin)
        return answer.json() if answer.is_success else answer.json()["error"]["code"]

    ask("DELETE", "/v1/indexes/t_by_n")
    made = ask("POST", "/v1/indexes", {"name": "t_by_n", "table": "t", "on": ["n"]})
    assert (made["index"], made["table"]) == ("t_by_n", "t")
    latest = ask("GET", "/v1/tables/t/indexes")["version"]
    assert ask("GET", "/v1/tables/t/indexes")["indexes"] == [{"index": "t_by_n", "on": ["n"], "version": 0}]
    for anew in (False, True):
        report = ask("POST", "/v1/tables/t_by_n/refresh", {"anew": anew})
        assert (report["view"], report["until"], report["anew"]) == ("t_by_n", latest, True)
    assert ask("GET", "/v1/tables/t/indexes")["indexes"] == [{"index": "t_by_n", "on": ["n"], "version": latest}]
    assert ask("POST", "/v1/tables/t/refresh", {}) == "argument_invalid"
    assert ask("DELETE", "/v1/indexes/t") == "argument_invalid"
    assert ask("DELETE", "/v1/indexes/t_by_n") == {"dropped": "t_by_n"}
    assert ask("GET", "/v1/tables/t/indexes")["indexes"] == []


DROPS = {
    "index": ("DELETE", "/v1/indexes/mine_by_n", None),
    "table": ("DELETE", "/v1/tables/mine_by_n", None),
    "index by SQL": ("POST", "/v1/sql/execute", {"statement": "DROP INDEX mine_by_n"}),
    "table by SQL": ("POST", "/v1/sql/execute", {"statement": "DROP TABLE mine_by_n"}),
}


@pytest.mark.parametrize("drop", DROPS)
def test_an_index_is_dropped_by_admins_of_its_table_alone(client: TestClient[Any], drop: str) -> None:
    """Reads of the table would become slow without it."""
    PRINCIPALS["maker"] = Principal("maker", (Role("m", Permission.ADMIN, frozenset({"mine_by_n"})),))
    admin, maker = ({"Authorization": f"Bearer {name}"} for name in (ADMIN, "maker"))
    try:
        client.post("/v1/indexes", json={"name": "mine_by_n", "table": "t", "on": ["n"]}, headers=admin)
        method, path, body = DROPS[drop]
        refused = client.request(method, path, json=body, headers=maker)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_missing")
        assert client.request(method, path, json=body, headers=admin).status_code == 200
        assert client.get("/v1/tables/mine_by_n/schema", headers=admin).status_code == 404
    finally:
        del PRINCIPALS["maker"]


def test_a_table_that_sql_renamed_has_its_old_name_no_more(client: TestClient[Any]) -> None:
    """Though the service has just read it by this name."""
    admin = {"Authorization": f"Bearer {ADMIN}"}
    for statement in ("CREATE TABLE old (k BIGINT, PRIMARY KEY (k))", "ALTER TABLE old RENAME TO renamed"):
        assert client.post("/v1/sql/execute", json={"statement": statement}, headers=admin).status_code == 200
        assert client.get("/v1/tables/old/schema", headers=admin).status_code == (404 if "RENAME" in statement else 200)
    client.delete("/v1/tables/renamed", headers=admin)


def test_an_index_of_a_part_is_refused(client: TestClient[Any]) -> None:
    """It would have the values of rows and fields that its maker does not see."""
    roles = (Role("m", Permission.ADMIN), *PRINCIPALS["part"].roles)
    PRINCIPALS["maker"] = Principal("maker", roles)
    try:
        body = {"name": "made", "table": "t", "on": ["n"]}
        answer = client.post("/v1/indexes", json=body, headers={"Authorization": "Bearer maker"})
    finally:
        del PRINCIPALS["maker"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_missing")


def test_changes_are_those_of_visible_rows(client: TestClient[Any]) -> None:
    def changes(name: str, **body: Any) -> Any:
        return client.post(
            "/v1/tables/t/changes", json={"since": 0, **body}, headers={"Authorization": f"Bearer {name}"}
        )

    rows = [json.loads(line) for line in changes(READER).text.splitlines()]
    assert [row["k"] for row in rows] == ["a", "a", "b", "c"]
    rows = [json.loads(line) for line in changes("part").text.splitlines()]
    assert [row["k"] for row in rows] == ["a", "a"]
    assert set(rows[0]) == {"_version", "_change", "_range", "k", "n", "b"}
    assert changes("part", where="n > 0").status_code == 403
    assert changes("part", columns=["v"]).status_code == 400
