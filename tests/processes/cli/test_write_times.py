"""Times that Python lacks, in commands that show values, in a process of their own: there PyArrow knows no pandas."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from tests.processes.cli.test_process import run
from tests.soaked import few

FAR = pa.array([253_402_300_800_000_000, -62_135_596_800_000_001], pa.timestamp("us"))
FINE = pa.array([1, 1_704_067_200_000_000_001], pa.timestamp("ns"))
TIMES = {
    "far": FAR,
    "fine": FINE,
    "zoned": FINE.cast(pa.timestamp("ns", "Europe/Berlin")),
    "clock": pa.array([1, 86_399_999_999_999], pa.time64("ns")),
    "days": pa.array([3_000_000, -1_000_000], pa.int32()).view(pa.date32()),
    "list": pa.array([[1, None], [2]], pa.list_(pa.timestamp("ns"))),
    "struct": pa.StructArray.from_arrays([FAR], names=["x"]),
    "map": pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.timestamp("ns"))),
    "dictionary": FINE.dictionary_encode(),
}


@pytest.fixture
def lake(tmp_path):
    lakebed.create(tmp_path / "lake")
    return tmp_path


def test_a_file_with_times_that_python_lacks_is_described_and_makes_a_table(lake, tmp_path):
    pq.write_table(pa.table({"k": [1, 2], **TIMES}), tmp_path / "x.parquet")
    for words in (("schema", "infer"), ("write", "t", "--key", "k")):
        found = run(lake, *words, tmp_path / "x.parquet")
        assert (found.returncode, "Traceback" in found.stderr) == (0, False), found.stderr
        said = found.stdout + found.stderr
        assert "00:00:00.000000001" in said
        assert "+10000-01-01T00:00:00" in said
    stored = lakebed.open(lake / "lake")["t"].scan().read_all()
    assert all(stored[name].combine_chunks().equals(TIMES[name]) for name in ("far", "fine", "clock", "days"))


@pytest.mark.parametrize(
    ("column", "kind"),
    few([("fine", "timestamp[us]"), ("far", "timestamp[ns]"), ("clock", "time64[us]"), ("days", "int64")], 2),
)
def test_an_error_shows_a_time_that_python_lacks(lake, tmp_path, column, kind):
    pq.write_table(pa.table({"k": [1, 2], "v": TIMES[column]}), tmp_path / "x.parquet")
    lakebed.open(lake / "lake").create_table("t", Schema({"k": "int64"}, values={"v": kind}))
    found = run(lake, "write", "t", tmp_path / "x.parquet")
    assert (found.returncode, "Traceback" in found.stderr) == (3, False), found.stderr
    assert "column v" in found.stderr
