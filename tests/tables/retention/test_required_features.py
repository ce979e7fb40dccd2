"""A feature that a later Lakebed requires of readers, writers or collectors is refused by the programs it concerns.

A refused call changes no object of the instance. The other calls work as before. docs/compatibility.md has the same
table.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from examples import second_reader
from lakebed import Latest, Pipeline, Schema
from lakebed.errors import Code, RejectedError, UnsupportedFormatError
from lakebed.log.outcomes import version_of
from lakebed.model.documents import SQL_DIALECT
from lakebed.model.state.transactions import RaiseWatermark, RequireFeatures, Watermark
from lakebed.storage import connect
from lakebed.table.backup import backup, verified
from lakebed.upkeep.retention.orphans import delete_orphans
from lakebed.upkeep.retention.run import collect_garbage, gc
from tests.documents import contents
from tests.later import FEATURE, append, require

PROGRAMS = ("readers", "writers", "collectors", "of another kind")
AT_ONCE = {"history_s": 0, "log_s": 0, "orphan_age_s": 0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An instance whose table has two runs to compact, files to delete and an orphan."""
    root = tmp_path_factory.mktemp("made") / "lake"
    lake = lakebed.create(str(root))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": "int64"}), merge=Latest(), settings=AT_ONCE)
    for turn in range(3):
        table.write(pa.table({"k": range(4), "v": [turn] * 4}))
    Pipeline(lake, launcher="this-thread").compact(table, strategy="full")
    table.write(pa.table({"k": [1], "v": [9]}))
    table.log.wait_for_checkpoint()
    return root


@pytest.fixture
def root(made, tmp_path):
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "lake")


def write(lake):
    lake.table("t").write(pa.table({"k": [7], "v": [7]}))


def compact(lake):
    with Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.compact(lake.table("t"), strategy="full")


def verify(lake):
    """What cannot be read is not sound; the remedy is to upgrade, and nothing else."""
    report = lake.table("t").verify(files=True)
    for finding in report.findings:
        if finding.damage:
            assert (finding.kind, finding.remedy) == ("unsupported_format", "upgrade Lakebed")
            raise UnsupportedFormatError(f"{finding.what}: {finding.remedy}", code=Code.FORMAT_TOO_NEW)
    assert report.sound


def second(lake):
    root = Path(lake.url.removeprefix("file://"))
    assert len(second_reader.read(root, "t")) == 4


