"""``lakebed follow``: changes of a database or a topic become changes of tables, until Ctrl-C.

Errors: those of :mod:`lakebed.upkeep.follow`. Source: docs/follow.md.
"""

from __future__ import annotations

import threading

import click

from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.model.foreign_errors import optional_imports
from lakebed.upkeep.follow.change_sources import SourceOptions, default_name, open_source
from lakebed.upkeep.follow.follow_record import check_name
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
def follow(
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
