"""Which launcher a text names."""

import subprocess
import sys

import pytest

import lakebed
import lakebed.spark
from lakebed import InProcess, Pipeline, UsageError
from lakebed.errors import Code
from lakebed.jobs.launchers import launcher_of
from lakebed.jobs.this_thread import ThisThread
from lakebed.spark import Local, Remote
from lakebed.spark.session import start_session
from tests.raising import raises


def test_a_text_is_a_master_or_a_connect_server() -> None:
    assert launcher_of(None) == Local()
    assert launcher_of("spark://host:7077") == Local("spark://host:7077")
    assert launcher_of("sc://host:15002") == Remote("sc://host:15002")
    assert launcher_of(Local("yarn")) == Local("yarn")
    for master in ("yarn", "local", "local[*]", "local[*,4]", "local-cluster[2,1,1024]", "k8s://https://host:6443"):
        assert launcher_of(master) == Local(master)


@pytest.mark.parametrize("text", ["spark", "inprocess", "in-process[]", "in-process[two]", "this thread", "local [2]"])
def test_a_text_that_names_nothing_is_refused_before_it_is_used(lake, text):
    with raises(Code.ARGUMENT_INVALID):
        Pipeline(lake, launcher=text)


def test_a_session_is_started_by_a_launcher_as_well():
    class Mine:
        def start(self):
            return "a session"

    assert start_session(Mine()) == "a session"
    with pytest.raises(UsageError, match="master = 7: must be a master of Spark, or a launcher such as Local"):
        start_session(7)


def test_a_text_names_the_worker_processes() -> None:
    assert launcher_of("in-process") == InProcess()
    assert launcher_of("in-process[3]") == InProcess(workers=3)


def test_a_pipeline_without_spark_imports_nothing_of_spark(tmp_path):
    """Neither the folder nor PySpark, in the process that plans and commits."""
    program = (
        f"import sys, lakebed\nlake = lakebed.create({str(tmp_path / 'lake')!r})\n"
        "lake.create_table('t', lakebed.Schema({'k': 'string'})).write({'k': ['a']})\n"
        "from lakebed import Pipeline\nPipeline(lake, launcher='in-process').maintain('t')\n"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'py4j', 'lakebed.spark'))])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=120)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("name", ["InProcess", "Launcher", "Pipeline", "Progress"])
def test_a_name_that_needs_no_spark_is_found_by_its_old_name_and_warns(name):
    vars(lakebed.spark).pop(name, None)
    with pytest.warns(DeprecationWarning, match=f"lakebed.spark.{name} is now lakebed.{name}; the old name goes"):
        found = getattr(lakebed.spark, name)
    assert found is getattr(lakebed, name)


def test_another_launcher_opens_its_own_executor(tmp_path):
    """As one of another package: any object with the method."""
    executor = ThisThread()

    class Mine:
        def executor(self):
            return executor

    pipeline = Pipeline(lakebed.create(tmp_path / "lake"), launcher=Mine())
    assert pipeline.executor is executor
    with pytest.raises(UsageError, match="launcher = 7: must be a launcher, or the text of one"):
        Pipeline(pipeline.instance, launcher=7)
