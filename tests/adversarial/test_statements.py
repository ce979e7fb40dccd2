"""Statements made to crash the process: each is answered or refused, by every interface and on every stack."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError
from lakebed.clock import random_token
from tests.adversarial import statements
from tests.adversarial.statements import CONDITIONS, INTERFACES, STATEMENTS

ROOT = Path(__file__).parents[2]
SMALL_STACK_KIB = 512
FATAL = "the process died"


def outcomes(interface, cases, stack_kib=0):
    """Return the outcome of each case in one child process."""
    words = [sys.executable, "-m", "tests.adversarial.statements", interface, ",".join(cases), str(stack_kib)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3_000, check=False)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return {case: said.get(case, f"{FATAL} with {done.returncode}: {done.stderr[-500:]}") for case in cases}


def harmless(found):
    return {case: what for case, what in found.items() if what not in ("answered", "UsageError")}


def cases_of(interface, *counts, **fewer):
    names = STATEMENTS if interface == "sql" else CONDITIONS
    return [f"{name}:{min(count, fewer.get(name, count))}" for name in names for count in counts]


ANSWERED = {"or": 3_000, "in": 3_000, "not-in": 3_000, "ranges": 300, "texts": 700}
"""Terms of statements that are answered, in a time that grows with their number."""


@pytest.mark.parametrize("stack_kib", [SMALL_STACK_KIB, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "interface", ["sql", *(pytest.param(interface, marks=pytest.mark.slow) for interface in INTERFACES[1:])]
)
def test_a_statement_of_10_000_terms_kills_no_process(interface, stack_kib):
    cases = cases_of(interface, 10_000, **ANSWERED)
    assert harmless(outcomes(interface, cases, stack_kib)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("stack_kib", [SMALL_STACK_KIB, 0])
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_statement_of_any_length_kills_no_process(interface, stack_kib):
    assert harmless(outcomes(interface, cases_of(interface, 10, 49, 99, 249, 499, 1_000, 100_000), stack_kib)) == {}


@pytest.mark.slow
def test_a_sum_just_inside_the_limits_is_answered_on_a_small_stack():
    """It takes the engine seconds. Texts that are put together are a chain of as many operators."""
    assert set(outcomes("sql", ["plus:490"], SMALL_STACK_KIB).values()) == {"answered"}


@pytest.mark.slow
def test_long_alternatives_and_lists_are_answered():
    wanted = ["or:100000", "ranges:10000", "texts:10000", "in:100000", "not-in:100000", "and:400", "plus:400"]
    assert set(outcomes("sql", [*wanted, "unions:400", "with:200"]).values()) == {"answered"}
    assert set(outcomes("scan", wanted).values()) == {"answered"}


def test_a_statement_just_inside_the_limits_is_answered_on_a_small_stack():
    inside = ["and:490", "concat:490", "casts:490", "brackets:40", "functions:40", "unions:490", "with:240"]
    assert set(outcomes("sql", inside, SMALL_STACK_KIB).values()) == {"answered"}


def rows(schema, **columns):
    return pa.table({name: list(values) for name, values in columns.items()}, schema=schema.arrow)


@pytest.fixture
def lake():
    lake = lakebed.create(f"memory://{random_token()}")
    lake.create_table("t", statements.SCHEMA).write(rows(statements.SCHEMA, a=range(5), b=range(5), s="xxxxx"))
    return lake


def test_a_refusal_says_what_is_too_much_and_what_to_do_instead(lake):
    with pytest.raises(UsageError, match=r"9,999 operators in one chain; at most 500 .* Use IN"):
        lake.sql(f"SELECT {'+'.join(['a'] * 10_000)} FROM t")
    with pytest.raises(UsageError, match=r"CUBE|4,096 are allowed"):
        lake.sql("SELECT 1 FROM t GROUP BY CUBE (" + ", ".join(f"a + {i}" for i in range(30)) + ")")
    with pytest.raises(UsageError, match="nests brackets, CASE or NOT too deep"):
        lake.sql(f"SELECT {'(' * 80}a{')' * 80} FROM t")
    with pytest.raises(UsageError, match="characters"):
        lake.sql(f"SELECT '{'x' * 9_000_000}'")
    with pytest.raises(UsageError, match="must be a text"):
        lake.sql("SELECT '\ud800'")
    with pytest.raises(UsageError, match="must be a text"):
        lake.sql(7)


def test_a_long_chain_means_what_it_says(lake):
    many = " OR ".join(f"a = {i} AND b BETWEEN {i} AND {i} + 1 OR a IS NULL" for i in range(2, 90))
    assert [row["a"] for row in lake.sql(f"SELECT a FROM t WHERE NOT ({many}) ORDER BY a").read_all().to_pylist()] == [
        0,
        1,
    ]
    case = f"SELECT CASE WHEN {many} THEN a OR_A ELSE -1 END AS x FROM t".replace("a OR_A", "a")
    assert sorted(row["x"] for row in lake.sql(case).read_all().to_pylist()) == [-1, -1, 2, 3, 4]
    assert lake.table("t").scan(where=many).read_all().column("a").to_pylist() == [2, 3, 4]


def test_a_query_without_columns_has_as_many_rows_as_there_are(lake):
    assert lake.sql("SELECT FROM t").read_all().num_rows == 5
    assert sum(batch.num_rows for batch in lake.sql("SELECT FROM t WHERE a > 2")) == 2


def test_a_nul_in_the_name_of_a_column_is_refused(lake):
    with pytest.raises(UsageError, match="NUL character in its name; give it another name with AS"):
        lake.sql('SELECT a AS "x\0y" FROM t')


def test_rows_of_several_files_can_be_ordered_by_a_column_that_equals_another(tmp_path):
    lake = lakebed.create(str(tmp_path))
    lake.sql_engine()[0].in_memory_rows = 0
    table = lake.create_table("t", Schema({"k": "string", "n": "int64"}, {}, {"v": "string"}))
    for file in range(3):
        keys = [f"k{i}" for i in range(10)]
        table.write(rows(table.schema, k=keys, n=[file] * 10, v=[f"k{i % 5}" for i in range(10)]))
    found = lake.sql("SELECT k FROM t WHERE k = v ORDER BY k DESC").read_all().column("k").to_pylist()
    assert found == [f"k{i}" for i in (4, 3, 2, 1, 0) for _ in range(3)]


@pytest.mark.parametrize(
    "statement",
    ["SELECT regexp_replace(s, '(', '') FROM t", "SELECT 1 / (a - a) FROM t", "SELECT CAST(s AS int) FROM t"],
)
def test_what_fails_on_a_row_is_a_fault_of_the_statement(tmp_path, statement):
    lake = lakebed.create(str(tmp_path))
    lake.sql_engine()[0].in_memory_rows = 0
    lake.create_table("t", statements.SCHEMA).write(rows(statements.SCHEMA, a=[1], b=[2], s=["x"]))
    with pytest.raises(UsageError, match="the query failed on a row"):
        lake.sql(statement).read_all()
