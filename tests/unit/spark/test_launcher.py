"""Which launcher a text names."""

from lakebed.jobs.launchers import launcher_of
from lakebed.spark import InProcess, Local, Remote


def test_a_text_is_a_master_or_a_connect_server() -> None:
    assert launcher_of(None) == Local()
    assert launcher_of("spark://host:7077") == Local("spark://host:7077")
    assert launcher_of("sc://host:15002") == Remote("sc://host:15002")
    assert launcher_of(Local("yarn")) == Local("yarn")


def test_a_text_names_the_worker_processes() -> None:
    assert launcher_of("in-process") == InProcess()
    assert launcher_of("in-process[3]") == InProcess(workers=3)
