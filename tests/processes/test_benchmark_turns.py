"""What benchmarks count as their own."""

import subprocess
import sys

from benchmarks.turns import WatchedTree

WORKS = """
import time
while time.process_time() < 0.8:
    pass
time.sleep(1)
"""

LOSES_ITS_CHILD = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {WORKS!r}]).wait()
"""


def test_the_core_seconds_of_a_process_that_was_not_waited_for_are_counted():
    with WatchedTree() as tree:
        subprocess.run([sys.executable, "-c", LOSES_ITS_CHILD], check=True)
    assert tree.core_seconds > 0.8
