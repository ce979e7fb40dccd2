"""``lakebed backup``: an instance copied while it is used, and copied back; both are verified.

Errors: those of :mod:`lakebed.table.backup`. Source: docs/operations.md.
"""

from __future__ import annotations

import click

import lakebed
from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.storage import connect
from lakebed.table import backup


@command
@click.argument("url", metavar="TO", shell_complete=completions.paths, help="A folder or a URL, on any store.")
def create(cli: Invocation, *, url: str) -> None:
    """Copy the instance, while it is used, to another place; again: what is new.

    Each table is copied as it is at some moment of the copy, and then verified. Garbage collection is paused meanwhile.
    The copy opens like any instance, for reads only: what is written there ends later backups to it.
    """
    options = cli.options_in_force()
    count = backup.backup(cli.instance(), connect(url, options))
    copy = lakebed.open(url, storage_options=options)
    report = backup.BackupReport(copy.url, count, backup.verified(copy))
    cli.out.document(report, [f"{report.url}: {report.summary}"])


@command
@click.argument("url", metavar="FROM", shell_complete=completions.paths, help="What `lakebed backup create` made.")
def restore(cli: Invocation, *, url: str) -> None:
    """Copy a backup to the place of --instance, which is empty.

    Verifies all tables, and lets garbage be collected again. Repeat it if it was interrupted.
    """
    options, place = cli.options_in_force(), cli.url()
    source = lakebed.open(url, storage_options=options)
    count = backup.restore(source.storage, connect(place, options))
    copy = lakebed.open(place, storage_options=options)
    report = backup.BackupReport(copy.url, count, backup.verified(copy))
    for one in report.tables:
        copy.resume(one.table, "gc")
    cli.out.document(report, [f"{report.url}: {report.summary}"])
