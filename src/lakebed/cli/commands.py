"""Every command of ``lakebed``, with one line of help each, in the order in which the help lists them.

The options and the command that need no other module are defined here: ``--version``, ``--application`` and
``completion``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
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

    Says nothing on stderr, which would be written into the line that the user types.
    """
    from lakebed.cli.completion_scripts import answer

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
    from lakebed.cli.completion_scripts import SCRIPTS

    click.echo(SCRIPTS[shell], nl=False)


LAKEBED = Group(
    "lakebed",
    "Very large tables of keyed rows, as sorted Parquet files on object storage.",
    [
        Deferred("init", "Create an instance, by default in the folder lake.", "tables:init"),
        Group(
            "table",
            "Create, show and change tables.",
            [
                Deferred("create", "Create an empty table.", "tables:create"),
                Deferred("list", "List all tables.", "tables:list_tables"),
                Deferred("show", "Show a table's schema and size.", "tables:show"),
                Deferred(
                    "alter", "Change a table's schema, filter, name or state; no file is rewritten.", "tables:alter"
                ),
                Deferred(
                    "pause",
                    "Pause operations of a table, by default all: ingest, compaction, splitting, refresh, gc.",
                    "maintenance:pause",
                ),
                Deferred(
                    "resume", "Resume operations of a table that are paused, by default all.", "maintenance:resume"
                ),
                Deferred("drop", "Drop a table; asks for its name first.", "tables:drop"),
                Deferred("files", "List data files, partition by partition.", "tables:files"),
                Deferred("partitions", "List partitions: their key ranges, rows and files.", "tables:partitions"),
                Deferred(
                    "rewrite",
                    "Delete or change rows in one commit; asks for its name first.",
                    "erasure:rewrite",
                ),
                Deferred("repair", "Replace invalid values, such as text that is not UTF-8.", "integrity:repair"),
            ],
        ),
        Group(
            "schema",
            "Show what schema a file has.",
            [
                Deferred(
                    "infer",
                    "Show the columns of a file, as they are detected; with --key, print a schema for them.",
                    "reading:infer",
                ),
            ],
        ),
        Group(
            "settings",
            "Show and change settings.",
            [
                Deferred("show", "Show the settings in force.", "tables:show_settings"),
                Deferred("set", "Change settings.", "tables:change_settings"),
            ],
        ),
        Group(
            "tag",
            "Name versions of a table and keep their files.",
            [
                Deferred("create", "Name a version of a table and keep its files.", "versions:create_tag"),
                Deferred("drop", "Drop a tag; its files may then be deleted.", "versions:drop_tag"),
                Deferred("list", "List a table's tags and their versions.", "versions:list_tags"),
            ],
        ),
        Deferred(
            "apply",
            "Make the instance as a file declares it, after it showed the changes and asked.",
            "declared:apply",
        ),
        Deferred("dump", "Print the declaration of the instance, as `lakebed apply` reads it.", "declared:dump"),
        Group(
            "view",
            "Create and refresh views: tables that are fed from others.",
            [
                Deferred(
                    "create",
                    "Create a view: a table that is fed from the rows of another one, through a query.",
                    "merging:create_view",
                ),
                Deferred(
                    "refresh",
                    "Add to a view what its source added since the last refresh, in one commit, in this process.",
                    "merging:refresh",
                ),
            ],
        ),
        Group(
            "hook",
            "Tell webhooks and commands of the commits of a table.",
            [
                Deferred("add", "Tell a webhook or a command of the commits of a table.", "hooks:add"),
                Deferred("list", "List hooks, and what was delivered to them.", "hooks:list_hooks"),
                Deferred("remove", "Remove a hook.", "hooks:remove"),
            ],
        ),
        Deferred("get", "Print all rows of a key, or of many keys.", "read:get"),
        Deferred("scan", "Print rows in key order.", "read:scan"),
        Deferred("count", "Count rows.", "read:count"),
        Deferred("sample", "Print random rows, in key order.", "read:sample"),
        Deferred("prefixes", "Print the distinct values of the first row key fields.", "read:prefixes"),
        Deferred("tail", "Print what versions changed, and follow new ones.", "tail:tail"),
        Deferred("explain", "Read a key or ranges, and print what the read took.", "read:explain"),
        Deferred("sql", "Print the rows of a query over any tables, or prompt for queries.", "sql:sql"),
        Deferred("write", "Add the rows of files, in this process.", "write:write"),
        Deferred(
            "delete",
            "Delete keys of a table that merges by latest; with --where asks for the table's name first.",
            "write:delete",
        ),
        Deferred("remove", "Remove the rows of key ranges; asks for the table's name first.", "write:remove"),
        Deferred(
            "restore", "Give a table the rows of an older version back; asks for its name first.", "versions:restore"
        ),
        Deferred("import", "Add large files at once, on Spark.", "write:import_rows"),
        Deferred("attach", "Add sorted Parquet files as they are.", "write:attach"),
        Deferred(
            "migrate",
            "Add the rows of a table of Delta, Iceberg, Hive, Sleeper or IceDB, in this process or on Spark.",
            "migrate:migrate",
        ),
        Deferred("export", "Write rows as sorted files to an empty folder.", "write:export"),
        Group(
            "requests",
            "Submit files for `lakebed ingest`, list and withdraw them.",
            [
                Deferred("submit", "Record files that `lakebed ingest` is to add.", "requests:submit"),
                Deferred("list", "List open requests, and the last that were rejected.", "requests:list_requests"),
                Deferred("withdraw", "Withdraw open requests.", "requests:withdraw"),
            ],
        ),
        Deferred("ingest", "Carry out open requests that are due.", "requests:ingest"),
        Deferred(
            "maintain", "Ingest, compact, split, join and collect garbage, as far as due.", "maintenance:maintain"
        ),
        Deferred("serve", "Maintain all tables, answer queries over HTTP, and show pages.", "serve:serve"),
        Group(
            "token",
            "Create, list and revoke tokens for services of the instance.",
            [
                Deferred(
                    "create",
                    "Create a token for a service of the instance, and print it: it is shown this once.",
                    "access:create_token",
                ),
                Deferred(
                    "list",
                    "List tokens: for whom, with which roles, until when.",
                    "access:list_tokens",
                ),
                Deferred(
                    "revoke", "Revoke a token by its id: services refuse it within 30 seconds.", "access:revoke_token"
                ),
            ],
        ),
        Group(
            "role",
            "Create, list and drop roles: permissions, row filters, hidden and masked columns.",
            [
                Deferred(
                    "create",
                    "Create a role, for tokens and for the claims of an identity provider.",
                    "access:create_role",
                ),
                Deferred(
                    "list", "List the roles that were created, beside read, write and admin.", "access:list_roles"
                ),
                Deferred("drop", "Drop a role; services then refuse tokens that have it.", "access:drop_role"),
            ],
        ),
        Deferred("compact", "Merge the runs of partitions that have several.", "maintenance:compact"),
        Deferred("split", "Split partitions that have grown too large.", "maintenance:split"),
        Deferred("join", "Join small neighbouring partitions.", "maintenance:join"),
        Deferred("gc", "Delete what is no longer needed, of a table or of all.", "maintenance:gc"),
        Deferred("status", "Show tables, backlogs and errors, and what comes next and why.", "status:show_status"),
        Deferred("top", "Show the status live, in a terminal.", "status:top"),
        Group(
            "jobs",
            "List jobs, how far they are and how they ended; try parked ones again.",
            [
                Deferred("list", "List jobs, newest first, of all tables or of one.", "jobs:list_jobs"),
                Deferred("show", "Show a job with its tasks and errors.", "jobs:show_job"),
                Deferred("retry", "Have a parked job tried again.", "jobs:retry_job"),
            ],
            default="list",
        ),
        Group(
            "query",
            "Have a service run queries in the background, and fetch their rows.",
            [
                Deferred(
                    "submit",
                    "Have a service run a scan of a table, or a query in SQL, in the background.",
                    "queries:submit",
                ),
                Deferred(
                    "list",
                    "List submitted queries, newest first: yours, and those of tables that you administer.",
                    "queries:list_queries",
                ),
                Deferred("show", "Show how far a query is, or how it ended.", "queries:show_query"),
                Deferred("fetch", "Print the rows of a query, when it has ended.", "queries:fetch"),
                Deferred(
                    "cancel",
                    "End a query; one that has ended is deleted with the rows that the service keeps.",
                    "queries:cancel",
                ),
            ],
        ),
        Deferred("history", "List what happened to a table, newest first.", "versions:history"),
        Deferred(
            "erase-report",
            "List every object that still holds such rows, or their keys.",
            "erasure:erase_report",
        ),
        Deferred("verify", "Check a table: its log, its files and, if asked, every row.", "integrity:verify"),
        Deferred("doctor", "Check this machine, and the instance if one is given.", "doctor:doctor"),
        Deferred("docs", "List the pages of the documentation, or print one.", "doctor:docs"),
        Group(
            "config",
            "Show the configuration: instances and profiles by name, and the values in force.",
            [
                Deferred("path", "Print which configuration file is read.", "configuration:path"),
                Deferred(
                    "show",
                    "Show the configuration file as it is understood, and the values in force; secrets are not shown.",
                    "configuration:show",
                ),
            ],
        ),
        Deferred("completion", "Print the completion script of a shell.", "commands:completion"),
    ],
    epilog="`lakebed COMMAND --help` says more; `lakebed docs import` prints docs/import.md. Data go to stdout, "
    "messages to stderr.",
    params=[
        _flag("--version", "Show the version and exit.", _print_version),
        _flag(
            "--application",
            "Show the file that spark-submit is to run (docs/clusters.md) and exit.",
            _print_application,
        ),
    ],
)
