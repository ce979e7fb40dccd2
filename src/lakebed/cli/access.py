"""``lakebed token``, ``access-key`` and ``role``: who may use a service of the instance, and which data each may see.

All are objects of the instance (:mod:`lakebed.server.security.stored`, :mod:`~lakebed.server.security.access_keys`),
which services read again while they run. Rule: the text of a token, and the secret of an access key, are printed once,
and never stored. Source: docs/security.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from lakebed import clock
from lakebed.cli import completions, options
from lakebed.cli.grammar import command, name_value
from lakebed.cli.invocation import Invocation
from lakebed.cli.render import NULL, TextColumns, columns
from lakebed.errors import Code, UsageError
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.server.security.access_keys import AccessKey, Share
    from lakebed.server.security.roles import Role
    from lakebed.server.security.stored import AccessToken

_AGE = re.compile(r"([1-9][0-9]{0,5})([hd])")
_TABLES = click.option(
    "--table", "tables", metavar="TABLE", multiple=True, help="A table; default: all tables. May be repeated."
)
_ROLES = click.option(
    "--role",
    "roles",
    metavar="ROLE",
    multiple=True,
    required=True,
    help="read, write, admin, or a role. May be repeated.",
)
_EXPIRES = click.option(
    "--expires", default="90d", show_default=True, metavar="TIME", help="When it expires: 12h, 90d (days), or never."
)


@command
@click.argument("name", metavar="NAME")
@_ROLES
@_TABLES
@_EXPIRES
def create_token(cli: Invocation, *, name: str, roles: tuple[str, ...], tables: tuple[str, ...], expires: str) -> None:
    """Create a token for a service of the instance, and print it: it is shown this once.

    NAME identifies the holder in the audit log. Only a digest of the token is stored. With --table its roles apply only
    to these tables.
    """
    from lakebed.server.security import stored

    ends = _end(expires)
    storage = cli.instance().storage
    is_first = not stored.tokens_of(storage)
    token, secret = stored.create_token(storage, name, roles, tables or None, ends)
    cli.out.document({**_token_document(token), "token": secret}, [secret])
    cli.out.note(f"token {token.id} for {name}: keep it, it is not shown again")
    if is_first:
        cli.out.note("the first of the instance: a running service answers without a token until it is restarted")
    else:
        cli.out.note(f"a running service accepts it after {stored.AGE_MAX_S:.0f} seconds at most")


@command
@options.row_format
def list_tokens(cli: Invocation) -> None:
    """List tokens: their names, roles and expiry.

    The tokens themselves are not stored.
    """
    from lakebed.server.security import stored

    found = [_token_document(one) for one in stored.tokens_of(cli.instance().storage)]
    cli.out.document({"tokens": found}, [_as_columns(found)] if found else ["no tokens"])


@command
@click.argument("token_id", metavar="ID")
def drop_token(cli: Invocation, *, token_id: str) -> None:
    """Drop a token by its id: services refuse it within 30 seconds."""
    from lakebed.server.security import stored

    stored.revoke_token(cli.instance().storage, token_id)
    cli.out.document({"revoked": token_id}, [f"token {token_id} revoked"])


@command
@click.argument("name", metavar="NAME")
@_ROLES
@_TABLES
@_EXPIRES
@options.at
@options.ranges
def create_access_key(
    cli: Invocation,
    *,
    name: str,
    roles: tuple[str, ...],
    tables: tuple[str, ...],
    expires: str,
    at: str | None,
    ranges: options.Ranges,
) -> None:
    """Create an access key for the object gateway, and print its id and its secret.

    The gateway is `lakebed serve --s3 PORT`. NAME identifies the holder in the audit log. The secret is shown this
    once. With --at, the key shows one version of one table, and with --from, --to, --prefix or --starts-with only rows
    with these keys.
    """
    from lakebed.server.security import access_keys, stored

    ends = _end(expires)
    share = _share(cli, tables, at, ranges) if at is not None or ranges.given else None
    storage = cli.instance().storage
    key, secret = access_keys.create_access_key(storage, name, roles, tables or None, expires=ends, share=share)
    lines = [f"access key id: {key.id}", f"secret access key: {secret}"]
    cli.out.document({**_access_key_document(key), "secret": secret}, lines)
    cli.out.note(
        f"keep the secret, it is not shown again; a running gateway accepts the key after "
        f"{stored.AGE_MAX_S:.0f} seconds at most"
    )


def _share(cli: Invocation, tables: Sequence[str], at: str | None, ranges: options.Ranges) -> Share:
    """Return the part of the only table that the options name. Raises UsageError for several tables, or none."""
    from lakebed.server.security.access_keys import Share

    if len(tables) != 1:
        raise Code.ARGUMENTS_CONFLICT(
            "--at, --from, --to, --prefix and --starts-with are of one table: give one --table"
        )
    table = cli.table(tables[0])
    schema = table.schema if at is None else table.at(at).schema
    encoded = schema.codec.encode_ranges(ranges.of(schema)) if ranges.given else None
    pairs = None if encoded is None else tuple((keys.min, keys.max) for keys in encoded)
    return Share(table.id, None if at is None else table.at(at).version, pairs, ranges.text)


@command
@options.row_format
def list_access_keys(cli: Invocation) -> None:
    """List access keys: their names, roles, tables and expiry.

    Secrets are not stored.
    """
    from lakebed.server.security import access_keys

    found = [_access_key_document(one) for one in access_keys.access_keys_of(cli.instance().storage)]
    cli.out.document({"access_keys": found}, [_as_columns(found)] if found else ["no access keys"])


@command
@click.argument("key_id", metavar="ID")
def drop_access_key(cli: Invocation, *, key_id: str) -> None:
    """Drop an access key; gateways then refuse it within 30 seconds."""
    from lakebed.server.security import access_keys

    access_keys.drop_access_key(cli.instance().storage, key_id)
    cli.out.document({"dropped": key_id}, [f"access key {key_id} dropped"])


@command
@click.argument("name", metavar="NAME")
@click.option(
    "--permission",
    default="read",
    show_default=True,
    type=click.Choice(["read", "write", "admin"]),
    help="The permission; each includes the previous ones.",
)
@_TABLES
@options.where
@click.option("--hide", "hidden", metavar="COLUMN", multiple=True, help="A column to hide. May be repeated.")
@click.option(
    "--mask",
    "masks",
    metavar="COLUMN=SQL",
    type=name_value,
    multiple=True,
    help="A column and the constant to show instead of its values, such as \"ssn='***'\". May be repeated.",
)
def create_role(
    cli: Invocation,
    *,
    name: str,
    permission: str,
    tables: tuple[str, ...],
    where: str | None,
    hidden: tuple[str, ...],
    masks: tuple[tuple[str, str], ...],
) -> None:
    """Create a role, for tokens and for the claims of an identity provider.

    With --where, only rows for which the predicate is true are visible. A role with --where, --hide or --mask is
    read-only. Restrictions of several roles add up: `lakebed docs security`.
    """
    from lakebed.server.security import stored
    from lakebed.server.security.roles import Role, permission_named

    role = Role(name, permission_named(permission), frozenset(tables) or None, where or "", frozenset(hidden), masks)
    if len(dict(masks)) < len(masks):
        raise Code.COLUMN_DUPLICATE("--mask names a column twice; give each column one value")
    instance = cli.instance()
    for table in tables:
        check_role_fits(role, cli.table(table).schema, table)
    stored.create_role(instance.storage, role)
    cli.out.document(role.to_json(), [f"role {name} created"])


@command
@options.row_format
def list_roles(cli: Invocation) -> None:
    """List the roles that were created, beside read, write and admin."""
    from lakebed.server.security import stored

    found = [one.to_json() for one in stored.roles_of(cli.instance().storage).values()]
    cli.out.document({"roles": found}, [_as_columns(found)] if found else ["no roles but read, write and admin"])


@command
@click.argument("name", metavar="NAME", shell_complete=completions.roles)
def drop_role(cli: Invocation, *, name: str) -> None:
    """Drop a role; services then refuse tokens that have it."""
    from lakebed.server.security import stored

    stored.drop_role(cli.instance().storage, name)
    cli.out.document({"dropped": name}, [f"role {name} dropped"])


def check_role_fits(role: Role, schema: Schema, table: str) -> None:
    """Raise as :meth:`Readable.scan` for a predicate or a mask that is not valid for the columns of the table."""
    from lakebed.engine.predicate import check_where, constant

    for column in sorted({*role.hidden, *dict(role.masks)}):
        if column not in schema.by_name:
            raise Code.COLUMN_UNKNOWN(
                f"unknown column {column!r} of {table}; columns: {', '.join(schema.names)}"
                f"{did_you_mean(column, schema.names)}"
            )
        if column in schema.sort_names:
            raise Code.ROLE_INVALID(
                f"{column} is a key field of {table}: rows are found by it, so it cannot be hidden or masked"
            )
    if role.where:
        check_where(role.where, schema.arrow)
    for column, text in role.masks:
        try:
            constant(text, schema.by_name[column].type)
        except UsageError as error:
            raise error.restated(f"--mask {column}: {error.message}") from error.__cause__


def _end(text: str) -> datetime | None:
    if text == "never":
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise Code.ARGUMENT_INVALID(f"--expires {text!r}: give hours or days, such as 12h or 90d, or never")
    return clock.now() + timedelta(**{"hours" if found[2] == "h" else "days": int(found[1])})


def _token_document(token: AccessToken) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "roles": list(token.roles),
        "tables": None if token.tables is None else list(token.tables),
        "created": token.created.isoformat(),
        "expires": None if token.expires is None else token.expires.isoformat(),
        "expired": token.is_expired(clock.now()),
    }


def _access_key_document(key: AccessKey) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "roles": list(key.roles),
        "tables": None if key.tables is None else list(key.tables),
        "version": None if key.share is None else key.share.version,
        "keys": None if key.share is None or not key.share.keys else key.share.keys,
        "created": key.created.isoformat(),
        "expires": None if key.expires is None else key.expires.isoformat(),
        "expired": key.is_expired(clock.now()),
    }


def _as_columns(documents: Sequence[Mapping[str, object]]) -> TextColumns:
    return columns(tuple(documents[0]), [[listed_value(value) for value in one.values()] for one in documents])


def listed_value(value: object) -> object:
    """Return a value of a role or a token, on one line of text."""
    match value:
        case None:
            return NULL
        case list():
            return ", ".join(value)
        case dict():
            return ", ".join(f"{name} = {text}" for name, text in value.items())
        case _:
            return value
