"""A child process that sends one statement to a small table, on a stack of a given size: it answers, refuses, or
dies.
"""

from __future__ import annotations

import sys
import threading

import pyarrow as pa

import lakebed
from lakebed.errors import Error

SCHEMA = lakebed.Schema(row_key={"a": "int64"}, values={"b": "int64", "s": "string"})


def chain(sign, operand, count):
    return f" {sign} ".join(operand.format(i=i) for i in range(count))


def around(opening, inner, closing, count):
    return opening * count + inner + closing * count


CONDITIONS = {
    "or": lambda n: chain("OR", "a = {i}", n),
    "ranges": lambda n: chain("OR", "(a >= {i} AND a < {i} + 1)", n),
    "texts": lambda n: chain("OR", "s LIKE '%{i}%'", n),
    "and": lambda n: chain("AND", "a <> {i}", n),
    "not-or": lambda n: (
        f"NOT ({chain('OR', 's LIKE {i}', n)})".replace("LIKE ", "LIKE '%").replace(" OR", "' OR") + "'"
    ),
    "plus": lambda n: chain("+", "a", n) + " = 0",
    "concat": lambda n: chain("||", "s", n) + " = 'x'",
    "brackets": lambda n: around("(", "a = 1", ")", n),
    "functions": lambda n: around("abs(", "a", ")", n) + " = 1",
    "not": lambda n: "NOT " * n + "a = 1",
    "minus": lambda n: "- " * n + "a = 1",
    "cases": lambda n: around("CASE WHEN a = 1 THEN 1 ELSE ", "a", " END", n) + " = 1",
    "is-null": lambda n: "a" + " IS NULL" * n,
    "casts": lambda n: "a" + "::bigint" * n + " = 1",
    "elements": lambda n: "a" + "[1]" * n + " = 1",
    "intervals": lambda n: "interval " * n + "'1' day = 1",
    "in": lambda n: f"a IN ({', '.join(map(str, range(n)))})",
    "not-in": lambda n: f"a NOT IN ({', '.join(map(str, range(n)))})",
    "text": lambda n: f"s = '{'x' * 100 * n}'",
    "unclosed": lambda n: "(a = 1 OR " * n,
}
STATEMENTS = {
    **{name: lambda n, make=make: f"SELECT count(*) FROM t WHERE {make(n)}" for name, make in CONDITIONS.items()},
    "subqueries": lambda n: around("SELECT a FROM (", "SELECT a FROM t", ")", n),
    "exists": lambda n: "SELECT a FROM t WHERE " + around("EXISTS (SELECT 1 FROM t WHERE ", "a = 1", ")", n),
    "unions": lambda n: chain("UNION ALL", "SELECT a FROM t", n),
    "intersects": lambda n: chain("INTERSECT", "SELECT a FROM t", n),
    "with": lambda n: (
        "WITH c0 AS (SELECT * FROM t)"
        + "".join(f", c{i + 1} AS (SELECT * FROM c{i})" for i in range(n))
        + f" SELECT * FROM c{n}"
    ),
    "doubling": lambda n: (
        "WITH c0 AS (SELECT a FROM t)"
        + "".join(f", c{i + 1} AS (SELECT a FROM c{i} UNION ALL SELECT a FROM c{i})" for i in range(n))
        + f" SELECT count(*) FROM c{n}"
    ),
    "joins": lambda n: "SELECT t.a FROM t" + "".join(f" JOIN t t{i} ON t.a = t{i}.a" for i in range(n)),
    "columns": lambda n: f"SELECT {', '.join(f'a + {i} AS a{i}' for i in range(n))} FROM t",
    "cube": lambda n: f"SELECT count(*) FROM t GROUP BY CUBE ({', '.join(f'a + {i}' for i in range(n))})",
    "explains": lambda n: "EXPLAIN " * n + "SELECT 1",
    "types": lambda n: f"SELECT CAST(a AS {around('ARRAY<', 'INT', '>', n)}) FROM t",
}
INTERFACES = ("sql", "scan", "field")


def ask(interface, name, count):
    lake = lakebed.create(f"memory://{interface}-{name}-{count}")
    if interface == "field":
        expression = f"CASE WHEN {CONDITIONS[name](count)} THEN 1 ELSE 2 END"
        schema = lakebed.Schema({"g": lakebed.Generated("int64", expression)}, {}, {"a": "int64", "s": "string"})
        lake.create_table("t", schema).write(pa.table({"a": [1, 2], "s": ["x", "y"]}))
        return
    table = lake.create_table("t", SCHEMA)
    table.write(pa.table({"a": range(3), "b": range(3), "s": ["x", "y", "z"]}, schema=SCHEMA.arrow))
    if interface == "sql":
        lake.sql(STATEMENTS[name](count)).read_all()
    else:
        table.scan(where=CONDITIONS[name](count)).read_all()


def main(interface, cases, stack_kib):
    """Print the outcome of each case, one per line."""

    def all_of_them():
        for case in cases.split(","):
            name, count = case.split(":")
            try:
                ask(interface, name, int(count))
                print(case, "answered", flush=True)
            except Error as error:
                print(case, type(error).__name__, flush=True)

    if int(stack_kib):
        threading.stack_size(int(stack_kib) * 1024)
    thread = threading.Thread(target=all_of_them)
    if int(stack_kib):
        thread.start()
        thread.join()
    else:
        all_of_them()


if __name__ == "__main__":
    main(*sys.argv[1:])
