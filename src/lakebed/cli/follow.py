"""``lakebed follow``: changes of a database or a topic become changes of tables, until Ctrl-C or in a service.

Errors: those of :mod:`lakebed.upkeep.follow`. Source: docs/follow.md.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from lakebed import clock
from lakebed.cli import completions
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import stop_on_signal
from lakebed.cli.invocation import Invocation
from lakebed.cli.status import follower_document, follower_line
from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports
from lakebed.upkeep.follow.change_sources import default_name, open_source
from lakebed.upkeep.follow.declared_follower import (
    DeclaredFollower,
    declare_follower,
    drop_declared,
    known_followers,
    pause_follower,
)
from lakebed.upkeep.follow.follow_record import check_name, check_unused, drop_record, read_record

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

ENDED_WITHIN_S = 60.0
"""How long a service may take to end a follower that was dropped."""

_OPTIONS = (
    click.argument(
        "source",
        metavar="SOURCE",
        help="postgresql://[USER@]HOST[:PORT]/DATABASE, or kafka://HOST:PORT[,…]/TOPIC[,…]; without a password.",
    ),
    click.option(
        "--table",
        "tables",
        metavar="SOURCE[=TABLE]",
        multiple=True,
        help="A table of the source, [SCHEMA.]NAME, or a topic, and the table that takes its changes. May be repeated. "
        "Default: all.",
    ),
    click.option(
        "--name", metavar="NAME", help="The follower's name, and lakebed_NAME that of its slot. Default: DATABASE."
    ),
    click.option(
        "--publication", metavar="NAME", help="A publication that exists. Default: lakebed_NAME, which is made."
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["debezium", "rows"]),
        help="What the messages of Kafka are: envelopes of Debezium (default), or plain rows; JSON, or Avro of a "
        "registry.",
    ),
    click.option(
        "--key", metavar="COLUMNS", help="The key of rows, A,B, if the keys of messages do not name its columns."
    ),
    click.option("--registry", metavar="URL", help="The schema registry of topics in Avro."),
    click.option(
        "--source-config",
        metavar="FILE",
        shell_complete=completions.paths,
        help="Settings of the client of Kafka, lines NAME=VALUE: security.protocol, sasl.username, sasl.password, …",
    ),
    click.option(
        "--snapshot/--no-snapshot", default=True, help="Begin with the rows that are there, or with changes alone."
    ),
    click.option(
        "--dead-letters", metavar="TABLE", help="The table of changes that fit no table. Default: NAME_dead_letters."
    ),
    click.option(
        "--every",
        "every_s",
        metavar="S",
        type=click.FloatRange(0.05, 60),
        default=1.0,
        help="Seconds between commits.",
    ),
)


def _followed(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what is followed, and how, as one parameter ``declared``."""

    @functools.wraps(function)
    def with_declared(cli: Invocation, **given: Any) -> None:
        others = {name: given.pop(name) for name in ("resnapshot", "until_caught_up") if name in given}
        source, name, pairs = given.pop("source"), given.pop("name"), given.pop("tables")
        name = check_name(default_name(source) if name is None else name)
        split = (one.partition("=") for one in pairs)
        tables = tuple((there, here or there.rpartition(".")[2]) for there, _, here in split)
        key, letters = given.pop("key"), given.pop("dead_letters") or ""
        declared = DeclaredFollower(
            name=name,
            url=source,
            tables=tables,
            key=tuple(key.split(",")) if key else (),
            dead_letters=letters,
            config=given.pop("source_config"),
            **given,
        )
        function(cli, declared=declared, **others)

    wrapped: Callable[..., None] = with_declared
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@command
@_followed
@click.option("--resnapshot", is_flag=True, help="Replace all rows by a new snapshot, once; after a slot was lost.")
@click.option("--until-caught-up", is_flag=True, help="End when all changes are there that the source has now.")
def run(cli: Invocation, *, declared: DeclaredFollower, resnapshot: bool, until_caught_up: bool) -> None:
    """Apply the changes of a PostgreSQL database or of topics of Kafka to tables, exactly once.

    Tables are created with the columns and the primary key of the source, and begin with a snapshot. Runs until Ctrl-C,
    or with --until-caught-up. `lakebed docs follow` says more.
    """
    with optional_imports():
        follower = declared.follower(cli.instance(), cli.out.note, resnapshot=resnapshot)
    stopping = threading.Event()
    with stop_on_signal(stopping.set):
        report = follower.run(until_caught_up=until_caught_up, stop=stopping.is_set)
    cli.out.document(report, [report.summary])


