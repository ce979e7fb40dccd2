"""Folders for temporary files."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakebed
from lakebed.server.service.service import Service
from lakebed.storage import disk_space
from lakebed.storage.disk_space import delete_abandoned_folders, scratch_folder
from lakebed.storage.processes import owner_mark
from lakebed.upkeep.retention.run import gc
from tests.interrupts import interrupted_at
from tests.machine import set_temporary_folder


def test_a_scratch_folder_is_private_and_goes_with_its_block(tmp_path: Path) -> None:
    with scratch_folder("sort", tmp_path / "new") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.name.startswith("lakebed-sort-")
    assert not folder.exists()


def test_an_interrupt_at_any_call_leaves_no_scratch_folder(tmp_path: Path) -> None:
    def use() -> None:
        # Of a call of rmtree that is interrupted between closing the folder and noting that it is closed.
        with contextlib.suppress(OSError), scratch_folder("sort", tmp_path) as folder:
            (folder / "rows").write_bytes(b"")

    place = 0
    while interrupted_at(place, use, [disk_space, shutil, contextlib]):
        assert not list(tmp_path.iterdir()), place
        place += 1
    assert place > 20


MAKE = """
import sys, tempfile
from pathlib import Path
from lakebed.storage.disk_space import scratch_folder, scratch_prefix
with scratch_folder("sort", Path(sys.argv[1])) as folder:
    (folder / "rows").write_bytes(b"x")
    Path(tempfile.mkdtemp(prefix=scratch_prefix("upload"), dir=sys.argv[1]), "rows").write_bytes(b"x")
    print(flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_deleted_and_what_others_use_is_not(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    left = set(tmp_path.iterdir())
    assert len(left) == 2
    mark = owner_mark()
    boot, namespace, pid, start = mark.split(".")
    for name in (
        f"lakebed-sort-{mark}-abc", "lakebed-sort-abc", "lakebed-copies-", "other", f"lakebed-sort-0{boot[1:]}x-abc",
        f"lakebed-sort-{'0' * 8}.{namespace}.{pid}.{start}-abc", f"lakebed-sort-{boot}.1.{pid}.{start}-abc",
        f"x-lakebed-sort-{boot}.{namespace}.{pid}.1-abc",
    ):  # fmt: skip
        (tmp_path / name).mkdir()
    (tmp_path / f"lakebed-sort-{boot}.{namespace}.{pid}.1-link").symlink_to(tmp_path / "other")
    kept = set(tmp_path.iterdir()) - left
    assert delete_abandoned_folders(tmp_path) == []
    process.kill()
    process.communicate()
    assert set(delete_abandoned_folders(tmp_path)) == left
    assert set(tmp_path.iterdir()) == kept


@pytest.mark.parametrize("finder", ["service", "gc"])
def test_services_and_collections_delete_what_was_left(
    tmp_path: Path, finder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_temporary_folder(monkeypatch, tmp_path / "tmp")
    boot, namespace, pid, _ = owner_mark().split(".")
    left = tmp_path / "tmp" / f"lakebed-statement-{boot}.{namespace}.{pid}.1-abc"
    left.mkdir(parents=True)
    lake = lakebed.create(str(tmp_path / "lake"))
    if finder == "gc":
        gc(lake, dry_run=True)
        assert left.exists()
        gc(lake)
    else:
        with Service(lake, maintain=False):
            pass
    assert not left.exists()
