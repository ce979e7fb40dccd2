"""A child process that works on a table and is killed at a moment that was seen to come."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 300


@contextlib.contextmanager
def child(*arguments):
    """A child process that has its session and waits for a line before it begins."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.child", *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def begin(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def wait_for(seen, process):
    """Wait until something has been seen to happen, without a guess at how long it takes."""
    until = time.monotonic() + TIMEOUT_S
    while not seen():
        assert time.monotonic() < until
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)


def objects(url, suffix):
    return len(list(Path(url).glob(f"tables/*/data/*/*{suffix}")))
