"""Stored texts in SQL name their dialect in the features of their document, and another dialect is refused by name."""

import datetime as dt
import json

import pyarrow as pa
import pytest

import lakebed
from lakebed import AddField, AgeOff, Aggregate, Custom, Generated, Latest, Schema, SetFilter, SetMerge
from lakebed.clock import new_id
from lakebed.errors import UnsupportedFormatError
from lakebed.model.documents import SQL_DIALECT
from lakebed.model.files import checkpoint_name, entry_name, query_object, table_prefix
from lakebed.model.state.codec import encode_transaction
from lakebed.model.state.table_state import ViewSource
from lakebed.model.state.transactions import CreateTable
from lakebed.server.security.roles import Permission, Role
from lakebed.server.security.stored import create_role
from lakebed.table.tracker.submitted_queries import QUERY, AskedScan, QueryObjects, SubmittedQuery
from tests.documents import rewritten

BY_QUERY = Custom(sql="SELECT k, max(n) AS n FROM rows GROUP BY k")


def features(lake, name):
    data = lake.storage.get(name)
    return json.loads(data.partition(b"\n")[0])["features"]


def features_by_version(lake, table):
    return [features(lake, entry_name(table_prefix(table.id), version)) for version in range(1, table.version + 1)]


def plain(lake, **options):
    return lake.create_table("t", Schema({"k": "string"}, values={"n": "int64"}), **options)


def test_a_table_without_sql_needs_no_feature(memory_lake):
    schema = Schema({"k": "string", "at": "timestamp[s]"}, values={"n": "int64"})
    table = memory_lake.create_table("t", schema, merge=Aggregate({"n": "sum"}))
    table.write(pa.table({"k": ["a"], "at": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("s")), "n": [1]}))  # noqa: DTZ001
    table.alter(AgeOff("at", days=1))
    table.alter(AddField("m", "int64", function="max"))
    memory_lake.create_table("u", schema).alter(SetMerge(Latest()))
    assert not any(features_by_version(memory_lake, table) + features_by_version(memory_lake, memory_lake.table("u")))


@pytest.mark.parametrize(
    ("make", "change", "expected"),
    [
        pytest.param(plain, SetFilter("n > 0"), [[], [SQL_DIALECT]], id="filter"),
        pytest.param(plain, SetMerge(BY_QUERY), [[], [SQL_DIALECT]], id="merge query"),
        pytest.param(
            lambda lake: plain(lake, merge=BY_QUERY),
            SetMerge(Latest()),
            [[SQL_DIALECT], []],
            id="created with a query",
        ),
        pytest.param(
            lambda lake: lake.create_table("t", Schema({"h": Generated("int64", "n / 2"), "n": "int64"})),
            AddField("v", "int8"),
            [[SQL_DIALECT], [SQL_DIALECT]],
            id="generated key",
        ),
    ],
)
def test_an_entry_with_sql_names_the_dialect(memory_lake, make, change, expected):
    table = make(memory_lake)
    table.alter(change)
    table.tag("now")
    assert features_by_version(memory_lake, table)[:2] == expected
    assert features(memory_lake, checkpoint_name(table_prefix(table.id), 2)) == expected[-1]


def test_a_view_names_the_dialect_of_its_query(memory_lake):
    view = ViewSource(plain(memory_lake).id, "SELECT k, n FROM source", 0)
    schema = Schema({"k": "string"}, values={"n": "int64"})
    assert encode_transaction(CreateTable("t", schema, {}, ())).features == ()
    assert encode_transaction(CreateTable("t", schema, {}, (), view=view)).features == (SQL_DIALECT,)


@pytest.mark.parametrize(("given", "expected"), [({"where": "n > 1"}, [SQL_DIALECT]), ({}, [])])
def test_roles_and_submitted_queries_name_it(memory_lake, given, expected):
    create_role(memory_lake.storage, Role("auditor", Permission.READ, frozenset({"t"}), **given))
    assert features(memory_lake, "access/roles/auditor.json") == expected
    scan = AskedScan(table="t", table_id=new_id(), version=1, ranges=(), **given)
    facts = {"submitted_by": "", "principal": {}, "asked": {}, "kept_s": 1.0}
    query = SubmittedQuery(id=new_id(), created_at=dt.datetime.now(dt.UTC), scan=scan, **facts)
    QueryObjects(memory_lake.storage).submit(query)
    assert features(memory_lake, query_object(query.id, QUERY)) == expected


def test_another_dialect_is_refused_by_name(memory_lake):
    table = plain(memory_lake)
    table.alter(SetFilter("n > 0"))
    name = entry_name(table_prefix(table.id), 2)
    memory_lake.storage.replace(
        name, rewritten(memory_lake.storage.get(name), features=[SQL_DIALECT, "sql-datafusion-2"])
    )
    table.log.wait_for_checkpoint()
    memory_lake.storage.delete([checkpoint_name(table_prefix(table.id))])
    with pytest.raises(UnsupportedFormatError, match="format 2 with sql-datafusion-2; this Lakebed reads format 2"):
        lakebed.open(memory_lake.url).table("t").scan().read_all()


def test_a_filter_from_before_there_were_features_is_still_read(memory_lake):
    table = plain(memory_lake)
    table.alter(SetFilter("n > 0"))
    name = entry_name(table_prefix(table.id), 2)
    memory_lake.storage.replace(name, rewritten(memory_lake.storage.get(name)))
    table.log.wait_for_checkpoint()
    memory_lake.storage.delete([checkpoint_name(table_prefix(table.id))])
    assert features(memory_lake, name) == []
    again = lakebed.open(memory_lake.url).table("t")
    assert again.state().row_filter.predicate == "n > 0"
