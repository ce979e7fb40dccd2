"""Hooks: webhooks and commands that are notified of the commits of a table.

A hook is an object of the instance, written once. Beside it lies an object with the version up to which its events were
delivered; it is written after the delivery, so after a crash some events are delivered again and none is left out. Each
service that finds the hook delivers (:mod:`lakebed.server.service.hook_delivery`); a service that loses the race for
that object skips the hook for a while. If that object is lost or damaged, the hook begins again after the version that
is stored with the hook itself: events are delivered again, and none is left out.

Core types: :class:`Hook`, :class:`Delivered`. Errors: StorageError; DamagedError for an object that was changed;
UsageError for an invalid hook.
"""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, DamagedError, UnsupportedFormatError
from lakebed.model.checks import check_text
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import HOOK_FOLDER, delivered_name, hook_name, hook_of_delivered, hook_of_name
from lakebed.model.state.fields import Id, Whole
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakebed.storage.contract import Storage, Version


class Hook(Struct, frozen=True, kw_only=True):
    """The receiver of the commits of a table: a ``url`` or a ``command``.

    ``kinds`` are the types of transactions that it learns of; empty: of all. With a ``secret`` requests are signed. It
    gets the commits after version ``since``.
    """

    id: Id
    table: Id
    url: str | None
    command: str | None
    kinds: tuple[str, ...]
    secret: str | None
    since: Whole = 0

    @property
    def target(self) -> str:
        """The URL or the command, for display."""
        return self.url or self.command or ""


class Delivered(Struct, frozen=True, kw_only=True):
    """The version up to which a hook has all events. ``failures`` in a row, ``since`` when and why, while it fails.

    ``entry_digest`` is that of the entry of the version, which shows a log that went back; empty: not known. ``token``
    makes every write of the object another one.
    """

    version: Whole
    entry_digest: str = ""
    failures: Whole = 0
    since: str | None = None
    error: str | None = None
    token: str = ""


class DamagedHook(Struct, frozen=True):
    """A hook whose object was changed: it delivers nothing until it is removed and added again."""

    id: str
    error: str


_BEGINS_AGAIN = "a service delivers the events since the hook was added again"


def checked_hook(
    table_id: str,
    *,
    url: str | None = None,
    command: str | None = None,
    kinds: tuple[str, ...] = (),
    secret: str | None = None,
) -> Hook:
    """Return a new hook. Raises UsageError if it is invalid."""
    if (url is None) == (command is None):
        raise Code.ARGUMENTS_CONFLICT("a hook has a URL (--url) or a command (--command): give one of them")
    if url is not None:
        _check_url(url)
    else:
        _check_command(command)
        if secret is not None:
            raise Code.ARGUMENTS_CONFLICT("a secret signs requests to a URL; a command has none")
    if secret is not None and not secret.strip():
        raise Code.ARGUMENT_INVALID("the secret of a hook is empty")
    return Hook(id=clock.new_id(), table=table_id, url=url, command=command, kinds=kinds, secret=secret)


def _check_url(url: str) -> None:
    check_text("url", url)
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise Code.URL_HAS_CREDENTIALS("the URL of a hook has a user or a password; sign its requests with a secret")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Code.URL_INVALID(f"url = {url!r}: a hook needs one such as https://example.com/lakebed")


def _check_command(command: str | None) -> None:
    check_text("command", command)
    try:
        words = shlex.split(command or "")
    except ValueError as error:
        raise Code.ARGUMENT_INVALID(f"command = {command!r}: {error}") from error
    if not words:
        raise Code.ARGUMENT_INVALID("the command of a hook is empty")


def add_hook(storage: Storage, hook: Hook, version: int) -> None:
    """Store a hook, which receives the commits after ``version``. Raises StorageError."""
    # First, so that no service finds a hook without it.
    delivered = Delivered(version=version, token=clock.random_token())
    create_until_clear(storage, delivered_name(hook.id), _document(delivered))
    create_until_clear(storage, hook_name(hook.id), _document(msgspec.structs.replace(hook, since=version)))


