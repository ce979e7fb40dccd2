"""The cache on local disk among processes: shared, killed in the middle of a write, and on a disk that is full."""

import os
import signal
import subprocess
import sys

from lakebed.storage.disk_cache import CacheLimits, DiskCache
from tests.small_disks import on_a_small_disk

WRITES_HALF = """
import sys, time
from pathlib import Path
from lakebed.storage.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]))
cache.keep("whole", b"whole")
with cache._new_entry(cache._path("half"), 1000) as new:
    new.write_bytes(b"half of it")
    print("half", flush=True)
    time.sleep(120)
"""


def test_a_process_killed_while_it_writes_an_entry_leaves_no_entry(tmp_path):
    command = [sys.executable, "-c", WRITES_HALF, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        child.send_signal(signal.SIGKILL)
    cache = DiskCache(tmp_path, limits=CacheLimits(left_s=-1))
    assert (cache.get("whole"), cache.get("half")) == (b"whole", None)
    cache.keep("half", b"both halves")
    assert cache.get("half") == b"both halves"
    [left] = (tmp_path / "v1" / "new").iterdir()
    cache.sweep()
    assert not left.exists()
    assert (cache.get("whole"), cache.get("half")) == (b"whole", b"both halves")


FORKS = """
import os, sys, time
from pathlib import Path
from lakebed.storage.disk_cache import DiskCache
class Forking(DiskCache):
    def _delete_left(self):
        if os.fork() == 0:
            time.sleep(120)
            os._exit(0)
Forking(Path(sys.argv[1])).sweep()
print("swept", flush=True)
time.sleep(120)
"""


def test_a_child_that_was_forked_during_a_sweep_does_not_hold_up_the_next(tmp_path):
    cache = DiskCache(tmp_path)
    cache.keep("a", b"one")
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "swept\n"
            cache.bytes_max = 0
            cache.sweep()
            assert cache.get("a") is None
        finally:
            os.killpg(child.pid, signal.SIGKILL)


SHARES = """
import random, sys
from pathlib import Path
from lakebed.storage.disk_cache import CacheLimits, DiskCache
cache = DiskCache(Path(sys.argv[1]), 40 * 4096, CacheLimits(touch_s=0))
chance, found = random.Random(sys.argv[2]), 0
for _ in range(600):
    number = chance.randrange(60)
    data = cache.get(str(number))
    assert data in (None, bytes([number]) * 3000), number
    found += data is not None
    if data is None:
        cache.keep(str(number), bytes([number]) * 3000)
cache.wait()
print(found)
"""


def test_processes_share_a_cache_and_its_bound(tmp_path):
    """None reads anything but what was kept, while others write, replace and sweep."""
    children = [
        subprocess.Popen([sys.executable, "-c", SHARES, str(tmp_path), seed], stdout=subprocess.PIPE, text=True)
        for seed in "ab"
    ]
    found = [int(child.communicate(timeout=120)[0]) for child in children]
    assert min(found) > 60
    used = [path.stat().st_size for path in (tmp_path / "v1" / "entries").rglob("*") if path.is_file()]
    # Two processes may both find room for their next entry.
    assert 20 < len(used) <= 42


FILLS = """
import os, sys
from pathlib import Path
from lakebed.storage.digests import digest_bytes
from lakebed.storage.disk_cache import DiskCache
folder = Path(sys.argv[1])
cache = DiskCache(folder / "cache")
block = bytes(range(256)) * 256
for count in range(200):
    cache.keep(str(count), block)
    kept = [number for number in range(count + 1) if cache.get(str(number)) == block]
    if len(kept) <= count:
        break
first = len(kept)
(folder / "object").write_bytes(b"x")
cache.keep_file(digest_bytes(b"x"), folder / "object")
left = list((folder / "cache/v1/new").iterdir())
for path in (folder / "cache/v1/entries").rglob("*"):
    if path.is_file():
        path.unlink()
cache.keep("again", block)
print(100 < first < 128, left, cache.get("again") == block)
"""


def test_a_full_disk_is_no_error(tmp_path):
    """What there is no room for is not kept, and leaves nothing behind."""
    assert on_a_small_disk(tmp_path, FILLS) == "True [] True\n"


NO_ROOM = """
import sys
from pathlib import Path
from lakebed.storage.disk_cache import DiskCache
folder = Path(sys.argv[1])
try:
    with (folder / "all").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
except OSError:
    pass
cache = DiskCache(folder / "cache")
cache.keep("a", bytes(10_000))
print(cache.get("a"))
"""


def test_a_disk_that_was_full_before_is_no_error(tmp_path):
    assert on_a_small_disk(tmp_path, NO_ROOM) == "None\n"
