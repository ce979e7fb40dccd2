"""Compaction, splitting and collection on Spark: whatever is done in whatever order, the rows stay the same."""

from tests.spark.cases import anything_in_any_order, write_parquet


def test_the_same_rows_come_back_after_anything_in_any_order(pipeline, lake, tmp_path):
    """Of ingest jobs, in place of imports, and without Spark: tests/pipeline/test_maintenance.py."""

    def imported(table, *parts):
        pipeline.bulk_import(table, write_parquet(tmp_path / str(table.version), *parts))

    anything_in_any_order(pipeline, lake, 0, imported)