@command
@_followed
def create(cli: Invocation, *, declared: DeclaredFollower) -> None:
    """Have services follow a source: `lakebed serve --followers` runs it.

    It does so as `lakebed follow` until Ctrl-C, in its own environment: passwords, and the file of --source-config, by
    its absolute path, are those of its machine. Of several services one follows.
    """
    if declared.config is not None and not Path(declared.config).is_absolute():
        raise Code.ARGUMENT_INVALID(
            f"--source-config {declared.config}: is a file of the machine of the service; give its absolute path"
        )
    with optional_imports():
        # Checks what can be checked here: the file need not be on this machine.
        structs.replace(declared, config=None).source()
    declare_follower(cli.instance().storage, declared)
    cli.out.document(
        {"name": declared.name, "url": declared.url},
        [f"follower {declared.name} of {declared.url} created; services with --followers run it"],
    )


@command
@click.argument("name", metavar="NAME", help="The follower's name.")
def pause(cli: Invocation, *, name: str) -> None:
    """Pause a follower that services run.

    The service that runs it ends it within seconds, and its source keeps the changes meanwhile. A slot that is not read
    keeps the log of its server.
    """
    pause_follower(cli.instance().storage, check_name(name), paused=True)
    cli.out.document({"name": name, "paused": True}, [f"follower {name} paused"])


@command
@click.argument("name", metavar="NAME", help="The follower's name.")
def resume(cli: Invocation, *, name: str) -> None:
    """Resume a follower that is paused, or parked after failures."""
    pause_follower(cli.instance().storage, check_name(name), paused=False)
    cli.out.document({"name": name, "paused": False}, [f"follower {name} resumed; a service runs it within seconds"])


@command
def list_followers(cli: Invocation) -> None:
    """List followers, their tables, and how far they are."""
    found = [*known_followers(cli.instance().storage)]
    lines = [
        line
        for record, declared in found
        for line in (follower_line(record, declared), f"  into {', '.join(record.targets) or 'no table yet'}")
    ]
    documents = [follower_document(record, declared) for record, declared in found]
    cli.out.document({"followers": documents}, lines or ["no followers"])


@command
@click.argument("name", metavar="NAME", help="The follower's name.")
@click.option(
    "--at-source",
    is_flag=True,
    help="Also drop its slot and its publication in PostgreSQL, which keeps its log for it.",
)
def drop(cli: Invocation, *, name: str, at_source: bool) -> None:
    """Drop a follower; its tables keep their rows.

    One that a command runs has to be stopped before. The tables also keep their positions: followed again under the
    same name, they get no new snapshot. A slot that is left keeps the log of the server, until its disk is full.
    """
    storage = cli.instance().storage
    url, was_declared = _end_in_services(storage, check_name(name), cli.out.note)
    found = read_record(storage, name)
    dropped: tuple[str, ...] = ()
    if found is not None:
        check_unused(found)
    if at_source and (url := found.url if found is not None else url):
        with optional_imports():
            dropped = open_source(url, name, ()).forget()
    if found is not None or not was_declared:
        url = drop_record(storage, name).url
    what = ", ".join((f"follower {name}", *dropped))
    cli.out.document({"name": name, "url": url, "at_source": list(dropped)}, [f"{what} dropped"])


def _end_in_services(storage: Storage, name: str, say: Callable[[str], None]) -> tuple[str, bool]:
    """Delete the declaration of a follower, and wait until no service runs it; return its URL, and whether it had one.

    The URL is empty if the declaration is damaged, or if there is none.
    """
    url = next((one.url for _, one in known_followers(storage) if one is not None and one.name == name), "")
    if not drop_declared(storage, name):
        return "", False
    end_s, is_said = clock.monotonic_s() + ENDED_WITHIN_S, False
    while (record := read_record(storage, name)) is not None and record.in_use and clock.monotonic_s() < end_s:
        if not is_said:
            say(f"waiting until the service has ended the follower {name}")
            is_said = True
        clock.sleep(0.5)
    return url, True
