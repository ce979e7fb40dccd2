"""Words of other systems, and of ours in another order, are answered with something that is there."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from lakebed.cli.commands import LAKEBED
from lakebed.cli.suggestions import WORDS, commands_meant

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def context() -> click.Context:
    return click.Context(LAKEBED)


def assert_is_there(line: str, context: click.Context) -> None:
    """A command line, without `lakebed`, that runs a command or prints a page."""
    first, *rest = line.split()
    if first.startswith("--"):
        assert first in {*(option for param in LAKEBED.params for option in param.opts), *context.help_option_names}
        return
    command = LAKEBED.get_command(context, first)
    assert command is not None, line
    if isinstance(command, click.Group):
        assert command.get_command(context, *rest) is not None, line
    elif first == "docs":
        assert not rest or (DOCS / f"{rest[0]}.md").is_file(), line
    else:
        assert not rest, line


@pytest.mark.parametrize("word", WORDS)
def test_what_a_word_is_answered_with_is_a_command(word: str, context: click.Context) -> None:
    assert LAKEBED.get_command(context, word) is None, "such a command is there"
    assert_is_there(WORDS[word], context)
    for spelled in (word, word.upper(), word.replace("_", "-"), word.replace("-", "_")):
        assert commands_meant(spelled, context) == [f"lakebed {WORDS[word]}"]


COMMANDS = {
    "HBase's shell": "create list describe alter drop disable enable put get scan delete deleteall count truncate "
    "get_splits split flush major_compact compact exists snapshot list_snapshots restore_snapshot version status "
    "create_namespace grant revoke",
    "SQL of Delta": "optimize vacuum describe merge restore clone convert update delete insert",
    "procedures of Iceberg": "rollback_to_snapshot expire_snapshots remove_orphan_files rewrite_data_files "
    "rewrite_manifests snapshot migrate add_files register_table create_changelog_view fast_forward",
    "Hudi's CLI": "connect commits compactions cleans savepoint bootstrap table repair stats",
    "Sleeper's scripts": "createTable deleteTable bulkImport compactFiles",
    "RocksDB's ldb": "put get scan delete batchput compact checkpoint repair dump backup restore list_column_families",
    "git and shells": "init log diff ls rm cat tail head merge branch tag checkout status help man show mv du ps kill",
    "habits": "create-instance create-table create-lake create-database create-view create-index create-tag "
    "create-token create-role list-tables list-views list-tags list-indexes list-jobs show-table describe-table "
    "drop-table delete-table drop-view dropIndex remove-tag tables-list table-create info-instance load-data "
    "import-data read-rows write-rows run-sql run-query export-table start-server backup-instance restore-backup "
    "make-backup refresh-view add-hook dump-instance verify-table",
}
"""What users of each type, as one word."""
UNANSWERED = {"connect", "checkout", "fast_forward", "cleans"}
"""Words without a sense here; what is alike may be suggested."""


@pytest.mark.parametrize(("of", "word"), [(of, word) for of, words in COMMANDS.items() for word in words.split()])
def test_a_command_of_another_system_leads_to_a_command(of: str, word: str, context: click.Context) -> None:
    if LAKEBED.get_command(context, word) is not None:
        return
    meant = commands_meant(word, context)
    assert meant or word in UNANSWERED, f"{of}: {word} suggests nothing"
    for line in meant:
        command = line.removeprefix("lakebed ")
        if command in LAKEBED.list_commands(context):
            continue
        assert_is_there(command, context)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("create-instance", "lakebed init"),
        ("createTable", "lakebed table create"),
        ("list_tables", "lakebed table list"),
        ("tables-list", "lakebed table list"),
        ("describe-table", "lakebed table show"),
        ("dropIndex", "lakebed index drop"),
        ("delete-table", "lakebed table drop"),
        ("read-rows", "lakebed scan"),
        ("expire_snapshots", "lakebed gc"),
        ("expire-snapshots", "lakebed gc"),
        ("CREATE-DB", "lakebed init"),
        ("restore_backup", "lakebed backup restore"),
        ("backup-instance", "lakebed backup create"),
        ("run-sql", "lakebed sql"),
        ("start-server", "lakebed serve"),
        ("scna", "lakebed scan"),
        ("creat-instance", "lakebed init"),
        ("create-instnace", "lakebed init"),
        ("creat-table", "lakebed table create"),
        ("drop-tabel", "lakebed table drop"),
        ("lst-indexes", "lakebed index list"),
        ("erase-reprot", "lakebed erase-report"),
    ],
)
def test_the_command_that_is_meant(word: str, meant: str, context: click.Context) -> None:
    assert commands_meant(word, context) == [meant]


def test_a_word_of_no_sense_is_not_answered(context: click.Context) -> None:
    assert commands_meant("foo-bar", context) == []