def remove_hook(storage: Storage, hook_id: str) -> None:
    """Delete a hook; a delivery in progress is completed. Raises NotFoundError."""
    if hook_of_name(hook_name(hook_id)) is None or storage.get(hook_name(hook_id)) is None:
        raise Code.HOOK_NOT_FOUND(f"no hook {hook_id}; `lakebed hook list` has them", name=hook_id)
    storage.delete([hook_name(hook_id), delivered_name(hook_id)])


def delete_incomplete_hooks(storage: Storage, age_s: float) -> None:
    """Delete the remains of hooks that were partly added or removed before that age, by the store's clock."""
    found = {one.name: one.last_modified for one in storage.list(HOOK_FOLDER)}
    left = [name for name in found if (hook_id := hook_of_delivered(name)) and hook_name(hook_id) not in found]
    if left:
        before = storage.now() - timedelta(seconds=age_s)
        storage.delete([name for name in left if found[name] < before])


def read_hooks(storage: Storage, known: Mapping[str, Hook]) -> Iterator[Hook | DamagedHook]:
    """Return all hooks, oldest first. Those of ``known``, by id, are not read again: a hook never changes."""
    # Ids begin with the time of their creation.
    for name in sorted(found.name for found in storage.list(HOOK_FOLDER)):
        hook_id = hook_of_name(name)
        if hook_id is None:
            continue
        if hook_id in known:
            yield known[hook_id]
        elif (data := storage.get(name)) is not None:
            try:
                yield _hook_from(data, storage.object_url(name), hook_id)
            except (DamagedError, UnsupportedFormatError) as error:
                yield DamagedHook(hook_id, error.message)


def read_delivered(storage: Storage, hook_id: str) -> tuple[Delivered, Version] | None:
    """Return the delivery state of a hook, and the version of its object; None if there is no such object.

    Raises DamagedError.
    """
    name = delivered_name(hook_id)
    found = storage.get_versioned(name)
    if found is None:
        return None
    url = storage.object_url(name)
    with reading(f"{url} does not say what was delivered", name=name):
        return msgspec.convert(decode_document(found.data, url, _BEGINS_AGAIN), Delivered), found.version


def is_added(storage: Storage, hook_id: str) -> bool:
    """Return whether a hook exists, damaged or not: it was added and not removed."""
    return storage.get(hook_name(hook_id)) is not None


def begin_again(storage: Storage, hook: Hook) -> None:
    """Put a delivery state in place of one that is lost or damaged: that with which the hook was added."""
    name = delivered_name(hook.id)
    data = _document(Delivered(version=hook.since, token=clock.random_token()))
    found = storage.get_versioned(name)
    if found is None:
        create_until_clear(storage, name, data)
    else:
        # Another service may be faster, and has put the same.
        storage.replace_if(name, found.version, data)
    _delete_if_removed(storage, hook.id)


def write_delivered(storage: Storage, hook_id: str, delivered: Delivered, version: Version) -> bool:
    """Replace what :func:`read_delivered` has read; False if another process has replaced it meanwhile.

    Raises StorageError if the outcome is not clear: read it again.
    """
    document = _document(msgspec.structs.replace(delivered, token=clock.random_token()))
    outcome = storage.replace_if(delivered_name(hook_id), version, document)
    if outcome is PutOutcome.UNCLEAR:
        raise Code.PUT_UNCLEAR(f"it is not clear whether {delivered_name(hook_id)} was replaced", transient=True)
    _delete_if_removed(storage, hook_id)
    return outcome is PutOutcome.CREATED


def _delete_if_removed(storage: Storage, hook_id: str) -> None:
    """Delete the delivery state of a hook that was removed before it was written: local files are not put in turn."""
    if not is_added(storage, hook_id):
        storage.delete([delivered_name(hook_id)])


def _hook_from(data: bytes, url: str, hook_id: str) -> Hook:
    remedy = f"`lakebed hook drop {hook_id}`, and add it again"
    with reading(f"{url} is no hook: {remedy}", name=url):
        hook = msgspec.convert(decode_document(data, url, remedy), Hook)
        if hook.id != hook_id:
            raise ValueError(f"it is the hook {hook.id}")
        return hook


def _document(value: Struct) -> bytes:
    return encode_document(msgspec.to_builtins(value))
