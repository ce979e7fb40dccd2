"""A disk without a free byte is emptied by garbage collection: the reserve pays for the entries that it takes."""

import errno
import os
import random
import shutil

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange
from lakebed.errors import StorageError
from lakebed.model.files import data_folder
from lakebed.storage import local, syscalls
from lakebed.storage.disk_space import RESERVE, RESERVE_BYTES
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.retention.run import collect_garbage
from tests.orphans import delete_orphans
from tests.small_disks import on_a_small_disk
from tests.tables.retention.cases import AT_ONCE, SCHEMA, let_time_pass, letters, objects, on, rows

pytestmark = pytest.mark.usefixtures("whole_reserve")


class FullDisk:
    """A disk with room for what is there and no more; what is deleted is room again."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.bytes_max = self.used()
        monkeypatch.setattr(local, "write_all", self.write_all)

    def used(self):
        return sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())

    def write_all(self, descriptor, data):
        if self.used() + len(data) > self.bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        syscalls.write_all(descriptor, data)


@pytest.fixture
def table(tmp_path):
    made = lakebed.create(str(tmp_path)).create_table("t", SCHEMA, settings=AT_ONCE)
    for seed in (1, 2):
        # 40 KB a file, that zstd makes no smaller.
        made.write(pa.table({"k": ["a"] * 5_000, "v": random.Random(seed).sample(range(2**62), 5_000)}))
    return made


def test_garbage_is_collected_on_a_full_disk(table, tmp_path, monkeypatch):
    table.remove(KeyRange())
    disk = FullDisk(tmp_path, monkeypatch)
    with pytest.raises(StorageError, match="the disk is full"):
        table.write(rows("ef"))
    assert collect_garbage(table).files == 2
    assert not objects(table)  # not even what the write had sent
    assert disk.used() < disk.bytes_max
    assert table.write(rows("g"))
    assert letters(table) == "g"


def test_the_reserve_is_set_aside_again(table, tmp_path, whole_reserve):
    def reserved():
        return [file.stat().st_size for file in (tmp_path / RESERVE).iterdir()]

    assert (len(reserved()), sum(reserved())) == (whole_reserve, RESERVE_BYTES)
    shutil.rmtree(tmp_path / RESERVE)
    collect_garbage(table)
    assert (len(reserved()), sum(reserved())) == (whole_reserve, RESERVE_BYTES)


def test_orphans_are_swept_on_a_full_disk(table, tmp_path, monkeypatch):
    job = objects(table)[0].split("/")[-2]
    table.storage.create(f"{data_folder(table.id)}/{job}/0192aaaa-0000-7000-8000-000000000000.parquet", b"x" * 99)
    FullDisk(tmp_path, monkeypatch)
    let_time_pass(table.storage)
    assert delete_orphans(table, force=True).orphans == 1
    assert table.count().rows == 10_000


def test_without_a_reserve_the_error_is_the_disks(table, tmp_path, monkeypatch):
    table.remove(KeyRange())
    shutil.rmtree(tmp_path / RESERVE)
    FullDisk(tmp_path, monkeypatch)
    with pytest.raises(StorageError, match="the disk is full"):
        collect_garbage(table)


def test_what_was_marked_before_the_disk_was_full_goes_first(table, tmp_path, monkeypatch):
    """Its deletion makes the room that new marks need, so not even the reserve is touched."""
    table.remove(KeyRange())

    def crash():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_garbage(on(table, Meanwhile(table.storage, "delete", "*", crash)))
    table.write(pa.table({"k": ["x"] * 99, "v": pa.array(range(99), pa.int64())}))
    table.remove(KeyRange())
    reserve = {file: file.stat().st_ino for file in (tmp_path / RESERVE).iterdir()}
    FullDisk(tmp_path, monkeypatch)
    assert collect_garbage(table).files == 3
    assert {file: file.stat().st_ino for file in (tmp_path / RESERVE).iterdir()} == reserve


ON_A_SMALL_DISK = """
import os, sys
import pyarrow as pa, lakebed
from lakebed import KeyRange, Schema
from lakebed.upkeep.retention.run import collect_garbage

