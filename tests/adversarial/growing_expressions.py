"""Every function of the engine over large arguments, in every expression that the engine evaluates in this process.

    python growing_expressions.py ARGUMENTS

Prints for each expression that was accepted, and took much, what it took; then how many were accepted and refused.
Memory is measured as in :mod:`tests.adversarial.bounded`.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
HEADROOM_MIB = 1000
"""An expression that takes more fails in place of the machine."""

SHOWN_MIB = 100
ROWS = 8192

ARGUMENTS = ("t", "1000000000", f"'{'x' * 300}'", "a", "n")


def calls(names: list[str], most: int) -> Iterator[str]:
    """Every function with up to three of these arguments, also of another spelling, and around itself."""
    for name in names:
        for count in (0, 1, 2):
            for others in itertools.product(ARGUMENTS[1:most], repeat=count):
                for first in ARGUMENTS[:most]:
                    yield f"{name}({', '.join((first, *others))})"
        yield f'"{name}"(t, 1000000000)'
        yield f"{name.upper()}(concat(t, '{'y' * 300}'), {name}(t, 30), 'z')"
        yield f"{name}({name}({name}(t, 16), 16), 16)"


FORMS = (
    "t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t || t",
    "CASE WHEN n > 0 THEN repeat('x', 1000000000) ELSE t END",
    f"coalesce(NULLIF(t, t), '{'x' * 100_000}')",
    "array_to_string(make_array(t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t), repeat('x', 1000000))",
    "replace(t, '', repeat('x', 1000000))",
    "regexp_replace(t, '.', repeat('x', 100000), 'g')",
    "CAST(repeat(t, 1000000) AS VARCHAR) LIKE '%x%'",
    "arrow_cast(t, 'FixedSizeBinary(1000000000)')",
    "arrow_cast(NULL, 'FixedSizeList(1000000000, Int64)')",
)
QUERIES = (
    "SELECT k, max(repeat(t, 1000000)) AS t FROM rows GROUP BY k",
    "WITH RECURSIVE r AS (SELECT 'x' AS t UNION ALL SELECT t || t FROM r) SELECT k, t FROM rows, r",
    "SELECT k, t || t AS t FROM (SELECT k, repeat(t, 12) AS t FROM rows)",
    "SELECT k, max(t) AS t FROM (SELECT k, array_to_string(array_agg(t) OVER (), ',') AS t FROM rows) GROUP BY k",
)


def main(arguments: int) -> None:
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    import pyarrow as pa

    import lakebed
    from lakebed.engine.computed_columns import checked, generate
    from lakebed.engine.predicate import check_where, constant, is_true, row_engine
    from lakebed.engine.row_query import RowQuery
    from lakebed.files.merging.merge_query import evaluate
    from tests.adversarial.bounded import status_mib

    texts = ["a,b c" * 100] * ROWS
    schema = lakebed.Schema({"k": "int64"}, values={"t": "string", "n": "int64", "a": pa.list_(pa.string())})
    columns = {"k": [1] * ROWS, "t": texts, "n": [1_000_000_000] * ROWS, "a": [["a", "b"]] * ROWS}
    rows = pa.RecordBatch.from_pydict(columns, schema=schema.arrow)

    def where(text: str) -> Any:
        return is_true(rows, check_where(f"({text}) IS NULL", schema.arrow))

    def generated(text: str) -> Any:
        made = lakebed.Schema({"k": "int64", "g": lakebed.Generated("string", text)}, values={"t": "string"})
        return generate(next(iter(checked(made).generated)), rows.select(["t"]))

    def fed(text: str) -> Any:
        return [one.num_rows for one in RowQuery(text.replace("FROM rows", "FROM source"), rows.schema).rows([rows])]

    most = status_mib("VmData") * MIB + HEADROOM_MIB * MIB
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    where("t = 'a'")
    taken: dict[str, int] = {"accepted": 0, "refused": 0, "failed": 0}

    def measured(way: str, act: Callable[[str], Any], text: str) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        before = status_mib("VmRSS")
        try:
            act(text)
            became = "accepted"
        except lakebed.Error as error:
            became = "refused" if "too much memory" in error.message else "failed"
        except Exception:  # noqa: BLE001 - the engine's own, of a query that is evaluated directly
            became = "failed"
        taken[became] += 1
        took = status_mib("VmHWM") - before
        if took > SHOWN_MIB:
            print(json.dumps({"way": way, "text": text[:120], "mib": took, "became": became}), flush=True)

    for text in (*calls(sorted(row_engine().udfs()), arguments), *FORMS):
        measured("where", where, text)
    for text in FORMS:
        measured("generated", generated, text)
        measured("constant", lambda one: constant(one, pa.string()), text)
    from lakebed.engine.datafusion import query_context

    gathered = [f"SELECT k, {name}({one}) AS t FROM rows GROUP BY k" for name in sorted(query_context().udafs())
                for one in ("t", "t, 'x'", "t, 1000000000", "n")]  # fmt: skip
    for text in (*QUERIES, *gathered):
        measured("merge", lambda one: evaluate(one, schema, rows), text)
        measured("view", fed, text)
    print(json.dumps(taken), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
