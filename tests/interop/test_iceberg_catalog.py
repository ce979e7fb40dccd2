"""PyIceberg and Polars read published tables through the Iceberg catalog of a service, by the examples of its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, NoSuchTableError, OAuthError, UnauthorizedError

from tests.interop.iceberg_lakes import IcebergLake, iceberg_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

PAGE = "docs/open.md"


@pytest.fixture(scope="module", params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergLake]:
    with (
        pytest.MonkeyPatch.context() as patched,
        iceberg_lake(request.param, tmp_path_factory.mktemp("lake"), patched) as made,
    ):
        yield made


@pytest.fixture
def catalog(lake: IcebergLake) -> Catalog:
    return load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", token=lake.token)


def test_the_examples_of_the_page_give_the_rows_of_the_table(lake: IcebergLake) -> None:
    names: dict[str, Any] = {}
    for example in lake.examples("PyIceberg and Polars"):
        exec(compile(example, PAGE, "exec"), names)
    rows = lake.rows()
    wanted = [{"origin": row["origin"], "delay": row["delay"]} for row in rows if row["origin"] == "o1"]
    assert names["rows"].to_pylist() == wanted
    delays = {
        origin: [row["delay"] for row in rows if row["origin"] == origin] for origin in {r["origin"] for r in rows}
    }
    means = {origin: pytest.approx(sum(found) / len(found)) for origin, found in delays.items()}
    assert dict(names["delays"].iter_rows()) == means


def test_all_rows_of_each_snapshot(lake: IcebergLake, catalog: Catalog) -> None:
    table = catalog.load_table("default.flights")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["origin"], row["number"])) == lake.rows()
    first, second = table.snapshots()
    counts = [table.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in (first, second)]
    assert counts == [1000, 1500]


def test_what_a_client_finds(lake: IcebergLake, catalog: Catalog) -> None:
    assert catalog.list_namespaces() == [("default",)]
    assert catalog.list_namespaces("default") == []
    assert catalog.namespace_exists("default")
    assert not catalog.namespace_exists(("default", "more"))
    assert catalog.list_tables("default") == [("default", "flights")]
    assert catalog.list_views("default") == []
    assert catalog.table_exists("default.flights")
    for name in ("none", "kept_back", "a/b", "a\x1fb"):
        assert not catalog.table_exists(("default", name))
        with pytest.raises(NoSuchTableError):
            catalog.load_table(("default", name))
    with pytest.raises(NoSuchNamespaceError, match="no namespace 'other'"):
        catalog.list_tables("other")
    referenced = load_catalog(
        "lake", type="rest", uri=f"{lake.url}/iceberg", token=lake.token, **{"snapshot-loading-mode": "refs"}
    )
    found = referenced.load_table("default.flights")
    assert [one.snapshot_id for one in found.snapshots()] == [found.metadata.current_snapshot_id]
    assert found.scan().count() == 1500


def test_what_a_client_may_not_do(lake: IcebergLake, catalog: Catalog) -> None:
    table = catalog.load_table("default.flights")
    with pytest.raises(NotImplementedError, match="does not support endpoint: POST"):
        table.delete("origin = 'o1'")
    with pytest.raises(NotImplementedError, match="does not support endpoint: DELETE"):
        catalog.drop_table("default.flights")
    some = load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", token=lake.partial)
    assert some.list_tables("default") == []
    with pytest.raises(ForbiddenError, match="read whole files"):
        some.load_table("default.flights")
    with pytest.raises(UnauthorizedError):
        load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", token="lakebed_none")
    with pytest.raises(OAuthError, match="lakebed token create"):
        load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", credential="id:secret")
