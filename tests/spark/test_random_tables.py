"""Random tables on Spark: imported, read with pushed filters, compacted and exported, against a plain model."""

from __future__ import annotations

import datetime as dt
import operator
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from tests.adversarial.random_tables.history import History
from tests.adversarial.random_tables.model import Column, Row
from tests.adversarial.random_tables.readers import Ways
from tests.soaked import few
from tests.spark.cases import pushes_filters

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    import lakebed
    from lakebed import Pipeline

KINDS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string",
    "binary", "binary2", "uuid", "date32", "decimal5", "decimal20", "decimal38", "timestamp_s", "timestamp_ms",
    "timestamp_us", "timestamp_s_utc", "timestamp_us_utc", "timestamp_us_berlin", "json", "list", "lists", "struct",
    "map",
)  # fmt: skip
SEEDS = few(range(40), 1)
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def literal(column: Column, content: Any) -> Any:
    """A content as a value that Spark compares with the column."""
    kind = column.kind.type
    if pa.types.is_timestamp(kind):
        seconds, rest = divmod(content * 1_000_000, {"s": 1, "ms": 10**3, "us": 10**6}[kind.unit])
        assert not rest
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC if kind.tz else None) + dt.timedelta(microseconds=seconds)
    if pa.types.is_date(kind):
        return dt.date(1970, 1, 1) + dt.timedelta(content)
    return str(content) if kind == pa.uuid() else content


def filtered(chance: Random, frame: DataFrame, history: History) -> tuple[DataFrame, list[Row], str]:
    """The frame with some filters, the rows of the model that pass, and the filters as text."""
    rows, said = history.model.sorted(), []
    plain = [c for c in history.model.columns if c.kind.is_key and not c.kind.name.startswith("uint64")]
    for column in chance.sample(plain, min(len(plain), chance.choice([1, 1, 2]))):
        number, kind = column.number, column.kind
        contents = [chance.choice(kind.contents) for _ in range(2)]
        ranks = [kind.rank(content) for content in contents]
        values = [literal(column, content) for content in contents]
        shown: SparkColumn = f.col(column.name)
        known = [row for row in rows if row[number] is not None]
        match chance.choice(["compare", "compare", "in", "not in", "null", "not null"]):
            case "in":
                frame, rows = frame.where(shown.isin(values)), [r for r in known if kind.rank(r[number]) in ranks]
            case "not in":
                frame, rows = frame.where(~shown.isin(values)), [r for r in known if kind.rank(r[number]) not in ranks]
            case "null":
                frame, rows = frame.where(shown.isNull()), [r for r in rows if r[number] is None]
            case "not null":
                frame, rows = frame.where(shown.isNotNull()), known
            case _:
                compare = chance.choice(COMPARISONS)
                said.append(compare.__name__)
                frame = frame.where(compare(shown, f.lit(values[0])))
                rows = [r for r in known if compare(kind.rank(r[number]), ranks[0])]
        said.append(f"{column.name} {values}")
    return frame, rows, f"{said}"


@pushes_filters
@pytest.mark.parametrize("seed", SEEDS)
def test_spark_shows_the_rows_of_a_plain_model(
    spark: SparkSession, lake: lakebed.Instance, pipeline: Pipeline, tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    history = History(Ways(lake, None, None, tmp_path, ""), seed, KINDS)
    model, table = history.model, history.table
    source = tmp_path / "source"
    source.mkdir()
    rows = [history.row(chance) for _ in range(40)]
    if model.mode == "keep all":
        pq.write_table(model.table(rows), source / "rows.parquet")
        assert pipeline.bulk_import(table, str(source)).rows == len(rows)
        model.write(rows)
    for step in range(6):
        history.change(Random(seed * 1000 + step))
    for turn in range(2):
        frame = spark.read.format("lakebed").option("instance", lake.url).option("table", history.name).load()
        visit = history.visit(chance)
        visit.same(frame.toArrow(), model.rows, ordered=False)
        for _ in range(4):
            some, wanted, said = filtered(chance, frame, history)
            try:
                visit.same(some.toArrow(), wanted, ordered=False)
            except BaseException as error:
                error.add_note(f"{history} where {said}")
                raise
        if not turn:
            pipeline.compact(table, strategy="full")
    pipeline.export(table, str(tmp_path / "out"))
    found = pa.concat_tables(
        [pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))] or [model.table([])]
    )
    history.visit(chance).same(found, model.sorted())