root = sys.argv[1]
schema = Schema({"k": "int64"}, values={"v": "binary"})
table = lakebed.create(f"{root}/lake").create_table("t", schema, settings={"history_s": 0})
for key in range(4):
    table.write(pa.table({"k": [key], "v": [os.urandom(1_000_000)]}))
table.remove(KeyRange())
for size in (4096, 1):
    with open(f"{root}/filler-{size}", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * size)
        except OSError:
            pass
assert os.statvfs(root).f_bavail == 0
print(collect_garbage(lakebed.open(f"{root}/lake").table("t")).files)
"""


WRITES_ON_A_SMALL_DISK = """
import os, sys
import pyarrow as pa, lakebed
from lakebed import Schema, StorageError

root = sys.argv[1]
table = lakebed.create(f"{root}/lake").create_table("t", Schema({"k": "int64"}, values={"v": "binary"}))
rows = pa.table({"k": [1], "v": [os.urandom(200_000)]})
table.write(rows)
def used():
    return sum(os.path.getsize(f"{folder}/{name}") for folder, _, names in os.walk(f"{root}/lake") for name in names)
table.log.wait_for_checkpoint()
before = used()
with open(f"{root}/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"x" * 4096)
    except OSError:
        pass
assert os.statvfs(root).f_bavail == 0
failures = set()
while True:
    os.truncate(f"{root}/filler", os.path.getsize(f"{root}/filler") - 4096)
    try:
        table.write(rows)
        break
    except StorageError as error:
        kinds = {".parquet": "data", ".summary": "summary", "/log/": "entry"}
        failures.add(next(kind for part, kind in kinds.items() if part in str(error)))
    table.log.wait_for_checkpoint()
    assert used() == before, [os.path.join(f, n) for f, _, ns in os.walk(f"{root}/lake") for n in ns]
print(*sorted(failures), table.count().rows)
"""


WITHOUT_AN_INODE = """
import os, sys
import pyarrow as pa, lakebed
from lakebed import KeyRange, Schema, StorageError
from lakebed.upkeep.retention.run import gc

root, first = sys.argv[1:]
settings = {"history_s": 0, "log_s": 0, "orphan_age_s": 0}
lake = lakebed.create(f"{root}/lake")
table = lake.create_table("t", Schema({"k": "int64"}), settings=settings)
written = 0
try:
    while True:
        table.write(pa.table({"k": [written]}))
        written += 1
        if first == "removed" and os.statvfs(root).f_favail < 12:
            table.remove(KeyRange())
            break
except StorageError as error:
    print("of its 400 inodes are used" in str(error), end=" ")
while os.statvfs(root).f_favail:
    open(f"{root}/filler-{os.statvfs(root).f_favail}", "x").close()
assert os.statvfs(root).f_favail == 0 and os.statvfs(root).f_bavail
assert not gc(lake, force=True).errors
if first == "live":
    print(lakebed.open(f"{root}/lake").table("t").count(exact=True).rows == written, end=" ")
    table.remove(KeyRange())
    assert not gc(lake, force=True).errors
print(os.statvfs(root).f_favail > 200, os.path.isdir(f"{root}/lake/.reserve"))
"""


@pytest.mark.parametrize(("first", "said"), [("live", "True True True True\n"), ("removed", "True True\n")])
def test_garbage_is_collected_on_a_file_system_without_an_inode(tmp_path, first, said):
    """Whether all rows are live, and only the log can be truncated, or were removed before."""
    assert on_a_small_disk(tmp_path, WITHOUT_AN_INODE, first, options="size=100m,nr_inodes=400") == said


def test_garbage_is_collected_on_a_file_system_that_is_really_full(tmp_path):
    assert on_a_small_disk(tmp_path, ON_A_SMALL_DISK) == "4\n"


def test_a_write_that_finds_the_disk_full_leaves_nothing_on_it(tmp_path):
    """Whatever there was no room for: the data file, its summary, or the entry."""
    assert on_a_small_disk(tmp_path, WRITES_ON_A_SMALL_DISK) == "data entry summary 2\n"
