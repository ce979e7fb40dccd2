"""What each map task of a bulk import reads."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.bulk_import.map_inputs import TASK_BYTES_MIN, SourceGroup, divide_groups
from lakebed.jobs.executor import Root, TableCall
from lakebed.jobs.this_thread import ThisThread

UNIT = TASK_BYTES_MIN


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "cores", "tasks"),
    [
        ([4, 4, 4, 4], 100, 1, [[4, 4, 4, 4]]),
        # Fewer bytes than the memory limit allows one task are work for every core.
        ([4, 4, 4, 4], 100, 2, [[4, 4], [4, 4]]),
        ([4, 4, 4, 4], 100, 3, [[4], [4], [4], [4]]),
        ([4, 4, 4, 4], 100, 64, [[4], [4], [4], [4]]),
        # Shares are about even.
        ([6, 5, 5, 4], 100, 2, [[6, 5], [5, 4]]),
        ([1, 9], 100, 2, [[1], [9]]),
        ([9, 1], 100, 2, [[9], [1]]),
        # A row group is not divided.
        ([8], 100, 2, [[8]]),
        # A task with little to do costs more than it saves.
        ([0.25] * 6, 100, 8, [[0.25] * 4, [0.25] * 2]),
        # The memory limit holds however few cores there are.
        ([4, 4, 4, 4], 8, 1, [[4, 4], [4, 4]]),
        ([4, 20, 4], 8, 1, [[4], [20], [4]]),
        ([], 100, 2, []),
    ],
)
def test_row_groups_are_divided_by_cores_and_by_bytes(sizes, bytes_max, cores, tasks):
    groups = [SourceGroup(0, index, 1, int(size * UNIT), 0, None) for index, size in enumerate(sizes)]
    divided = divide_groups(groups, bytes_max * UNIT, cores)
    assert [[group.raw_bytes / UNIT for group in task] for task in divided] == tasks
    assert [group for task in divided for group in task] == groups


class TwoCores(ThisThread):
    def cores(self, memory_limit_bytes):
        return 2


class Unused(ThisThread):
    @property
    def exchange(self):
        pytest.fail("no task is needed")

    def cores(self, memory_limit_bytes):
        pytest.fail("no core is needed")


@pytest.fixture
def planned(tmp_path):
    """Imports a folder with two cores, as far as the exchange; returns what the map tasks would read."""
    found = []

    class Planner(Importer):
        def _exchange(self, given, shuffle):
            found.append((given, shuffle))
            return ()

    table = lakebed.create(tmp_path / "lake").create_table("t", Schema({"k": "int64"}, values={"v": "string"}))
    importer = Planner(TwoCores(), TableCall(table, Root(table.storage.url)))

    def plan(folder):
        importer.run(folder, "parquet", None)
        return found[-1]

    return plan


def test_an_import_far_below_the_memory_limit_has_a_task_for_each_core(planned, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = pa.table({"k": range(100_000), "v": ["x" * 100 + str(i) for i in range(100_000)]})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet", use_dictionary=False)
    given, _ = planned(tmp_path / "in")
    assert given.rows == (200_000, 200_000)


def test_an_import_of_no_rows_needs_no_executor(tmp_path):
    table = lakebed.create(tmp_path / "lake").create_table("t", Schema({"k": "int64"}))
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "in" / "0.parquet")
    importer = Importer(Unused(), TableCall(table, Root(table.storage.url)))
    report = importer.run(tmp_path / "in", "parquet", None)
    assert (report.rows, report.map_tasks, report.reduce_tasks, report.version) == (0, 0, 0, None)
