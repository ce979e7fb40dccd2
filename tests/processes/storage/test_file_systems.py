"""Instances on file systems that are not those of Linux: names whose case does not count, and no hard links.

Each is an image of some MB that a FUSE driver mounts: NTFS with lowntfs-3g, which has links and ignores case (and lists
names in lower case), and exFAT with exfat-fuse, which ignores case and has neither links nor an exclusive rename.
Skipped where the driver is missing, or this user may not mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Error, Latest, Pipeline, Schema
from lakebed.server.security.roles import Permission, Role
from lakebed.server.security.stored import create_role, drop_role, put_role, roles_of
from lakebed.storage import LocalStorage, PutOutcome
from lakebed.testing.conformance import StorageConformance
from lakebed.upkeep.retention.run import gc

IMAGE_BYTES = 96 * 1024 * 1024


def ran(*command: str | Path) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"there is no program {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def mounted(folder: Path, make: list[str], mount: list[str], *, by_device: bool) -> Iterator[Path]:
    image, root = folder / "image", folder / "root"
    with image.open("xb") as file:
        file.truncate(IMAGE_BYTES)
    root.mkdir()
    ran(*make, image)
    device = ran("losetup", "--find", "--show", image) if by_device else str(image)
    try:
        ran(*mount, device, root)
        try:
            yield root
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        if by_device:
            subprocess.run(["losetup", "--detach", device], check=True)


@pytest.fixture(scope="module")
def ntfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    make, mount = ["mkfs.ntfs", "-q", "-F", "-f"], ["lowntfs-3g", "-o", "ignore_case"]
    with mounted(tmp_path_factory.mktemp("ntfs"), make, mount, by_device=False) as root:
        (root / "Case").touch()
        assert (root / "cASE").exists()
        yield root


@pytest.fixture(scope="module")
def exfat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("exfat"), ["mkfs.exfat"], ["mount.exfat-fuse"], by_device=True) as root:
        (root / "Case").touch()
        assert (root / "cASE").exists()
        with pytest.raises(OSError, match="not permitted"):
            os.link(root / "Case", root / "other")
        yield root


class TestStoreWhereCaseDoesNotCount(StorageConformance):
    # This driver renames over a name in two steps, between which other threads find nothing.
    test_a_replaced_object_is_read_whole = None  # type: ignore[assignment]
    test_counting_by_replaces_loses_nothing = None  # type: ignore[assignment]
    test_of_racing_replaces_of_one_version_one_wins = None  # type: ignore[assignment]

    @pytest.fixture
    def storage(self, ntfs: Path, request: pytest.FixtureRequest) -> LocalStorage:
        return LocalStorage(ntfs / f"conformance-{abs(hash(request.node.name))}")


def test_an_instance_lives_where_case_does_not_count(ntfs: Path) -> None:
    lake = lakebed.create(str(ntfs / "Lake"))
    tables = [
        lake.create_table(name, Schema({"k": "string"}, values={"n": "int64"}), merge=Latest()) for name in ("T", "t")
    ]
    for table, offset in zip(tables, (0, 100), strict=True):
        for round_ in range(4):
            table.write(pa.table({"k": ["a", "A"], "n": [offset + round_, offset + round_ + 10]}))
        table.tag("Before")
        table.tag("before", version=2)
    pipeline = Pipeline(lake, launcher="this-thread")
    for table in tables:
        pipeline.compact(table)
    gc(lake)
    again = lakebed.open(str(ntfs / "lAKE"))
    assert again.tables() == ["T", "t"]
    for name, offset in (("T", 0), ("t", 100)):
        table = again.table(name)
        assert table.get("a")["n"].to_pylist() == [offset + 3]
        assert table.get("A")["n"].to_pylist() == [offset + 13]
        assert table.at(tag="before").get("A")["n"].to_pylist() == [offset + 10]
        assert not table.verify().findings


def test_roles_whose_names_differ_in_case_only_are_refused_on_every_store(tmp_path: Path) -> None:
    """Their objects would be one file on such a file system."""
    storage = LocalStorage(tmp_path)
    create_role(storage, Role("Reader", Permission.READ))
    for make in (create_role, put_role):
        for name in ("reader", "Admin"):
            with pytest.raises(Error, match="in case only"):
                make(storage, Role(name, Permission.READ))
    put_role(storage, Role("Reader", Permission.WRITE))
    assert list(roles_of(storage)) == ["Reader"]


def test_a_role_is_dropped_by_its_own_name_alone(exfat: Path) -> None:
    storage = LocalStorage(exfat / "roles")
    put_role(storage, Role("Reader", Permission.READ))
    with pytest.raises(Error, match="no role"):
        drop_role(storage, "reader")
    assert list(roles_of(storage)) == ["Reader"]


def test_a_store_without_links_creates_by_an_exclusive_rename_or_not_at_all(exfat: Path) -> None:
    """The driver has no such rename, so nothing may be created; the system's own has one."""
    storage = LocalStorage(exfat / "objects")
    try:
        assert storage.create("log/1", b"1") is PutOutcome.CREATED
    except Error as error:
        assert "neither hard links nor an exclusive rename" in str(error)  # noqa: PT017 - either is right
        assert not [path for path in (exfat / "objects").rglob("*") if path.is_file()]
    else:
        assert storage.create("LOG/1", b"2") is PutOutcome.EXISTS


def test_no_stored_name_needs_its_case() -> None:
    """All names that Lakebed makes are in lower case, but for that of Hadoop's mark; those of roles are the user's."""
    listing = Path(__file__).parents[2] / "golden" / "listing.txt"
    names = [line for line in listing.read_text("utf-8").splitlines() if "/" in line and not line.startswith(" ")]
    names = [name for name in names if not name.startswith("export")]
    assert len(names) > 50
    last = {name.rpartition("/")[2] for name in names if name != name.lower() and "/roles/" not in name}
    assert last == {"_SUCCESS"}
