"""The bucket: keys of objects, and listings of them, by the states of tables alone. No data folder is ever listed.

``TABLE/NAME`` is an object of the newest version, ``TABLE@WHEN/NAME`` one of a version, a tag or a time. A name begins
with its version (:mod:`lakebed.server.gateway.version_objects`), so a listing of several pages stays in the version of
its first page: the last key of a page names it. A key is served as long as its version is retained, whatever was
committed since, and no other key is.

Core types: :class:`Bucket`; :class:`KeyHolder`, who asks; :class:`Listing`, a page. Calls read logs and block.

Errors: S3Error; AccessError, NotFoundError, NotRetainedError.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error, NotFoundError
from lakebed.server.gateway.s3_errors import S3Error
from lakebed.server.gateway.version_objects import NAME, VersionObjects, ViewKey
from lakebed.server.security.principal import Permission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.server.gateway.version_objects import TableObject
    from lakebed.server.security.access_keys import Share
    from lakebed.server.security.principal import Principal
    from lakebed.server.web.access import OpenTables
    from lakebed.table.table import Table

KEYS_MAX = 1000
"""Keys of a page, at most."""

VIEWS_MAX = 64
"""Versions whose objects are kept in memory."""

OBJECTS_MAX = 1_000_000
"""Objects of all of these, unless the newest alone has more."""

STALENESS_S = 1.0
"""How old the state may be by which an object is retained."""

MOMENTS_MAX = 512
MOMENT_S = 10.0
"""How long a tag or a time stands for the version that it was found to be."""

_ROOT = re.compile(r"([A-Za-z0-9_-]{1,128})(?:@([A-Za-z0-9_.:+-]{1,128}))?/", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who asks: the principal of an access key, and the share of a table that it is limited to."""

    principal: Principal
    share: Share | None = None


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What is to be listed: keys after ``after`` that begin with ``prefix``; at most ``keys_max`` of them.

    Keys that have the delimiter after the prefix are listed by what precedes it. ``after`` may be such a beginning,
    whose keys were all listed.
    """

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    keys_max: int = KEYS_MAX
    after_beginning: bool = False


@dataclass(slots=True)
class Listing:
    """A page: keys with their objects, and beginnings of keys. ``last`` is the last of both if there are more."""

    objects: list[tuple[str, VersionObjects, TableObject]] = field(default_factory=list)
    beginnings: list[str] = field(default_factory=list)
    is_truncated: bool = False
    last: str = ""
    last_is_beginning: bool = False


Item = tuple[str, VersionObjects | None, "TableObject | None"]
"""A key with its object, or a beginning of keys."""


class Bucket:
    """The objects of an instance. Safe to use from many threads."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._views: OrderedDict[ViewKey, VersionObjects] = OrderedDict()
        self._moments: dict[tuple[str, str], tuple[int, float]] = {}

    def find(self, holder: KeyHolder, key: str) -> tuple[VersionObjects, TableObject]:
        """Return the object of a key. Raises S3Error, AccessError, NotFoundError, NotRetainedError."""
        root = _ROOT.match(key)
        name = None if root is None else NAME.fullmatch(key, root.end())
        if root is None or name is None:
            raise _no_key(key)
        table = self._table(holder, root[1])
        version = int(name[1])
        if root[2] is not None and self._version_at(table, root[2]) != version:
            raise S3Error("NoSuchKey", f"{root[2]} is not version {version} of {root[1]} now; list {root[0]} again")
        view = self._view(holder, table, version)
        found = view.objects.get(name[0])
        if found is None:
            raise _no_key(key)
        return view, found

    def page(self, holder: KeyHolder, asked: ListRequest) -> Listing:
        """Return a page of the keys that their holder may see, in the order of their UTF-8 bytes."""
        page = Listing()
        if asked.keys_max == 0:
            return page
        for key, view, found in self._items(holder, asked):
            if len(page.objects) + len(page.beginnings) == asked.keys_max:
                page.is_truncated = True
                return page
            page.last, page.last_is_beginning = key, found is None
            if view is None or found is None:
                page.beginnings.append(key)
            else:
                page.objects.append((key, view, found))
        return page

    def _items(self, holder: KeyHolder, asked: ListRequest) -> Iterator[Item]:
        prefix, delimiter, after = asked.prefix, asked.delimiter, asked.after
        last = after if asked.after_beginning else None
        for root in self._roots(holder, prefix):
            is_behind = root < after and not after.startswith(root)
            if is_behind or (last is not None and root.startswith(last)):
                continue
            beginning = beginning_of(root, prefix, delimiter)
            if beginning is not None:
                if beginning != last and (beginning > after or after.startswith(beginning)):
                    yield beginning, None, None
                last = beginning
                continue
            view = self._listed(holder, root, after)
            for name, found in view.objects.items() if view is not None else ():
                key = root + name
                if not key.startswith(prefix) or key <= after:
                    continue
                beginning = beginning_of(key, prefix, delimiter)
                if beginning is None:
                    yield key, view, found
                elif beginning != last:
                    last = beginning
                    yield beginning, None, None

    def _roots(self, holder: KeyHolder, prefix: str) -> list[str]:
        """Return what the keys of each table begin with, of those that have keys with the prefix, in order."""
        if "/" in prefix:
            root = _ROOT.match(prefix)
            return [] if root is None else [root[0]]
        names = holder.principal.visible(self._tables.names())
        return sorted(f"{name}/" for name in names if f"{name}/".startswith(prefix))

    def _listed(self, holder: KeyHolder, root: str, after: str) -> VersionObjects | None:
        """Return the objects of a root: those of the version in which the listing began. None without such a table."""
        parsed = _ROOT.fullmatch(root)
        assert parsed is not None
        try:
            table = self._table(holder, parsed[1])
        except NotFoundError:
            return None
        began = NAME.fullmatch(after, len(root)) if after.startswith(root) else None
        if began is not None:
            try:
                return self._view(holder, table, int(began[1]))
            except Error as error:
                raise S3Error(
                    "InvalidArgument", f"the listing cannot go on after {after}: {error.message}; list again"
                ) from error
        if parsed[2] is not None:
            try:
                return self._view(holder, table, self._version_at(table, parsed[2]))
            except NotFoundError:
                return None
        share = holder.share
        version = share.version if share is not None and share.version is not None else table.state().version
        try:
            return self._view(holder, table, version)
        except NotFoundError as error:
            if error.code is not Code.INDEX_NOT_READ:
                raise
            return None

    def _table(self, holder: KeyHolder, name: str) -> Table:
        table = self._tables.table(holder.principal, Permission.READ, name)
        if holder.share is not None and table.id != holder.share.table:
            raise Code.PERMISSION_MISSING(
                f"the access key is for another table, which had the name {name} when it was created; ask an admin for "
                "another key",
                permission="READ",
                table=name,
            )
        return table

    def _version_at(self, table: Table, moment: str) -> int:
        """Return the version that a number, a tag or a time stands for. Raises NotFoundError, NotRetainedError."""
        if moment.isdigit() and len(moment) < 19:
            return int(moment)
        known, now = self._moments.get((table.id, moment)), clock.monotonic_s()
        if known is not None and now - known[1] <= MOMENT_S:
            return known[0]
        version = table.at(moment).version
        if len(self._moments) >= MOMENTS_MAX:
            self._moments.clear()
        self._moments[table.id, moment] = version, now
        return version

    def _view(self, holder: KeyHolder, table: Table, version: int) -> VersionObjects:
        """Return the objects of a version as the holder of a key sees them."""
        share = holder.share
        if share is not None and share.version not in (None, version):
            raise S3Error("NoSuchKey", f"the access key is for version {share.version} of the table alone")
        ranges = None if share is None else share.encoded_ranges
        key = ViewKey(table.id, version, holder.principal.policy(table.name), ranges)
        state = table.state(max_staleness=STALENESS_S)
        with self._lock:
            view = self._views.get(key)
            if view is not None and not state.dropped and state.retains(version):
                self._views.move_to_end(key)
                return view
            earlier = [one for held, one in self._views.items() if held.table == table.id]
        view = VersionObjects.of(table.name, table.at(version=version), key.policy, ranges, earlier)
        with self._lock:
            self._views[key] = view
            self._views.move_to_end(key)
            held = sum(len(one.objects) for one in self._views.values())
            while len(self._views) > VIEWS_MAX or (held > OBJECTS_MAX and len(self._views) > 1):
                _, oldest = self._views.popitem(last=False)
                held -= len(oldest.objects)
        return view


def beginning_of(key: str, prefix: str, delimiter: str) -> str | None:
    """Return the key up to the first delimiter after the prefix; None if there is none."""
    if not delimiter or not key.startswith(prefix):
        return None
    place = key.find(delimiter, len(prefix))
    return None if place < 0 else key[: place + len(delimiter)]


def _no_key(key: str) -> S3Error:
    return S3Error(
        "NoSuchKey", f"no object {key[:200]}: keys are those that a listing of TABLE/, or of TABLE@VERSION/, gives"
    )
