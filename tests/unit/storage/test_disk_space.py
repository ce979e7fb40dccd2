"""Folders for temporary files."""

import contextlib
import shutil
from pathlib import Path

from lakebed.storage import disk_space
from lakebed.storage.disk_space import scratch_folder
from tests.interrupts import interrupted_at


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
