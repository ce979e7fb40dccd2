"""Publications pushed to catalogs of PyIceberg: SQL in SQLite, Glue by moto; foreign commits are found and kept."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog import _ENV_CONFIG, Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import Engine, event

import lakebed
from lakebed import Schema
from lakebed.cli import main
from lakebed.errors import Code, Error
from lakebed.read.inspect.hooks import Delivered
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.publications import CatalogSubscriber
from lakebed.server.service.service import Service
from lakebed.server.service.status import CatalogStatus
from lakebed.server.service.subscriptions import Subscription
from lakebed.upkeep.publish.catalogs import CatalogEntry, Target, push
from lakebed.upkeep.publish.run import Published, current, publish
from tests.tables.cli.shapes import differences, documented
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.table.table import Table

TARGET = Target("prod", ("lake",))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = lakebed.create(tmp_path / "lake").create_table("t", Schema({"k": "int64"}, values={"v": "string"}))
    made.set(publish="iceberg")
    return made


@pytest.fixture(autouse=True)
def _configuration() -> Iterator[None]:
    """PyIceberg reads its configuration once."""
    before = _ENV_CONFIG.config
    yield
    _ENV_CONFIG.config = before


def configure(**properties: str) -> None:
    """Make these the properties of the catalog ``prod``, as a file ``.pyiceberg.yaml`` does."""
    _ENV_CONFIG.config = {"catalog": {"prod": properties}}


@pytest.fixture
def sql(tmp_path: Path) -> Catalog:
    configure(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    return load_catalog("prod")


def published(table: Table, *keys: int) -> Published:
    """A publication of the table with more rows."""
    table.write(pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]}))
    publish(table)
    found = current(table)
    assert found is not None
    return found


def keys_in(catalog: Catalog, name: str = "lake.t") -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["k"].to_pylist())


def commit_abroad(catalog: Catalog) -> str:
    """A commit of another program to the table of the catalog; the metadata that it wrote."""
    with catalog.load_table("lake.t").transaction() as change:
        change.set_properties({"written-by": "another"})
    return catalog.load_table("lake.t").metadata_location


def test_a_table_is_registered_and_then_replaced(table: Table, sql: Catalog) -> None:
    first = published(table, 1, 2)
    pushed = push(first, "t", TARGET)
    assert pushed == CatalogEntry("prod", "lake.t", first.number, first.metadata_location, changed=True)
    assert keys_in(sql) == [1, 2]
    second = published(table, 3)
    assert push(second, "t", TARGET).changed
    assert sql.load_table("lake.t").metadata_location == second.metadata_location
    assert keys_in(sql) == [1, 2, 3]


def test_a_push_that_is_repeated_or_late_changes_nothing(table: Table, sql: Catalog) -> None:
    first, second = published(table, 1), published(table, 2)
    push(second, "t", TARGET)
    assert not push(second, "t", TARGET).changed
    late = push(first, "t", TARGET)
    assert (late.changed, late.metadata_location) == (False, second.metadata_location)
    assert keys_in(sql) == [1, 2]


def test_a_foreign_commit_is_found_and_kept(table: Table, sql: Catalog) -> None:
    first, second = published(table, 1), published(table, 2)
    push(first, "t", TARGET)
    written = commit_abroad(sql)
    with pytest.raises(Error, match="drop it from the catalog") as caught:
        push(second, "t", TARGET)
    assert caught.value.code is Code.PUBLICATION_FOREIGN
    assert sql.load_table("lake.t").metadata_location == written
    # The remedy.
    sql.drop_table("lake.t")
    assert push(second, "t", TARGET).changed
    assert keys_in(sql) == [1, 2]


def test_a_foreign_commit_between_the_look_and_the_change(table: Table, sql: Catalog) -> None:
    push(published(table, 1), "t", TARGET)
    second = published(table, 2)
    written: list[str] = []

    def commit_before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE iceberg_tables") and not written:
            written.append("")
            written.append(commit_abroad(sql))

    event.listen(Engine, "before_cursor_execute", commit_before)
    try:
        with pytest.raises(Error) as caught:
            push(second, "t", TARGET)
    finally:
        event.remove(Engine, "before_cursor_execute", commit_before)
    assert caught.value.code is Code.PUBLICATION_FOREIGN
    assert sql.load_table("lake.t").metadata_location == written[1]


def test_a_table_of_another_origin_is_not_taken(table: Table, sql: Catalog) -> None:
    push(published(table, 1), "t", TARGET)
    other = table_again(table)
    with pytest.raises(Error) as caught:
        push(published(other, 7), "t", TARGET)
    assert caught.value.code is Code.PUBLICATION_FOREIGN
    assert keys_in(sql) == [1]


def table_again(table: Table) -> Table:
    """A table of the same name and schema in another instance."""
    made = lakebed.create(f"{table.storage.url}-other").create_table("t", table.schema)
    made.set(publish="iceberg")
    return made


def test_pushes_at_the_same_time_end_at_the_latest(table: Table, sql: Catalog) -> None:
    found = [published(table, number) for number in range(6)]
    errors: list[BaseException] = []

    def run(one: Published) -> None:
        try:
            push(one, "t", TARGET)
        except BaseException as error:  # noqa: BLE001 - of a thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # SQLite may have one writer at a time; a push that failed is made again by the next one.
    assert all(isinstance(error, Error) and error.code is Code.STORE_UNAVAILABLE for error in errors), errors
    assert push(found[-1], "t", TARGET).metadata_location == found[-1].metadata_location
    assert keys_in(sql) == list(range(6))


def test_a_table_whose_metadata_were_deleted_is_replaced(table: Table, sql: Catalog) -> None:
    first = published(table, 1)
    push(first, "t", TARGET)
    second = published(table, 2)
    table.storage.delete([first.metadata_location.removeprefix(f"{table.storage.url}/")])
    assert push(second, "t", TARGET).changed
    assert keys_in(sql) == [1, 2]


def test_catalogs_that_cannot_be_used(table: Table) -> None:
    found = published(table, 1)
    with pytest.raises(Error, match=r"catalog 'nowhere' cannot be opened: .*pyiceberg.yaml") as caught:
        push(found, "t", Target("nowhere"))
    assert caught.value.code is Code.ARGUMENT_INVALID
    configure(type="in-memory")
    with pytest.raises(Error, match="InMemoryCatalog; tables can be pushed to SQL, Glue and REST"):
        push(found, "t", TARGET)
    configure(type="sql", uri="sqlite:////nowhere/catalog.db")
    with pytest.raises(Error, match=r"catalog prod failed: .*unable to open") as caught:
        push(found, "t", TARGET)
    assert caught.value.code is Code.STORE_UNAVAILABLE


@pytest.mark.parametrize("text", ["", ".", "prod.", ".lake", "prod..lake"])
def test_a_target_that_is_none(text: str) -> None:
    with pytest.raises(Error, match=r"is not CATALOG or CATALOG\.NAMESPACE"):
        Target.parse(text)


def test_targets() -> None:
    assert Target.parse("prod") == Target("prod", ("default",))
    assert Target.parse("prod.lake.silver") == Target("prod", ("lake", "silver"))
    assert str(Target.parse("prod.lake.silver")) == "prod.lake.silver"


def test_glue_replaces_the_version_that_was_read(table: Table) -> None:
    from moto import mock_aws

    with mock_aws():
        properties = {"glue.region": "us-east-1", "glue.access-key-id": "test", "glue.secret-access-key": "test"}
        configure(type="glue", **properties)
        glue = load_catalog("prod")
        push(published(table, 1), "t", TARGET)
        table.alter(lakebed.AddField("w", "int64"))
        second = published(table, 2)
        assert push(second, "t", TARGET).changed
        assert keys_in(glue) == [1, 2]
        stored = glue.glue.get_table(DatabaseName="lake", Name="t")["Table"]
        assert [column["Name"] for column in stored["StorageDescriptor"]["Columns"]] == ["k", "v", "w"]
        assert not push(second, "t", TARGET).changed
        with pytest.raises(NoSuchTableError):
            glue.load_table("lake.none")


def test_a_service_pushes_each_publication_and_goes_on_after_a_failure(table: Table, tmp_path: Path) -> None:
    published(table, 1)
    said: list[str] = []
    configure(type="sql", uri="sqlite:////nowhere/catalog.db")
    limits = ServiceLimits(follow_s=0.05, follow_max_s=0.1)
    with Service(lakebed.open(tmp_path / "lake"), limits=limits, catalogs=[TARGET], report=said.append) as service:
        until(lambda: any("catalog prod.lake" in one and "unable to open" in one for one in said))
        (shown,) = service.status().tables[0].catalogs
        assert (shown.catalog, shown.version) == ("prod.lake", 0)
        assert "unable to open" in str(shown.error)
        configure(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
        sql = load_catalog("prod")
        until(lambda: sql.table_exists("lake.t") and keys_in(sql) == [1])
        table.write(pa.table({"k": [2], "v": ["v2"]}))
        until(lambda: keys_in(sql) == [1, 2])
        (status,) = service.status().tables
        assert status.published == table.version
        until(lambda: service.status().tables[0].catalogs == (CatalogStatus("prod.lake", table.version, None),))


def test_a_catalog_gets_a_version_that_was_published_again(table: Table, sql: Catalog) -> None:
    """By another process, with other rows."""
    table.write(pa.table({"k": [1], "v": ["v1"]}))
    publish(table)
    state = Subscription(table.id, table.id, table.version)
    subscriber = CatalogSubscriber(
        lakebed.open(table.storage.url), table.id, TARGET, lambda: {table.id: state}, look_s=0
    )
    numbers = []
    for raw in (None, True, False):
        publish(table, raw=raw)
        assert list(subscriber.deliver(Delivered(version=0), lambda: False)) == []
        numbers.append(sql.load_table("lake.t").metadata_location)
    found = current(table)
    assert found is not None
    assert len(set(numbers)) == 3
    assert numbers[-1] == found.metadata_location


def test_the_command_pushes_to_catalogs(table: Table, sql: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    table.write(pa.table({"k": [1], "v": ["v1"]}))
    words = ["--instance", table.storage.url, "--json", "publish", "t", "--catalog", "prod.lake", "--catalog", "prod"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert differences(document, documented()["publish"]) == []
    assert [(one["table"], one["changed"]) for one in document["catalogs"]] == [("lake.t", True), ("default.t", True)]
    assert keys_in(sql) == keys_in(sql, "default.t") == [1]
    assert main([*words[:5], "--catalog", "prod."]) == 2


# -- REST -------------------------------------------------------------------------------------------------------------


class RestCatalogServer(BaseHTTPRequestHandler):
    """What Iceberg's OpenAPI says of loading and registering tables, over the folders of this machine."""

    tables: ClassVar[dict[str, str]]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if self.path.endswith("/v1/config"):
            self.answer(200, {"defaults": {}, "overrides": {}})
        elif name in self.tables:
            self.answer(200, self.loaded(name))
        else:
            self.fail(404, "NoSuchTableException")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/namespaces"):
            self.answer(200, {"namespace": asked["namespace"], "properties": {}})
        elif asked["name"] in self.tables and not asked.get("overwrite"):
            self.fail(409, "AlreadyExistsException")
        else:
            self.tables[asked["name"]] = asked["metadata-location"]
            self.answer(200, self.loaded(asked["name"]))

    def loaded(self, name: str) -> dict[str, object]:
        location = self.tables[name]
        metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
        return {"metadata-location": location, "metadata": metadata, "config": {}}

    def fail(self, status: int, kind: str) -> None:
        self.answer(status, {"error": {"message": kind, "type": kind, "code": status}})

    def answer(self, status: int, document: dict[str, object]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def rest() -> Iterator[dict[str, str]]:
    """The tables of a REST catalog, which is the catalog ``prod``, by name."""
    tables: dict[str, str] = {}
    handler = type("Handler", (RestCatalogServer,), {"tables": tables})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        configure(type="rest", uri=f"http://127.0.0.1:{server.server_port}")
        yield tables
        server.shutdown()
        thread.join()


def test_rest_replaces_what_is_ours(table: Table, rest: dict[str, str]) -> None:
    first, second = published(table, 1), published(table, 2)
    push(first, "t", TARGET)
    assert rest == {"t": first.metadata_location}
    assert push(second, "t", TARGET).changed
    assert not push(first, "t", TARGET).changed
    assert rest == {"t": second.metadata_location}
    rest["t"] = published(table_again(table), 7).metadata_location
    with pytest.raises(Error) as caught:
        push(published(table, 3), "t", TARGET)
    assert caught.value.code is Code.PUBLICATION_FOREIGN
