"""The loop of a service, with real work in worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.model.operations import OPERATIONS
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.service import Service
from lakebed.server.service.status import TableStatus
from lakebed.upkeep.compaction import plan as compaction
from tests import pages
from tests.waiting import until

SCHEMA = Schema({"key": "string"}, values={"value": "int64"})
QUICK = ServiceLimits(follow_s=0.05, periods=dict.fromkeys(OPERATIONS, 0.05))


@pytest.fixture
def service(lake: lakebed.Instance) -> Iterator[Service]:
    with Service(lake, launcher="in-process[1]", limits=QUICK) as running:
        yield running


def rows(first: int, count: int = 100) -> pa.Table:
    return pa.table({"key": [f"{first + n:09d}" for n in range(count)], "value": list(range(count))})


def found(service: Service, name: str = "flights") -> TableStatus:
    until(lambda: service.status().table(name))
    table = service.status().table(name)
    assert table is not None
    return table


def test_a_service_ingests_merges_and_splits_what_comes(
    service: Service, lake: lakebed.Instance, tmp_path: Path
) -> None:
    table = lake.create_table("flights", SCHEMA, settings={"split_rows": 300, "ingest_age_s": 0})
    for number in range(5):
        pq.write_table(rows(100 * number), tmp_path / f"{number}.parquet")
        table.submit(str(tmp_path / f"{number}.parquet"))
    until(lambda: found(service).rows == 500 and found(service).partitions > 1)
    assert found(service).operation("ingest").last_outcome is not None
    assert not table.requests().num_rows
    assert table.count().rows == 500


def test_a_pause_is_obeyed_until_it_ends(service: Service, lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA)
    lake.pause("flights", "compaction")
    for number in range(5):
        table.write(rows(number))
    until(lambda: found(service).backlog.runs_due == 5)
    assert found(service).paused == ("compaction",)
    assert found(service).operation("compaction").last_begun is None
    lake.resume("flights")
    until(lambda: found(service).files == 1)


def test_writers_and_ingests_that_wait_for_compaction_are_not_waited_for_by_it(
    service: Service, lake: lakebed.Instance, tmp_path: Path
) -> None:
    """Compaction waits while many requests are open, but not for an ingest that a full partition refuses."""
    settings = {"runs_max": 4, "ingest_age_s": 0, "compaction_batch_runs": 2}
    table = lake.create_table("flights", SCHEMA, settings=settings, online=False)
    for number in range(5):
        table.write(rows(number))
    with pytest.raises(lakebed.ContentionError, match="runs_max"):
        table.write(rows(5))
    files = [tmp_path / "in" / f"{number}.parquet" for number in range(compaction.LIMITS.requests_open_max + 1)]
    files[0].parent.mkdir()
    for file in files:
        pq.write_table(rows(6)[:1], file)
    table.submit(str(tmp_path / "in"))
    lake.set_online("flights", True)
    until(lambda: not table.requests().num_rows)

    def is_written() -> bool:
        with suppress(lakebed.ContentionError):
            table.write(rows(5))
            return True
        return False

    until(is_written)
    assert table.count().rows == 600 + len(files)


def test_a_view_follows_its_source(service: Service, lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA)
    view = lake.create_view_table("copies", source="flights", select="SELECT key FROM source", row_key=["key"])
    table.write(rows(0))
    until(lambda: found(service, "copies").rows == 100)
    assert view.count().rows == 100


def test_a_table_that_is_dropped_leaves_the_service(service: Service, lake: lakebed.Instance) -> None:
    lake.create_table("flights", SCHEMA)
    until(lambda: service.status().table("flights"))
    lake.drop_table("flights")
    until(lambda: not service.status().tables)


def test_a_damaged_file_blocks_neither_other_partitions_nor_other_tables(
    service: Service, lake: lakebed.Instance
) -> None:
    table = lake.create_table("flights", SCHEMA, split_points=["000000500"], online=False)
    for _ in range(5):
        table.write(rows(0))
        table.write(rows(600))
    _damage(lake, table)
    lake.set_online("flights", True)
    until(lambda: found(service).operation("compaction").last_error)
    until(lambda: found(service).files == 6)
    status = found(service).operation("compaction")
    assert status.last_error is not None
    assert status.last_error.code == "object_damaged", status.last_error.message


def _damage(instance: lakebed.Instance, table: lakebed.Table) -> None:
    """Change a byte of a file of the first partition."""
    state = table.state()
    (file, *_) = state.files_of(state.partitions.ids[0])
    folder = Path(instance.url.removeprefix("file://"))
    (path,) = folder.rglob(f"*{file.id}.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_a_round_does_all_that_is_due_and_ends(lake: lakebed.Instance) -> None:
    for name in ("flights", "fares"):
        table = lake.create_table(name, SCHEMA, settings={"split_rows": 300})
        for number in range(5):
            table.write(rows(100 * number))
    status = Service(lake, launcher="in-process[1]").run_once()
    assert [(table.name, table.rows, table.backlog.runs_due) for table in status.tables] == [
        ("fares", 500, 0),
        ("flights", 500, 0),
    ]
    assert all(table.partitions > 1 for table in status.tables)
    assert not status.work


def test_a_service_that_may_not_maintain_only_follows(lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA)
    with Service(lake, limits=QUICK, maintain=False) as service:
        for number in range(5):
            table.write(rows(number))
        until(lambda: found(service).backlog.runs_due == 5)
        assert not service.status().maintains
    assert table.version == 6


def test_the_code_of_the_page_on_the_service_runs(lake: lakebed.Instance, capsys: pytest.CaptureFixture[str]) -> None:
    lake.create_table("flights", SCHEMA)
    (block,) = pages.blocks("docs/service.md", "python")
    pages.run(block.replace(("/tmp/lake", lake.url)), {})
    assert capsys.readouterr().out == "flights 0 0\n"


def test_two_services_of_one_instance_lose_and_double_nothing(lake: lakebed.Instance) -> None:
    table = lake.create_table("flights", SCHEMA, settings={"split_rows": 400})
    other = lakebed.open(lake.url)
    with (
        Service(lake, launcher="in-process[1]", limits=QUICK) as one,
        Service(other, launcher="in-process[1]", limits=QUICK) as two,
    ):
        for number in range(12):
            table.write(rows(100 * number))
        until(lambda: found(one).rows == found(two).rows == 1200 and found(one).partitions > 1)
        until(lambda: not found(one).backlog.runs_due and not table.state().jobs)
    keys = table.to_arrow().column("key").to_pylist()
    assert len(keys) == len(set(keys)) == 1200


def test_a_table_that_cannot_be_followed_keeps_no_other_from_it(service: Service, lake: lakebed.Instance) -> None:
    broken = lake.create_table("broken", SCHEMA)
    entry = Path(lake.url.removeprefix("file://"), f"tables/{broken.id}/log").joinpath(f"{2:020d}.ndjson")
    entry.write_bytes(b"no entry")
    until(lambda: service.status().table("broken"))
    until(lambda: found(service, "broken").error)
    table = lake.create_table("flights", SCHEMA)
    for number in range(5):
        table.write(rows(number))
    # It may have merged four of them before the fifth came.
    until(lambda: len(table.state().files_of(1)) < 4)
    assert found(service, "broken").error is not None
