"""``lakebed migrate --spark`` that is interrupted, on a session without a JVM."""

import os
import signal

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.cli import main
from lakebed.spark import spark_executor
from tests.tables.spark.sessions import Session


class Interrupted(Session):
    """Ctrl-C comes while its first job is submitted."""

    def range(self, *given):
        os.kill(os.getpid(), signal.SIGINT)
        return super().range(*given)


def test_an_interrupt_ends_the_call_and_says_what_was_committed(tmp_path, monkeypatch, capsys):
    lake = lakebed.create(tmp_path / "lake")
    (tmp_path / "in" / "w=x").mkdir(parents=True)
    pq.write_table(pa.table({"k": ["a", "b"]}), tmp_path / "in" / "w=x" / "rows.parquet")
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    words = ["migrate", "t", str(tmp_path / "in"), "--from", "hive", "--key", "k", "--spark", "--job-id", "one"]
    for session, code in ((Interrupted, 130), (Session, 0)):
        monkeypatch.setattr(spark_executor, "active_session", session)
        assert main(words) == code
        said = capsys.readouterr()
        if code:
            assert said.err.endswith("lakebed: interrupted: nothing was committed\n")
            assert lake.tables() == []
    assert lake.table("t").count().rows == 2
