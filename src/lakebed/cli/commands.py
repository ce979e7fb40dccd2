"""Every command of ``lakebed``, with one line of help each, in the order in which the help lists them.

The options and the command that need no other module are defined here: ``--version``, ``--application`` and
``completion``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import click

import lakebed
from lakebed.cli.grammar import Deferred, Group, command
from lakebed.cli.invocation import Invocation

COMPLETION_VARIABLE = "_LAKEBED_COMPLETE"
"""Set by completion scripts, which run ``lakebed`` to list the possible next words."""


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as Click calls it
    if value and not ctx.resilient_parsing:
        click.echo(f"lakebed {lakebed.__version__}")
        ctx.exit()


def _print_application(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as Click calls it
    if value and not ctx.resilient_parsing:
        click.echo(Path(__file__).with_name("application.py"))
        ctx.exit()


def _flag(name: str, help: str, callback: Callable[[click.Context, click.Parameter, bool], None]) -> click.Option:
    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=help)


def complete() -> int:
    """Answer the completion script of a shell, which runs ``lakebed`` with a variable set; returns the exit code.

    Prints nothing to stderr, because the shell would show it in the line that the user types.
    """
    from lakebed.cli.completions import answer

    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        click.echo(answer(LAKEBED, Invocation()))
    return 0


@command
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish.")
def completion(_: Invocation, *, shell: str) -> None:
    """Print the completion script of a shell.

    bash: add `eval "$(lakebed completion bash)"` to ~/.bashrc.

    zsh: add `eval "$(lakebed completion zsh)"` to ~/.zshrc.

    fish: run `lakebed completion fish > ~/.config/fish/completions/lakebed.fish`.
    """
    from lakebed.cli.completions import SCRIPTS

    click.echo(SCRIPTS[shell], nl=False)


_GROUPS = {
    "table": "Create, show and change tables.",
    "schema": "Show the schema of a file.",
    "settings": "Show and change settings.",
    "tag": "Name versions of a table and keep their files.",
    "view": "Create and refresh views: tables computed from others.",
    "index": "Create, feed, list and drop indexes: rows by other columns than the key.",
    "hook": "Notify webhooks and commands of the commits of a table.",
    "follow": "Follow a database or topics into tables, here or in services; list followers and drop them.",
    "requests": "Submit files for `lakebed ingest`, list and drop them.",
    "token": "Create, list and drop tokens for services of the instance.",
    "access-key": "Create, list and drop access keys for the object gateway.",
    "role": "Create, list and drop roles: permissions, row filters, hidden and masked columns.",
    "jobs": "List jobs, how far they are and how they ended; try parked ones again.",
    "backup": "Copy an instance while it is used, and copy it back.",
    "query": "Have a service run queries in the background, and fetch their rows.",
    "config": "Show the configuration: instances and profiles by name, and the values in force.",
}
"""The groups, with a line of help each."""

_COMMANDS = (
    ("init", "tables:init", "Create an instance, by default in the folder lake."),
    ("table create", "tables:create", "Create an empty table."),
    ("table list", "tables:list_tables", "List all tables."),
    ("table show", "tables:show", "Show a table's schema and size."),
    ("table alter", "tables:alter", "Change a table's schema, filter, name or state; no file is rewritten."),
    (
        "table pause",
        "maintenance:pause",
        "Pause operations of a table, by default all: ingest, compaction, splitting, refresh, publication, gc.",
    ),
    ("table resume", "maintenance:resume", "Resume operations of a table that are paused, by default all."),
    ("table drop", "tables:drop", "Drop a table; asks for its name first."),
    ("table files", "tables:files", "List data files, partition by partition."),
    ("table partitions", "tables:partitions", "List partitions: their key ranges, rows, files and parents."),
    ("table rewrite", "integrity:rewrite", "Delete or change rows in one commit; asks for its name first."),
    ("table repair", "integrity:repair", "Replace invalid values, such as text that is not UTF-8."),
    (
        "schema infer",
        "reading:infer",
        "Show the detected columns of a file; with --key, print a schema for them.",
    ),
    ("settings show", "tables:show_settings", "Show the settings in force."),
    ("settings set", "tables:change_settings", "Change settings."),
    ("tag create", "versions:create_tag", "Name a version of a table and keep its files."),
    ("tag drop", "versions:drop_tag", "Drop a tag; its files may then be deleted."),
    ("tag list", "versions:list_tags", "List a table's tags and their versions."),
    (
        "apply",
        "declarations:apply",
        "Bring the instance into the state that a file declares; asks first.",
    ),
    ("dump", "declarations:dump", "Print the declaration of the instance, as `lakebed apply` reads it."),
    (
        "view create",
        "merging:create_view",
        "Create a view: a table that is computed from the rows of another one by a query.",
    ),
    (
        "view refresh",
        "merging:refresh",
        "Bring a view up to date with its source, in one commit, in this process.",
    ),
    (
        "index create",
        "indexes:create",
        "Create an index: rows are then found by the values of these columns.",
    ),
    (
        "index refresh",
        "indexes:refresh",
        "Add to an index the rows that its table has gained, in this process; the first time, all rows.",
    ),
    (
        "index list",
        "indexes:list_indexes",
        "List indexes, their columns, and the version of its table that each has.",
    ),
    ("index drop", "indexes:drop", "Drop an index; its table keeps its rows."),
    ("hook create", "hooks:create", "Notify a webhook or a command of the commits of a table."),
    ("hook list", "hooks:list_hooks", "List hooks and their deliveries."),
    ("hook drop", "hooks:drop", "Drop a hook."),
    ("get", "read:get", "Print all rows of a key, or of many keys."),
    ("scan", "read:scan", "Print rows in key order."),
    ("count", "read:count", "Count rows."),
    ("sample", "read:sample", "Print random rows, in key order."),
    ("prefixes", "read:prefixes", "Print the distinct values of the first row key fields."),
    ("tail", "read:tail", "Print what versions changed, and follow new ones."),
    ("explain", "read:explain", "Read a key or ranges, and print statistics of the read."),
    ("sql", "sql:sql", "Run SQL: print the rows of a query, or change tables; or prompt."),
    ("write", "write:write", "Add the rows of files, in this process."),
    (
        "delete",
        "write:delete",
        "Delete keys of a table that merges by latest; with --where asks first.",
    ),
    ("remove", "write:remove", "Remove the rows of key ranges; asks for the table's name first."),
    ("restore", "versions:restore", "Restore the rows of an older version; asks for the table's name first."),
    ("import", "write:import_rows", "Add large files at once."),
    ("attach", "write:attach", "Add sorted Parquet files as they are."),
    (
        "migrate",
        "write:migrate",
        "Add the rows of a table of Delta, Iceberg, Hive, Sleeper or IceDB.",
    ),
    (
        "follow run",
        "follow:run",
        "Apply the changes of a PostgreSQL database or of topics of Kafka to tables, exactly once.",
    ),
    ("follow create", "follow:create", "Have services follow a source: `lakebed serve --followers` runs it."),
    ("follow pause", "follow:pause", "Pause a follower that services run."),
    ("follow resume", "follow:resume", "Resume a follower that is paused, or parked after failures."),
    ("follow list", "follow:list_followers", "List followers, their tables, and how far they are."),
    ("follow drop", "follow:drop", "Drop a follower; its tables keep their rows."),
    ("export", "write:export", "Write rows as sorted files to an empty folder."),
    ("requests submit", "maintenance:submit", "Record files to be added by `lakebed ingest`."),
    ("requests list", "maintenance:list_requests", "List open requests, and the last that were rejected."),
    ("requests drop", "maintenance:drop_requests", "Drop open requests."),
    ("ingest", "maintenance:ingest", "Carry out open requests that are due."),
    ("maintain", "maintenance:maintain", "Ingest, compact, split, join, publish and collect garbage, as far as due."),
    ("serve", "serve:serve", "Maintain all tables, answer queries over HTTP, and serve pages."),
    (
        "token create",
        "access:create_token",
        "Create a token for a service of the instance, and print it: it is shown this once.",
    ),
    ("token list", "access:list_tokens", "List tokens: their names, roles and expiry."),
    ("token drop", "access:drop_token", "Drop a token by its id: services refuse it within 30 seconds."),
    (
        "access-key create",
        "access:create_access_key",
        "Create an access key for the object gateway, and print its id and its secret.",
    ),
    ("access-key list", "access:list_access_keys", "List access keys: their names, roles, tables and expiry."),
    (
        "access-key drop",
        "access:drop_access_key",
        "Drop an access key; gateways then refuse it within 30 seconds.",
    ),
    ("role create", "access:create_role", "Create a role, for tokens and for the claims of an identity provider."),
    ("role list", "access:list_roles", "List the roles that were created, beside read, write and admin."),
    ("role drop", "access:drop_role", "Drop a role; services then refuse tokens that have it."),
    ("compact", "maintenance:compact", "Merge the runs of partitions that have several."),
    ("split", "maintenance:split", "Split partitions that have grown too large."),
    ("join", "maintenance:join", "Join small neighbouring partitions."),
    ("gc", "maintenance:gc", "Delete objects that are no longer needed, of one table or of all."),
    ("publish", "maintenance:publish", "Publish the latest version of a table as Apache Iceberg."),
    ("status", "status:show_status", "Show tables, backlogs, errors, and the next operations with their reasons."),
    ("top", "screen:top", "Show the status live, in a terminal."),
    ("jobs list", "jobs:list_jobs", "List jobs, newest first, of all tables or of one."),
    ("jobs show", "jobs:show_job", "Show a job with its tasks and errors."),
    ("jobs retry", "jobs:retry_job", "Retry a parked job."),
    ("query submit", "jobs:submit", "Submit a scan of a table, or a query in SQL, to a service."),
    (
        "query list",
        "jobs:list_queries",
        "List submitted queries, newest first: yours, and those of tables that you administer.",
    ),
    ("query show", "jobs:show_query", "Show the progress or the outcome of a query."),
    ("query fetch", "jobs:fetch", "Print the rows of a query after it has ended."),
    (
        "query drop",
        "jobs:drop_query",
        "Drop a query: cancel one that runs, delete one that has ended, with its rows.",
    ),
    ("backup create", "backup:create", "Copy the instance, while it is used, to another place; again: what is new."),
    ("backup restore", "backup:restore", "Copy a backup to the place of --instance, which is empty."),
    ("history", "versions:history", "List what happened to a table, newest first."),
    ("erase-report", "integrity:erase_report", "List every object that still holds such rows, or their keys."),
    ("verify", "integrity:verify", "Check a table: its log, its files and, if asked, every row."),
    ("doctor", "doctor:doctor", "Check this machine, and the instance if one is given."),
    ("docs", "manual:docs", "List the pages of the documentation, or print one."),
    ("config path", "doctor:path", "Print which configuration file is read."),
    (
        "config show",
        "doctor:show",
        "Show the configuration file as it is understood, and the values in force; secrets are not shown.",
    ),
    ("completion", "commands:completion", "Print the completion script of a shell."),
)
"""Every command: its words, where it is defined, and its line of help, in the order of the help."""

_OLD_NAMES = {
    "hook": {"add": "create", "remove": "drop"},
    "query": {"cancel": "drop"},
    "requests": {"withdraw": "drop"},
    "token": {"revoke": "drop"},
}
"""By group, former names of commands and today's (docs/decisions/0071). They work for one release."""


def _groups_and_commands() -> Iterator[click.Command]:
    """Return the commands without a group, and the groups with theirs."""
    for first, rows in groupby(_COMMANDS, key=lambda row: row[0].partition(" ")[0]):
        commands = [Deferred(words.rpartition(" ")[2], help, target) for words, target, help in rows]
        if first in _GROUPS:
            default = {"follow": "run", "jobs": "list"}.get(first)
            yield Group(first, _GROUPS[first], commands, default=default, old_names=_OLD_NAMES.get(first))
        else:
            yield from commands


LAKEBED = Group(
    "lakebed",
    "Very large tables of keyed rows, as sorted Parquet files on object storage.",
    list(_groups_and_commands()),
    epilog="`lakebed COMMAND --help` says more; `lakebed docs import` prints a page of the manual.",
    params=[
        _flag("--version", "Show the version and exit.", _print_version),
        _flag(
            "--application",
            "Show the file for spark-submit (`lakebed docs clusters`) and exit.",
            _print_application,
        ),
    ],
)
