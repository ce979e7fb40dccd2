"""``lakebed doctor`` and ``lakebed docs``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lakebed import clock
from lakebed.cli.doctor import Need, _clock_check, package_checks
from lakebed.cli.manual import pages_folder, places
from lakebed.errors import Code
from lakebed.storage import LocalStorage, connect
from lakebed.testing.faults import CountingStorage
from tests.clocks import set_clock
from tests.system_calls import set_calls
from tests.tables.cli.conftest import Cli
from tests.variants import creates_over, planted
from tests.waiting import join_checkpoints


def checks_of(cli: Cli) -> dict[str, dict[str, str]]:
    return {check["check"]: check for check in json.loads(cli("--json", "doctor").out)["checks"]}


def test_a_sound_instance_passes_and_nothing_is_left_there(cli: Cli, table: str, url: str) -> None:
    join_checkpoints()
    before = sorted(Path(url).rglob("*"))
    ran = cli("doctor")
    assert ran.code == 0
    assert "failed" not in ran.out
    assert "create if absent" in ran.out
    assert sorted(path for path in Path(url).rglob("*") if path.is_file()) == [p for p in before if p.is_file()]
    assert checks_of(cli)["instance"]["found"].endswith("1 table")


def test_a_place_without_an_instance_is_a_warning(cli: Cli, url: str) -> None:
    assert checks_of(cli)["folder"]["status"] == "warning"
    assert not Path(url).exists()
    Path(url).mkdir()
    found = checks_of(cli)
    assert found["instance"] | {"found": ""} == {
        "check": "instance",
        "status": "warning",
        "found": "",
        "remedy": f"to create one: lakebed init file://{url}",
        "code": None,
    }
    assert found["permissions"]["status"] == "ok"


def test_a_store_that_ignores_the_condition_fails(cli: Cli, table: str) -> None:
    with planted(creates_over):
        ran = cli("doctor")
    assert ran.code == 5
    assert "failed   create if absent" in ran.out
    assert ran.err == "lakebed: 1 check failed: create if absent\n"


def test_a_missing_permission_is_named(cli: Cli, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Code.STORE_PERMISSION("cannot delete: permission denied")

    monkeypatch.setattr(LocalStorage, "delete", refuse)
    ran = cli("doctor", "--json")
    failed = [check for check in ran.json["checks"] if check["status"] == "failed"]
    assert [(check["check"], check["code"]) for check in failed] == [("permission to delete", "store_permission")]
    assert ran.code == 5


@pytest.mark.parametrize(
    ("files", "available", "expected"),
    [(400, 3, ("warning", "3 inodes free")), (10**8, 10**7, ("ok", "10,000,000 inodes free")), (0, 0, ("ok", "free"))],
)
def test_a_disk_without_inodes_is_a_warning_where_the_file_system_counts_them(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, *, table: str, files: int, available: int, expected: tuple[str, str]
) -> None:
    def counted(path: object, real: Callable[..., os.statvfs_result] = os.statvfs) -> os.statvfs_result:
        fields = list(real(path))
        fields[3], fields[4], fields[5], fields[7] = 10**9, 10**9, files, available
        return os.statvfs_result(fields)

    set_calls(monkeypatch, os, statvfs=counted)
    found = checks_of(cli)
    for name in ("disk", "temporary folder"):
        assert found[name]["status"] == expected[0]
        assert found[name]["found"].endswith(expected[1])
        assert ("free, " in found[name]["found"]) == bool(files)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(0, ("ok", "0.0 s behind")), (60, ("warning", "60.0 s ahead of")), (-1000, ("warning", "1000.0 s behind"))],
)
def test_the_clock_is_compared_with_that_of_the_store(
    url: str, monkeypatch: pytest.MonkeyPatch, ahead: int, expected: tuple[str, str]
) -> None:
    at = clock.now()

    class Stopped(CountingStorage):
        def now(self) -> datetime:
            return at

    set_clock(monkeypatch, now=lambda: at + timedelta(seconds=ahead))
    found = _clock_check(Stopped(connect(url)))
    assert (found.status, found.found) == (expected[0], f"this machine is {expected[1]} the store")
    assert ("refuse" in (found.remedy or "")) == (ahead == -1000)


def test_packages_are_compared_with_their_ranges() -> None:
    needs = [
        Need(None, "pyarrow", ">=26,<27", ()),
        Need("spark", "pandas", ">=2.2,<3", ()),
        Need("spark", "pyspark", ">=4.3,<4.4", ()),
        Need("polars", "polars", ">=1.20", ()),
    ]
    versions = {"pyarrow": "26.0.1", "pandas": "3.0.1", "pyspark": "4.3.0.dev1", "polars": "1.20rc1"}
    base, spark, polars = package_checks(needs, versions.get)
    assert (base.status, spark.status, polars.status) == ("ok", "warning", "ok")
    assert spark.found == "pandas 3.0.1 is not >=2.2,<3"
    assert spark.remedy == "pip install --upgrade 'lakebed[spark]'"
    base, spark, polars = package_checks(needs, {"pyarrow": "25.0", "pandas": "2.2"}.get)
    assert base.error is not None
    assert base.error.code == Code.PACKAGE_MISSING
    assert spark.found == "not installed; pip install 'lakebed[spark]' adds pyspark"
    assert polars.status == "ok"


def test_pages_are_listed_and_printed(cli: Cli) -> None:
    assert "import" in cli("docs").out
    assert cli("docs", "docs/import.md").out == cli("docs", "import").out
    assert cli("docs", "import").out.startswith("# Getting data in\n")
    ran = cli("docs", "imprt")
    assert (ran.code, "`lakebed docs` lists the pages" in ran.err) == (2, True)


def test_records_are_not_listed_and_are_printed_by_name(cli: Cli) -> None:
    listed = [one["page"] for one in json.loads(cli("--json", "docs").out)["pages"]]
    assert {"tutorial", "words", "decisions/README"} <= {*listed}
    assert [name for name in listed if re.match(r"decisions/0|performance/|benchmarks", name)] == []
    assert len(listed) < 70
    assert cli("docs", "performance/figures").code == 0


WORDS = {
    "Delta Lake": "MERGE, OPTIMIZE, Z-order, VACUUM, RESTORE, clone, CDF, constraint, default value, time travel, "
    "deletion vector, liquid clustering, schema evolution, column mapping, generated column, transaction log, "
    "checkpoint, DESCRIBE HISTORY, row-level security, upsert",
    "Iceberg": "branch, tag, snapshot, manifest, partition evolution, hidden partitioning, expire_snapshots, "
    "rewrite_data_files, remove_orphan_files, rollback_to_snapshot, metastore, merge-on-read, copy-on-write",
    "Hudi": "CDC, compaction, clustering, cleaner, savepoint, timeline, instant, precombine, bucket, record index",
    "HBase": "tombstone, coprocessor, region, pre-split, column family, TTL, salting, memstore, flush, WAL, HFile, "
    "major compaction, bulk load, checkAndPut, bloom filter",
    "Sleeper": "iterator, leaf partition, split, compaction job, ingest batcher, state store",
    "IceDB": "merge, tombstone cleanup, format function",
}
"""Words of each system that its users look for."""


@pytest.mark.parametrize(("system", "word"), [(of, word) for of, words in WORDS.items() for word in words.split(", ")])
def test_a_word_of_another_system_is_answered_listed_and_found(system: str, word: str) -> None:
    """Its row on the page for users of other systems names the system, and the glossary has it."""
    listed = {path.stem: path for path in pages_folder().glob("*.md")}
    first = re.compile(rf"\b{re.escape(word)}".replace(r"\ ", ".?.?"), re.IGNORECASE)
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", listed["words"].read_text("utf-8"), re.MULTILINE)
    of = [systems for words, systems in rows if first.search(words.replace("`", ""))]
    assert any(systems == "all" or system.split(maxsplit=1)[0] in systems for systems in of), of
    glossary = listed["glossary"].read_text("utf-8").partition("## Words of other systems")[2].replace("`", "")
    assert first.search(" ".join(glossary.split()))
    assert places(word, listed)[0].page == "words"


def test_the_glossary_lists_the_words_of_the_page_for_users_of_other_systems() -> None:
    page, glossary = ((pages_folder() / name).read_text("utf-8") for name in ("words.md", "glossary.md"))
    sections = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    listed = {title: re.findall(r"^\| (.+?) \| ", body.partition("|---|")[2], re.MULTILINE) for title, body in sections}
    assert min(map(len, listed.values())) > 5
    items = re.findall(r"^\* \[(.+?)\]\(words\.md#\S+\): (.*?)\.$", glossary, re.MULTILINE | re.DOTALL)
    assert {title: " ".join(words.split()).split("; ") for title, words in items} == listed


def test_a_word_that_is_no_page_leads_to_the_search(cli: Cli) -> None:
    ran = cli("docs", "vacuum")
    assert (ran.code, "`lakebed docs --search vacuum`" in ran.err) == (2, True)
    assert cli("docs", "--search", "zorder").out == cli("docs", "--search", "Z-order").out != ""
    assert cli("docs", "--search", "zyxw").out == ""
    assert "no section has 'zyxw'" in cli("docs", "--search", "zyxw").err
    assert cli("docs", "import", "--search", "rows").code == 2
