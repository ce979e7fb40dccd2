"""What the data source does on a Spark that lacks something, before anything is opened."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import LongType, StructField, StructType

import lakebed
from lakebed.spark.datasource.data_source import DefaultSource

COLUMNS = StructType([StructField("k", LongType(), nullable=False)])


@pytest.fixture
def source(tmp_path):
    lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "int64"}))
    return DefaultSource({"instance": str(tmp_path / "lake"), "table": "t", "push_filters": "true"})


@pytest.mark.parametrize(
    ("version", "call", "said"),
    [
        (
            "4.0.1",
            lambda source: source.streamWriter(COLUMNS, overwrite=False),
            "4.1 or later, and this is 4.0.1",
        ),
        ("4.1.0", lambda source: source.streamReader(COLUMNS), "4.2 or later, and this is 4.1.0"),
    ],
)
def test_a_stream_that_spark_cannot_make_is_refused_with_the_remedy(source, monkeypatch, version, call, said):
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(lakebed.UsageError, match=said) as caught:
        call(source)
    assert "batch" in str(caught.value)


def test_filters_are_not_pushed_where_spark_passes_none(source, monkeypatch):
    monkeypatch.delattr(DataSourceReader, "pushFilters", raising=False)
    with pytest.raises(lakebed.UsageError, match="push_filters needs Spark"):
        source.reader(COLUMNS)
