"""A later Lakebed may add fields to any object: this one reads everything as if they were not there."""

import json
import re

import lakebed
from lakebed.storage import connect
from lakebed.table.backup import backup
from lakebed.upkeep.retention.run import gc
from tests.golden import make
from tests.later import grow_instance

DELETED_WHOLE = re.compile(r"queries/[^/]+/|tables/[^/]+/(checkpoints|pins)/")
"""Folders that are deleted, or not copied, with all that is in them (docs/format.md, 1.4)."""


def test_unknown_fields_of_every_object_change_no_answer(tmp_path):
    root = make.extract(make.FOLDER / make.ARCHIVE, tmp_path)
    assert grow_instance(root / "lake") > 200
    recorded = json.loads((make.FOLDER / make.ANSWERS).read_text())
    assert json.loads(make.answers_of(root)) == recorded


def test_objects_that_nothing_names_are_kept(tmp_path):
    """In every folder of the instance; a copy has them too."""
    root = make.extract(make.FOLDER / make.ARCHIVE, tmp_path) / "lake"
    folders = sorted({path.parent for path in root.rglob("[!.]*") if path.is_file()} | {root})
    folders = [one for one in folders if not one.name.startswith(".")]
    names = [folder / "later-kind.bin" for folder in folders] + [root / "later" / "x" / "y.ndjson"]
    names[-1].parent.mkdir(parents=True)
    for name in names:
        name.write_bytes(b"of a later Lakebed")
    lake = lakebed.open(str(root))
    for name in lake.tables():
        lake.table(name).set(history_s=0, log_s=0, orphan_age_s=0)
    for _ in range(3):
        gc(lake, force=True)
    gone = [name.relative_to(root).as_posix() for name in names if not name.exists()]
    assert [name for name in gone if not DELETED_WHOLE.match(name)] == []
    backup(lake, connect(str(tmp_path / "copy")))
    left = [name.relative_to(root).as_posix() for name in names if name.exists()]
    missing = [name for name in left if not (tmp_path / "copy" / name).exists()]
    assert [name for name in missing if not DELETED_WHOLE.match(name)] == []
