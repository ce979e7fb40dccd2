"""``lakebed follow``: changes of a database or a topic become changes of tables, until Ctrl-C; and what follows.

Errors: those of :mod:`lakebed.upkeep.follow`. Source: docs/follow.md.
"""

from __future__ import annotations

import threading

import click

from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.cli.status import follower_line
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.json_values import plain
from lakebed.upkeep.follow.change_sources import SourceOptions, default_name, open_source
from lakebed.upkeep.follow.follow_record import check_name, check_unused, drop_record, read_record, read_records
from lakebed.upkeep.follow.run import FollowOptions, SourceFollower


@command
@click.argument(
    "source",
    metavar="SOURCE",
    help="postgresql://[USER@]HOST[:PORT]/DATABASE, or kafka://HOST:PORT[,…]/TOPIC[,…]; without a password.",
)
@click.option(
    "--table",
    "tables",
    metavar="SOURCE[=TABLE]",
    multiple=True,
    help="A table of the source, [SCHEMA.]NAME, or a topic, and the table that takes its changes. May be repeated. "
    "Default: all.",
)
@click.option(
    "--name", metavar="NAME", help="The follower's name, and lakebed_NAME that of its slot. Default: DATABASE."
)
@click.option("--publication", metavar="NAME", help="A publication that exists. Default: lakebed_NAME, which is made.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["debezium", "rows"]),
    help="What the messages of Kafka are: envelopes of Debezium (default), or plain rows; JSON, or Avro of a registry.",
)
@click.option("--key", metavar="COLUMNS", help="The key of rows, A,B, if the keys of messages do not name its columns.")
@click.option("--registry", metavar="URL", help="The schema registry of topics in Avro.")
@click.option(
    "--source-config",
    metavar="FILE",
    shell_complete=completions.paths,
    help="Settings of the client of Kafka, lines NAME=VALUE: security.protocol, sasl.username, sasl.password, …",
)
@click.option(
    "--snapshot/--no-snapshot", default=True, help="Begin with the rows that are there, or with changes alone."
)
@click.option("--resnapshot", is_flag=True, help="Replace all rows by a new snapshot, once; after a slot was lost.")
@click.option(
    "--dead-letters", metavar="TABLE", help="The table of changes that fit no table. Default: NAME_dead_letters."
)
@click.option("--every", metavar="S", type=click.FloatRange(0.05, 60), default=1.0, help="Seconds between commits.")
@click.option("--until-caught-up", is_flag=True, help="End when all changes are there that the source has now.")
def run(
    cli: Invocation,
    *,
    source: str,
    tables: tuple[str, ...],
    name: str | None,
    publication: str | None,
    form: str | None,
    key: str | None,
    registry: str | None,
    source_config: str | None,
    snapshot: bool,
    resnapshot: bool,
    dead_letters: str | None,
    every: float,
    until_caught_up: bool,
) -> None:
    """Apply the changes of a PostgreSQL database or of topics of Kafka to tables, exactly once.

    Tables are created with the columns and the primary key of the source, and begin with a snapshot. Runs until Ctrl-C,
    or with --until-caught-up. `lakebed docs follow` says more.
    """
    name = check_name(default_name(source) if name is None else name)
    pairs = [(there, here or there.rpartition(".")[2]) for there, _, here in (one.partition("=") for one in tables)]
    options = FollowOptions(
        name, dead_letters or f"{name}_dead_letters", every, snapshot=snapshot, resnapshot=resnapshot
    )
    with optional_imports():
        opened = open_source(
            source,
            name,
            pairs,
            SourceOptions(publication, form, tuple(key.split(",")) if key else (), registry, source_config),
        )
    stopping = threading.Event()
    follower = SourceFollower(cli.instance(), opened, options, cli.out.note)
    with stop_on_signal(stopping.set):
        report = follower.run(until_caught_up=until_caught_up, stop=stopping.is_set)
    cli.out.document(report, [report.summary])


@command
def list_followers(cli: Invocation) -> None:
    """List followers, their tables, and how far they are."""
    records = [*read_records(cli.instance().storage)]
    lines = [
        line for one in records for line in (follower_line(one), f"  into {', '.join(one.targets) or 'no table yet'}")
    ]
    cli.out.document({"followers": list(map(plain, records))}, lines or ["no followers"])


@command
@click.argument("name", metavar="NAME", help="The follower's name.")
@click.option(
    "--at-source",
    is_flag=True,
    help="Also drop its slot and its publication in PostgreSQL, which keeps its log for it.",
)
def drop(cli: Invocation, *, name: str, at_source: bool) -> None:
    """Drop a follower that does not run; its tables keep their rows.

    The tables also keep their positions: followed again under the same name, they get no new snapshot. A slot that is
    left keeps the log of the server, until its disk is full.
    """
    storage = cli.instance().storage
    found = read_record(storage, check_name(name))
    dropped: tuple[str, ...] = ()
    if at_source and found is not None:
        check_unused(found)
        with optional_imports():
            dropped = open_source(found.url, name, ()).forget()
    found = drop_record(storage, name)
    what = ", ".join((f"follower {name}", *dropped))
    cli.out.document({"name": name, "url": found.url, "at_source": list(dropped)}, [f"{what} dropped"])
