"""Submitted queries: how they run, who may see their rows, and that a query outlives the service that ran it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient
from msgspec import structs

import lakebed
from lakebed import KeyRange, clock
from lakebed.cli.run import main
from lakebed.errors import Code, UsageError
from lakebed.jobs.job_progress import Progress
from lakebed.jobs.pipeline import Pipeline
from lakebed.model.files import query_object
from lakebed.read.inspect.history import read_copies
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.service.engines import Engines
from lakebed.server.service.query_runs import SubmittedQueries
from lakebed.server.service.query_work import QueryLimits, QueryWork
from lakebed.server.service.service import Service
from lakebed.server.web.app import RequestLimits, make_app
from lakebed.table.tracker import submitted_queries
from lakebed.table.tracker.listing import run_details
from lakebed.table.tracker.runs import RunPlace
from lakebed.table.tracker.submitted_queries import AskedScan, QueryAttempt, QueryObjects, SubmittedQuery
from lakebed.upkeep.export.publication import MANIFEST, SUCCESS
from lakebed.upkeep.retention.erasure.plan import Where
from lakebed.upkeep.retention.run import gc
from tests.processes.web.serving import serving
from tests.raising import raises
from tests.soaked import each_once
from tests.tables.cli.shapes import differences, documented
from tests.tables.retention.cases import Ahead, through
from tests.waiting import until

LIMITS = QueryLimits(running_max=1, kept_s=100, statement_memory_bytes=2**30, statement_s=60)
LOCAL = Principal.everywhere("local", Permission.ADMIN)
SCHEMA = lakebed.Schema({"k": "int64"}, {}, {"n": "int64", "secret": "string"})
COUNT = 90
ROWS = pa.table(
    {
        "k": pa.array(range(COUNT), pa.int64()),
        "n": pa.array([i % 7 for i in range(COUNT)], pa.int64()),
        "secret": [f"s{random.Random(i).randbytes(300).hex()}" for i in range(COUNT)],
    }
)
PARTLY = Role("partly", Permission.READ, frozenset({"t"}), where="n < 5", masks=(("secret", "'x'"),))
READER = Principal("reader", (PARTLY,))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = lakebed.create(str(tmp_path_factory.mktemp("queries") / "lake"))
    made.create_table("t", SCHEMA, split_points=[30, 60], settings={"file_bytes": 4096}).write(ROWS)
    return made


@pytest.fixture(scope="module")
def engines(lake: Any) -> Iterator[Engines]:
    made = Engines(lake)
    yield made
    made.close()


@pytest.fixture
def queries(lake: Any, engines: Engines) -> Iterator[SubmittedQueries]:
    made = SubmittedQueries(lake, engines, LIMITS)
    yield made
    made.close()


def scan_of(lake: Any, **options: Any) -> AskedScan:
    table = lake.table("t")
    asked: dict[str, Any] = {"ranges": (("", None),), **options}
    return AskedScan(table="t", table_id=table.id, version=table.version, **asked)


def ended(queries: SubmittedQueries, query_id: str) -> Any:
    query = queries.query(query_id)
    until(lambda: queries.state(query).state not in submitted_queries.UNDER_WAY and query_id not in queries._runs)
    return queries.state(query)


def fetched(queries: SubmittedQueries, query_id: str) -> pa.Table:
    schema, batches = queries.rows(queries.query(query_id))
    return pa.Table.from_batches(batches, schema)


def found(queries: SubmittedQueries, principal: Principal = LOCAL, **asked: Any) -> pa.Table:
    state = ended(queries, queries.submit(principal, {}, **asked).id)
    assert (state.state, state.error) == ("completed", None)
    return fetched(queries, state.id)


def test_rows_of_queries_are_in_erasure_reports_until_they_are_deleted(
    tmp_path: Path, lake: Any, queries: SubmittedQueries
) -> None:
    """Kept rows of scans and statements, folders at URLs, queries under way, and records that cannot be read."""

    def places(where: str = "k = 7 AND n = 0") -> tuple[dict[str, int], list[str]]:
        found = Pipeline(lake, launcher="in-process[1]").erase_report("t", where=where)
        rows = {one.object: one.rows or -one.unclear_rows for one in found.places if one.where is Where.QUERY}
        return rows, [one.reason for one in found.unread]

    lake.create_table("other", SCHEMA)
    url = str(tmp_path / "out")
    asked: dict[str, dict[str, Any]] = {
        "scan": {"scan": scan_of(lake)},
        "columns": {"scan": scan_of(lake, columns=("n",))},
        "statement": {"statement": 'SELECT k, n FROM "t" WHERE k < 9'},
        "elsewhere": {"scan": scan_of(lake), "url": url, "file_format": "csv"},
        "other": {"statement": "SELECT k + 7 AS k, 0 AS n FROM other"},
    }
    ids = {name: ended(queries, queries.submit(LOCAL, {}, **one).id).id for name, one in asked.items()}
    found, unread = places()
    by_name = {name: sum(rows for place, rows in found.items() if query in place) for name, query in ids.items()}
    # A result without the key cannot be judged: each of its rows may be meant.
    assert by_name == {"scan": 1, "columns": -COUNT, "statement": 1, "elsewhere": 1, "other": 0}
    assert not unread
    for name in ("scan", "columns", "statement"):
        queries.cancel(queries.query(ids[name]))
    assert list(places()[0]) == [place for place in found if ids["elsewhere"] in place]
    (record,) = [one for one in read_copies(lake.storage, lake.table("t").id) if one.url.endswith("/out")]
    assert record.kind == "query"

    waits = recorded(queries.query(ids["elsewhere"]), lake, url=None)
    assert places()[1] == ["the query has not ended: it may still write such rows"]
    lake.storage.replace(query_object(waits, "query.json"), b"{}")
    (reason,) = places()[1]
    assert "query.json" in reason
    lake.storage.delete([query_object(waits, "query.json")])


def recorded(query: SubmittedQuery, lake: Any, **changes: Any) -> str:
    """Another query on record, which no service has begun."""
    made = structs.replace(query, id=clock.new_id(), **changes)
    QueryObjects(lake.storage).submit(made)
    return made.id


def test_a_scan_is_divided_among_tasks_and_on_record_as_a_job(lake: Any, queries: SubmittedQueries) -> None:
    state = ended(queries, queries.submit(LOCAL, {"table": "t"}, scan=scan_of(lake)).id)
    assert (state.state, state.rows) == ("completed", COUNT)
    assert state.files > 2
    assert fetched(queries, state.id).equals(lake.table("t").to_arrow())
    lake.tracker.flush()
    details = run_details(lake.storage, state.id)
    assert (details.run.operation, details.run.table, details.run.outcome.value) == ("query", "t", "succeeded")
    assert len(details.tasks) == state.files
    assert sum(task.rows for task in details.tasks) == COUNT


SCANS: list[dict[str, Any]] = [
    {},
    {"columns": ("secret", "k")},
    {"where": "secret = 'x' AND k % 2 = 0"},
    {"where": "n = 6"},
    {"where": "k = 40 OR k = 70", "columns": ("n",)},
    {"limit": 3},
    {"limit": 0},
    {"reverse": True},
    {"reverse": True, "limit": 40, "where": "n <> 1"},
    {"raw": True, "columns": ("k", "secret")},
]


@each_once(repr, principal=[LOCAL, READER], options=SCANS)
def test_rows_are_those_of_a_scan_of_the_submitter(
    lake: Any, queries: SubmittedQueries, principal: Principal, options: dict[str, Any]
) -> None:
    expected = principal.readable(lake.table("t")).scan(**options).read_all()
    rows = found(queries, principal, scan=scan_of(lake, **options))
    assert rows.equals(expected)
    if principal is READER:
        assert not any(
            text.startswith("s") for name in ("secret",) if name in rows.column_names for text in rows[name].to_pylist()
        )


def test_a_statement_sees_what_the_roles_of_its_submitter_show(queries: SubmittedQueries) -> None:
    statement = "SELECT count(*) AS n, max(secret) AS s FROM t"
    assert found(queries, READER, statement=statement).to_pylist() == [{"n": 65, "s": "x"}]
    failed = ended(queries, queries.submit(READER, {}, statement="SELECT nothing FROM t").id)
    assert (failed.state, failed.error.code) == ("failed", "sql_invalid")
    with pytest.raises(UsageError, match="is failed"):
        fetched(queries, failed.id)


def test_a_query_without_rows_has_their_columns(lake: Any, queries: SubmittedQueries) -> None:
    rows = found(queries, scan=scan_of(lake, where="k > 1000", columns=("n",)))
    assert (rows.num_rows, rows.schema.names) == (0, ["n"])


def test_rows_go_to_an_empty_folder_in_a_format(lake: Any, queries: SubmittedQueries, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/out"
    scan = scan_of(lake, columns=("k",), where="k < 1")
    state = ended(queries, queries.submit(LOCAL, {}, scan=scan, url=url, file_format="csv").id)
    (file,) = (tmp_path / "out").glob("*.csv")
    assert file.read_text() == '"k"\n0\n'
    # The table has copies of other tests as well.
    assert [copy.url for copy in read_copies(lake.storage, lake.table("t").id)].count(url) == 1
    with pytest.raises(UsageError, match="are csv files at"):
        fetched(queries, state.id)
    with raises(Code.EXPORT_TARGET_NOT_EMPTY):
        queries.submit(LOCAL, {}, scan=scan, url=url)


# -- services that come and go -------------------------------------------------------------------------------------


def put_query(lake: Any, number: int | None = 1, *, age_s: float = 0.0, **asked: Any) -> SubmittedQuery:
    """A query of a service that died ``age_s`` seconds ago, during the attempt with this number."""
    query = SubmittedQuery(
        id=clock.new_id(),
        submitted_by="local",
        principal=LOCAL.to_json(),
        asked={},
        created_at=clock.now(),
        kept_s=100,
        **asked,
    )
    objects = QueryObjects(lake.storage)
    objects.submit(query)
    for attempt in range(1, (number or 0) + 1):
        made = attempt_of(attempt)
        then = made.updated_at - timedelta(seconds=age_s)
        assert objects.claim(query.id, structs.replace(made, updated_at=then))
        path = lake.storage.folder / query_object(query.id, f"attempt-{attempt:03d}.json")
        os.utime(path, (then.timestamp(), then.timestamp()))
    return query


def attempt_of(number: int) -> QueryAttempt:
    return QueryAttempt(number=number, token=f"t{number}", where=RunPlace("h", "p"), updated_at=clock.now())


def test_a_query_whose_service_died_is_taken_over(lake: Any, queries: SubmittedQueries) -> None:
    recent = put_query(lake, age_s=submitted_queries.LOST_S - 20, scan=scan_of(lake))
    queries.look()
    assert queries.state(recent).attempt == 1, "its service may live"
    QueryObjects(lake.storage).delete(recent.id)
    query = put_query(lake, age_s=submitted_queries.LOST_S + 1, scan=scan_of(lake))
    assert queries.state(query).state == "lost"
    queries.look()
    state = ended(queries, query.id)
    assert (state.state, state.attempt, state.rows) == ("completed", 2, COUNT)


def test_a_query_that_services_die_of_fails(lake: Any, queries: SubmittedQueries) -> None:
    query = put_query(lake, 3, age_s=submitted_queries.LOST_S + 1, scan=scan_of(lake))
    queries.look()
    assert queries.state(query).state == "failed"


def test_a_service_that_ends_leaves_its_queries_to_the_next(lake: Any, engines: Engines) -> None:
    first, second = (SubmittedQueries(lake, engines, LIMITS) for _ in range(2))
    ids = [
        first.submit(LOCAL, {}, statement=text).id
        for text in ("SELECT count(*) FROM t a, t b, t c, t d, t e", "SELECT 1")
    ]
    until(lambda: first.state(first.query(ids[0])).state == "running")
    first.close()
    second.cancel(second.query(ids[0]))
    second.look()
    assert ended(second, ids[0]).state == "cancelled"
    assert ended(second, ids[1]).state == "completed"
    second.close()


def test_a_query_is_cancelled_through_another_service(lake: Any, engines: Engines, queries: SubmittedQueries) -> None:
    query = queries.query(queries.submit(LOCAL, {}, statement="SELECT count(*) FROM t a, t b, t c, t d, t e").id)
    until(lambda: queries.state(query).state == "running")
    other = SubmittedQueries(lake, engines, LIMITS)
    assert other.cancel(query).state == "cancelled"
    queries.beat()
    until(lambda: not queries._cancel_stopped() and query.id not in queries._runs)
    assert queries.state(query).state == "cancelled"
    queries.cancel(query)
    with raises(Code.QUERY_NOT_FOUND):
        queries.query(query.id)
    other.close()


def test_the_first_of_two_attempts_that_publishes_is_the_result(lake: Any, engines: Engines) -> None:
    def ignore(_: Progress) -> None:
        pass

    work = QueryWork(lake, engines, LIMITS)
    query = put_query(lake, 2, scan=scan_of(lake))
    first = work.result(query, 1, ignore)
    manifest = lake.storage.get(f"queries/{query.id}/rows/{MANIFEST}")
    # The second one had begun before the first one published.
    lake.storage.delete([f"queries/{query.id}/rows/{MANIFEST}"])
    second = work.result(query, 2, ignore)
    assert set(first.files).isdisjoint(second.files)
    assert second.rows == first.rows == COUNT
    names = {one.name for one in lake.storage.list(f"queries/{query.id}/rows")}
    assert len(names) == len(second.files) + 2
    assert manifest is not None
    assert work.result(query, 3, ignore) == second


def test_a_publication_that_was_interrupted_is_finished_by_the_next_attempt(lake: Any, engines: Engines) -> None:
    """The folder has the rows of one attempt, and says that they are all."""
    work = QueryWork(lake, engines, LIMITS)
    query = put_query(lake, 2, scan=scan_of(lake))
    folder = f"queries/{query.id}/rows"
    result = work.result(query, 1, lambda _: None)
    whole = {one.name for one in lake.storage.list(folder)}
    # The service was killed after the manifest, and another attempt had sent a file.
    lake.storage.delete([f"{folder}/{SUCCESS}"])
    lake.storage.create(f"{folder}/part-00000-{query.id}-002-x.parquet", b"rows")
    assert work.result(query, 3, lambda _: None) == result
    assert {one.name for one in lake.storage.list(folder)} == whole


def test_queries_expire_with_their_rows(lake: Any, queries: SubmittedQueries) -> None:
    state = ended(queries, queries.submit(LOCAL, {}, statement="SELECT 1 AS one").id)
    gc(lake)
    assert queries.query(state.id)
    gc(through(lake, Ahead(lake.storage, timedelta(seconds=101))))
    assert not list(lake.storage.list("queries"))


# -- over HTTP -----------------------------------------------------------------------------------------------------


class Named:
    """Principals by the token that is their name."""

    def __init__(self, *principals: Principal) -> None:
        self.principals = {one.name: one for one in principals}

    def authenticate(self, authorization: str | None) -> Principal:
        assert authorization is not None
        return self.principals[authorization.removeprefix("Bearer ")]


@contextmanager
def served(lake: Any, named: Named, **limits: Any) -> Iterator[TestClient[Any]]:
    with (
        Service(lake, maintain=False) as service,
        TestClient(make_app(service, named, RequestLimits(**limits))) as client,
    ):
        yield client


def test_rows_are_given_to_their_submitter_and_to_admins(lake: Any, tmp_path: Path) -> None:
    admin, other = Principal.everywhere("admin", Permission.ADMIN), Principal.everywhere("other", Permission.READ)
    named = Named(READER, admin, other)

    def asked(who: str, method: str, path: str, **more: Any) -> Any:
        return client.request(method, path, headers={"Authorization": f"Bearer {who}"}, **more)

    with served(lake, named, sources=(f"file://{tmp_path}/out/",)) as client:
        scan = {"table": "t", "scan": {"ranges": [{"from": [10], "to": [13]}], "columns": ["k", "secret"]}}
        query = asked("reader", "POST", "/v1/queries", json=scan).json()["id"]
        until(lambda: asked("reader", "GET", f"/v1/queries/{query}").json()["state"] == "completed")
        rows = asked("reader", "GET", f"/v1/queries/{query}/rows").text.splitlines()
        assert [json.loads(row) for row in rows] == [{"k": k, "secret": "x"} for k in (10, 11)]
        for path in (f"/v1/queries/{query}", f"/v1/queries/{query}/rows"):
            assert asked("other", "GET", path).json()["error"]["code"] == "query_not_found"
            assert asked("admin", "GET", path).status_code == 200
        assert asked("other", "DELETE", f"/v1/queries/{query}").status_code == 404
        listed = {who: len(asked(who, "GET", "/v1/queries").json()["queries"]) for who in ("reader", "other", "admin")}
        assert listed["reader"] == 1
        assert listed["other"] == 0
        assert listed["admin"] >= 1
        # The roles of the submitter show less than when it asked.
        named.principals["reader"] = Principal(
            "reader", (Role("less", Permission.READ, frozenset({"t"}), where="n < 1"),)
        )
        assert asked("reader", "GET", f"/v1/queries/{query}").status_code == 200
        assert asked("reader", "GET", f"/v1/queries/{query}/rows").status_code == 403
        named.principals["reader"] = READER

        refused: list[tuple[dict[str, Any], int]] = [
            ({}, 400),
            ({"table": "t", "statement": "SELECT 1"}, 400),
            ({"statement": "SELECT 1", "scan": {}}, 400),
            ({"table": "t", "format": "csv"}, 400),
            ({"table": "t", "scan": {"where": "hidden > 1"}}, 400),
            ({"table": "u"}, 403),
            ({"table": "t", "url": f"file://{tmp_path}/elsewhere"}, 403),
        ]
        for body, status in refused:
            assert asked("reader", "POST", "/v1/queries", json=body).status_code == status, body
        assert listed == {
            who: len(asked(who, "GET", "/v1/queries").json()["queries"]) for who in ("reader", "other", "admin")
        }
        url = f"file://{tmp_path}/out/a"
        query = asked("reader", "POST", "/v1/queries", json={"statement": "SELECT 1 AS n", "url": url}).json()["id"]
        until(lambda: asked("reader", "GET", f"/v1/queries/{query}").json()["state"] == "completed")
        (file,) = (tmp_path / "out" / "a").glob("*.parquet")
        assert pq.read_table(file).to_pylist() == [{"n": 1}]


# -- the client and the commands -----------------------------------------------------------------------------------


def test_a_query_that_is_submitted_again_with_its_id_is_the_same(lake: Any, tmp_path: Path) -> None:
    """Also while it writes to a folder, which is not empty then, and at the same time."""
    admin = Principal.everywhere("admin", Permission.ADMIN)
    body = {"id": clock.new_id(), "table": "t", "url": str(tmp_path / "out")}

    def submit(client: TestClient[Any], token: str = "admin", **changes: Any) -> Any:
        return client.post("/v1/queries", json=body | changes, headers={"authorization": f"Bearer {token}"})

    with served(lake, Named(admin, READER), sources=(str(tmp_path),)) as client:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: submit(client), range(4)))
        assert {(one.status_code, one.json()["id"]) for one in answers} == {(202, body["id"])}
        until(lambda: submit(client).json()["state"] == "completed")
        assert submit(client).json()["rows"] == COUNT
        for refused in (submit(client, "reader"), submit(client, url=None), submit(client, id="../x")):
            assert refused.status_code == 400, refused.text
        listed = client.get("/v1/queries", headers={"authorization": "Bearer admin"}).json()["queries"]
        assert [one["id"] for one in listed].count(body["id"]) == 1
    assert sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").glob("*.parquet")) == COUNT


def test_clients_and_commands_submit_fetch_and_cancel(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str, code: int = 0) -> list[Any]:
        assert main(["--json", *words]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    with serving(lake) as url, lakebed.connect(url) as connected:
        monkeypatch.setenv("LAKEBED_SERVICE", url)
        query = connected.submit_scan(
            "t", KeyRange(5, 40), columns=["k"], where="n = 1", limit=3, at=lake.table("t").version
        )
        assert query.rows().read_all()["k"].to_pylist() == [8, 15, 22]
        assert query.wait(0.0).state == "completed"
        with pytest.raises(UsageError, match=r"failed: .*nothing"):
            connected.submit_sql("SELECT nothing FROM t").rows()
        name = {"query_id": "01a2b3c4-0000-7000-8000-000000000001"}
        assert connected.submit_sql("SELECT 1", **name).id == connected.submit_sql("SELECT 1", **name).id
        with pytest.raises(UsageError, match="another query has the id"):
            connected.submit_scan("t", **name)
        assert query.id in {state.id for state in connected.submitted_queries()}

        (submitted,) = run("query", "submit", "t", "--from", "5", "--to", "8", "--columns", "k")
        rows = run("query", "fetch", submitted["query"])
        assert rows == [{"k": 5}, {"k": 6}, {"k": 7}]
        assert main(["query", "fetch", submitted["query"], "--parquet", str(tmp_path / "rows.parquet")]) == 0
        assert pq.read_table(tmp_path / "rows.parquet").num_rows == 3
        (shown,), listed = run("query", "show", submitted["query"]), run("query", "list")
        assert shown in listed
        (cancelled,) = run("query", "drop", submitted["query"])
        run("query", "show", submitted["query"], code=4)
        documents = {"submit": submitted, "show": shown, "list": listed[0], "drop": cancelled, "fetch": rows[0]}
        for verb, document in documents.items():
            assert not differences(document, documented()[f"query {verb}"], verb)

    run("query", "submit", "t", "--sql", "SELECT 1", code=2)
    run("query", "submit", "--sql", "SELECT 1", "--where", "n = 1", code=2)
    monkeypatch.delenv("LAKEBED_SERVICE")
    run("query", "list", code=2)