READ = {
    "scan": lambda lake: lake.table("t").to_arrow(),
    "get": lambda lake: lake.table("t").get(1),
    "sql": lambda lake: lake.sql("SELECT count(*) FROM t").read_all(),
    "history": lambda lake: lake.table("t").history(),
    "verify": verify,
    "the second reader": second,
}
WRITE = {
    "write": write,
    "delete": lambda lake: lake.table("t").delete([1]),
    "compact": compact,
    "set": lambda lake: lake.table("t").set(page_rows=500),
    "tag": lambda lake: lake.table("t").tag("now"),
}
COLLECT = {
    "collect_garbage": lambda lake: collect_garbage(lake.table("t")),
    "collect_garbage, dry run": lambda lake: collect_garbage(lake.table("t"), dry_run=True),
    "delete_orphans": lambda lake: delete_orphans(lake.table("t"), force=True),
}
REFUSED = {
    "readers": READ | WRITE | COLLECT,
    "writers": WRITE | COLLECT,
    "collectors": COLLECT,
    "of another kind": READ | WRITE | COLLECT,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fresh", [True, False], ids=["opened anew", "open before"])
def test_a_required_feature_is_refused_by_those_it_concerns(root, program, fresh):
    lake = lakebed.open(str(root))
    assert lake.table("t").to_arrow().num_rows == 4
    require(lakebed.open(str(root)).table("t").log, program)
    if fresh:
        lake = lakebed.open(str(root))
    before = contents(root)
    for name, call in REFUSED[program].items():
        error = refusal_of(call, lake)
        assert error is not None, name
        assert FEATURE in str(error), name
        if isinstance(error, UnsupportedFormatError):
            assert error.code is Code.FORMAT_TOO_NEW, name
            assert "upgrade" in str(error), name
        assert logs(contents(root)) == logs(before), name
    for call in (READ | WRITE | COLLECT).values():
        if call not in REFUSED[program].values():
            call(lake)


def refusal_of(call, lake):
    try:
        call(lake)
    except (UnsupportedFormatError, second_reader.UnreadableError) as error:
        return error
    return None


def logs(found):
    """All objects but data files, which a refused write leaves as orphans."""
    return {name: data for name, data in found.items() if "/data/" not in name and "jobs/" not in name}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_backup_copies_every_byte_and_says_what_it_could_not_verify(root, tmp_path, program):
    require(lakebed.open(str(root)).table("t").log, program)
    lake = lakebed.open(str(root))
    backup(lake, connect(str(tmp_path / "copy")))
    copied, source = contents(tmp_path / "copy"), contents(root)
    assert {name: data for name, data in source.items() if "/tables/" in f"/{name}"}.items() <= copied.items()
    copy = lakebed.open(str(tmp_path / "copy"))
    if verify in REFUSED[program].values():
        with pytest.raises(UnsupportedFormatError, match=FEATURE):
            verified(copy)
    else:
        assert [one.table for one in verified(copy)] == ["t"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_feature_that_the_catalog_requires_concerns_the_instance(root, program):
    require(lakebed.open(str(root)).catalog_log(), program)
    before = contents(root)
    calls = {"readers": lambda lake: lake.tables(), "of another kind": lambda lake: lake.table("t")}
    calls |= {"writers": lambda lake: lake.rename_table("t", "u"), "collectors": gc}
    with pytest.raises(UnsupportedFormatError, match=f"{FEATURE}.*upgrade"):
        calls[program](lakebed.open(str(root)))
    with pytest.raises(UnsupportedFormatError, match=FEATURE):
        gc(lakebed.open(str(root)))
    assert contents(root) == before
    if program in ("writers", "collectors"):
        assert lakebed.open(str(root)).table("t").to_arrow().num_rows == 4


def test_a_dropped_table_is_not_deleted_by_a_collector_that_does_not_know_its_feature(root):
    lake = lakebed.open(str(root))
    require(lake.table("t").log, "collectors")
    lake.drop_table("t")
    lake.catalog_log().wait_for_checkpoint()
    before = contents(root)
    with pytest.raises(UnsupportedFormatError, match=f"{FEATURE}.*upgrade"):
        gc(lakebed.open(str(root)), force=True)
    assert contents(root) == before


def test_a_collector_that_began_before_the_feature_was_required_commits_nothing(root):
    table = lakebed.open(str(root)).table("t")
    require(lakebed.open(str(root)).table("t").log, "collectors")
    with pytest.raises(UnsupportedFormatError, match=f"collectors must know {FEATURE}"):
        table.commit(RaiseWatermark(Watermark.ORPHAN_CUTOFF, 1))
    assert lakebed.open(str(root)).table("t").state().version == table.version


def test_a_checkpoint_is_not_written_by_one_that_would_lose_fields(root):
    table = lakebed.open(str(root)).table("t")
    require(lakebed.open(str(root)).table("t").log, "writers")
    head = table.log.follow()
    assert head.features == {FEATURE: "writers"}
    before = contents(root)
    assert table.log.checkpoints.write(table.log.head) is None
    with pytest.raises(UnsupportedFormatError, match=FEATURE):
        table.log.retained.retain(table.log.head)
    assert contents(root) == before


def test_a_feature_that_is_not_required_any_more_lets_all_go_on(root):
    """As before the switch: the table may be used by the older version again."""
    require(lakebed.open(str(root)).table("t").log, "writers")
    require(lakebed.open(str(root)).table("t").log, None)
    lake = lakebed.open(str(root))
    for call in (READ | WRITE | COLLECT).values():
        call(lake)
    assert lake.table("t").state().features == {}


def test_an_unknown_feature_cannot_be_required_from_here(root):
    table = lakebed.open(str(root)).table("t")
    for change in ({FEATURE: "writers"}, {FEATURE: None}):
        with pytest.raises(UnsupportedFormatError, match=f"does not know {FEATURE}"):
            table.commit(RequireFeatures(change))
        outcome = lakebed.open(str(root)).catalog_log().commit(RequireFeatures(change))
        with pytest.raises(UnsupportedFormatError, match=f"does not know {FEATURE}"):
            version_of(outcome, "the catalog")
    with pytest.raises(RejectedError, match="readers, writers or collectors, not of others"):
        table.commit(RequireFeatures({SQL_DIALECT: "others"}))


def test_a_feature_of_readers_is_in_the_header_of_later_checkpoints(root):
    table = lakebed.open(str(root)).table("t")
    table.commit(RequireFeatures({SQL_DIALECT: "readers"}))
    table.log.wait_for_checkpoint()
    assert table.log.checkpoints.write(table.log.head) is not None
    (manifest,) = root.glob("tables/*/checkpoints/latest/manifest.ndjson")
    assert f'"features":["{SQL_DIALECT}"]'.encode() in manifest.read_bytes()


def test_a_transaction_of_an_unknown_type_is_refused_without_a_feature_too(root):
    append(lakebed.open(str(root)).table("t").log, {"type": "later_kind", "x": 1})
    lake = lakebed.open(str(root))
    before = contents(root)
    for call in READ.values():
        with pytest.raises((UnsupportedFormatError, second_reader.UnreadableError), match="later_kind"):
            call(lake)
    assert contents(root) == before


def test_settings_with_unknown_names_are_kept(root):
    table = lakebed.open(str(root)).table("t")
    append(table.log, {"type": "alter_settings", "changes": {"later_setting": 7}})
    table = lakebed.open(str(root)).table("t")
    table.set(page_rows=500)
    assert table.state().settings["later_setting"] == 7
    table.log.wait_for_checkpoint()
    table.log.checkpoints.write(table.log.head)
    assert lakebed.open(str(root)).table("t").state().settings["later_setting"] == 7
    assert table.to_arrow().num_rows == 4
