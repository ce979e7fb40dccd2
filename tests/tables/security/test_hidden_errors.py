"""Rows that cannot be merged or filtered: principals that may not see them get an error that says no more."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, Custom, Schema, SetFilter
from lakebed.errors import Code, Error, UsageError
from lakebed.read.snapshot.restricted import evaluating
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.security.sql import run_statement
from tests.raising import raises

PART = Principal("part", (Role("berlin", Permission.READ, frozenset({"t"}), where="tenant = 'berlin'"),))
SECRETS = ("SECRET", "oslo", "200", "10000", "hidden text")
SCHEMA = Schema({"k": "string"}, {"tenant": "string"}, {"n": "int8", "m": "map<string, int8>", "s": "string"})
CUSTOM = "SELECT k, tenant, {}::tinyint AS n, first_value(m) AS m, max(s) AS s FROM rows GROUP BY k, tenant"
MERGES = {
    "sum": Aggregate({"n": "sum", "m": "last", "s": "last"}),
    "product": Aggregate({"n": "product", "m": "last", "s": "last"}),
    "map_sum": Aggregate({"n": "last", "m": "map_sum", "s": "last"}),
    "custom division": Custom(sql=CUSTOM.format("(CASE WHEN count(*) > 1 THEN 1 / (count(*) - 2) ELSE max(n) END)")),
    "custom cast": Custom(sql=CUSTOM.format("CAST(CASE WHEN count(*) > 1 THEN max(s) ELSE '1' END AS bigint)")),
    "custom narrow": Custom(sql=CUSTOM.format("sum(n)")),
    "filter": SetFilter("CAST(s AS bigint) > 0"),
    "filter division": SetFilter("1 / (100 - n) < 5"),
}

READS = {
    "get": lambda lake, part: part.get("SECRET"),
    "get_many": lambda lake, part: part.get_many(["SECRET", "x"]),
    "scan": lambda lake, part: part.scan().read_all(),
    "scan reverse": lambda lake, part: part.scan(reverse=True).read_all(),
    "scan of a key": lambda lake, part: part.scan(where="k = 'SECRET'").read_all(),
    "scan of a version": lambda lake, part: part.at(version=part.version).scan().read_all(),
    "count": lambda lake, part: part.count(),
    "sample": lambda lake, part: part.sample(5),
    "prefixes": lambda lake, part: part.prefixes(1),
    "changes": lambda lake, part: part.changes(0).read_all(),
    "to_arrow": lambda lake, part: part.scan(columns=["n"]).read_all(),
    "sql": lambda lake, part: run_statement(PART, lake, "SELECT * FROM t", None).read_all(),
    "sql of a key": lambda lake, part: run_statement(PART, lake, "SELECT n FROM t WHERE k = 'SECRET'", None).read_all(),
    "sql count": lambda lake, part: run_statement(PART, lake, "SELECT count(*) FROM t", None).read_all(),
}


def row(k, tenant, n, s):
    return pa.table({"k": [k], "tenant": [tenant], "n": [n], "m": [[("secret", n)]], "s": [s]}, SCHEMA.arrow)


@pytest.fixture(params=MERGES, scope="module")
def lake(request, tmp_path_factory):
    made = lakebed.create(str(tmp_path_factory.mktemp("hidden") / "lake"))
    mode = MERGES[request.param]
    table = (
        made.create_table("t", SCHEMA) if isinstance(mode, SetFilter) else made.create_table("t", SCHEMA, merge=mode)
    )
    table.write(row("x", "berlin", 1, "1"))
    for _ in range(2):
        table.write(row("SECRET", "oslo", 100, "hidden text"))
    if isinstance(mode, SetFilter):
        table.alter(mode)
    return made


def message_of(read):
    """Return what the error of a read says; nothing if it has none."""
    try:
        read()
    except Error as error:
        return f"{error} {error!r} {error.facts}"
    return ""


@pytest.mark.parametrize("read", READS)
def test_an_error_about_hidden_rows_does_not_name_them(lake, read):
    part = PART.readable(lake.table("t"))
    whole = lake.table("t")
    with raises(Code.AGGREGATE_TOO_LARGE, Code.EXPRESSION_FAILED, Code.MERGE_FUNCTION_FAILED):
        whole.scan().read_all()
    message = message_of(lambda: READS[read](lake, part))
    assert not [secret for secret in SECRETS if secret in message], message
    assert (part.get("x") if read != "get" else part.get("y")).num_rows == (read != "get")


def test_errors_about_the_request_are_as_for_anyone(lake):
    part = PART.readable(lake.table("t"))
    for bad in (lambda: part.get(1), lambda: part.scan(columns=["none"]), lambda: part.get_many([2])):
        with pytest.raises(Error, match=r"k|none"):
            bad()
    with pytest.raises(UsageError, match="as it is"), evaluating():
        raise lakebed.errors.Code.ARGUMENT_INVALID("as it is")
