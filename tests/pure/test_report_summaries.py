"""What reports say in a sentence."""

from dataclasses import replace

import pytest

from lakebed.errors import Code
from lakebed.upkeep.compaction.run import CompactionReport
from lakebed.upkeep.export.query_result import StatementReport
from lakebed.upkeep.export.run import ExportReport
from lakebed.upkeep.ingest_jobs import FailedRequest, IngestReport
from lakebed.upkeep.migration.run import MigrationReport
from lakebed.upkeep.publish.run import PublishReport
from lakebed.upkeep.retention.run import CollectionReport
from lakebed.upkeep.splitting.run import JoinReport, SplitPartitionReport, SplitReport
from lakebed.upkeep.view_feed import RefreshReport
from lakebed.write.attach import AttachReport
from lakebed.write.imports import ImportReport

KIB = 1024
BAD = FailedRequest("id", "/in/a.parquet", "not Parquet", rejected=True)
IMPORTED = ImportReport("t", "job", 5000, 4000, 2, 3 * KIB, 7, 1, 1, 4, partitions_split=1, rejected=3, quarantine="/q")
COMPACTED = CompactionReport("t", 1, 1, 2, 5, 3, 10, KIB, KIB, 4, (), (), (), None)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            IMPORTED,
            (
                "5,000 rows imported, merged to 4,000, as 2 files of 3.0 KiB; 1 partition split before; "
                "3 rows rejected, in /q"
            ),
        ),
        (AttachReport("t", 5, 1, KIB, 4), "5 rows attached as 1 file of 1.0 KiB"),
        (AttachReport("t", 0, 0, 0, None), "no rows to attach; nothing was added"),
        (AttachReport("t", 0, 0, 0, 4, repeated=True), "attached before; nothing was added"),
        (MigrationReport("t", 4, "/src", "9", 8, 8), "8 rows migrated, of version 9 there; as many as the source says"),
        (ExportReport("t", 4, "s3://b/out", 8, 1, KIB), "8 rows exported as 1 file of 1.0 KiB to s3://b/out"),
        (StatementReport("s3://b/out", 8, 1, KIB, {"t": 4}), "8 rows exported as 1 file of 1.0 KiB to s3://b/out"),
        (
            PublishReport("t", 4, 2, "s3://b/v2.metadata.json", 1, 3, 1, 0),
            "published as s3://b/v2.metadata.json: 3 files added, 1 dropped",
        ),
        (
            PublishReport("t", 4, 2, "s3://b/v2.metadata.json"),
            "no newer rows; published as s3://b/v2.metadata.json",
        ),
        (SplitReport("t", (SplitPartitionReport(1, 2),), (), 4), "1 partition cut"),
        (JoinReport("t", ((1, 2), (4, 5)), (), 4), "2 groups of partitions became one each"),
        (COMPACTED, "5 files became 3, 2 runs concatenated"),
        (CompactionReport("t", 0, 0, 0, 0, 0, 0, 0, 0, None, (), (), (), None), "nothing to compact"),
        (
            IngestReport("t", 1, 2, KIB, 9, 8, 1, KIB, 4, (BAD,)),
            (
                "2 requests of 1.0 KiB ingested by 1 job: 9 rows, merged to 8, as 1 file of 1.0 KiB; "
                "1 request failed: /in/a.parquet: not Parquet"
            ),
        ),
        (IngestReport("t"), "nothing ingested"),
        (CollectionReport("t", 2, KIB, 3), "2 files of 1.0 KiB deleted; 3 files without reference still too young"),
        (CollectionReport("t", dry_run=True), "0 files of 0 bytes would be deleted"),
    ],
)
def test_a_report_says_what_was_done(report, said):
    assert report.summary == said
    assert f"version {getattr(report, 'version', None)}" not in said  # which stands beside it


def test_a_refresh_says_what_it_read():
    report = RefreshReport("v", "t", 1, 3, 5, 2, anew=False)
    assert report.summary == "5 rows of t read; it has version 3"
    assert replace(report, since=3, rows_read=0).summary == "nothing to do; it has version 3 of t"


def test_a_report_says_whether_there_was_work_and_which_part_failed():
    empty = CompactionReport("t", 0, 0, 0, 0, 0, 0, 0, 0, None, (), (), (), None)
    assert [one.idle for one in (IngestReport("t"), empty, CollectionReport("t", dry_run=True))] == [True] * 3
    assert [one.idle for one in (COMPACTED, IMPORTED, AttachReport("t", 0, 0, 0, None))] == [False] * 3
    failed = IngestReport("t", failed=(BAD,))
    assert (failed.error, failed.failure.code) == (None, Code.REQUEST_FAILED)
    assert replace(failed, version=4).failure is None, "others were ingested"
    away = Code.STORE_UNAVAILABLE("the store does not answer")
    assert replace(failed, errors=(away,)).failure is away
    assert (COMPACTED.done, COMPACTED.committed) == ((10, KIB), 4)
    assert ExportReport("t", 4, "s3://b/out", 8, 1, KIB).committed is None, "it changes no table"
