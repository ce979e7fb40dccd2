"""Renders a page: one value, as HTML by a template, or as JSON if the path ends in ``.json``; values as short text.

Templates escape every value (autoescape). The policy of a page forbids inline scripts and styles, and anything of
another origin. The style sheet, the script and the icon are served under names with their digests, which browsers may
keep for good. Numbers, sizes, times and keys are short text: bytes become hex digits, and characters that do not print
become escapes, so that the text shows what there is.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from lakebed import clock
from lakebed.model.version import VERSION
from lakebed.model.wording import printable
from lakebed.read.inspect.history import HistoryRow
from lakebed.server.security.principal import Principal
from lakebed.server.web.request_authentication import COOKIE, HEALTH
from lakebed.server.web.waiting import threaded

NONE = "\N{EN DASH}"
"""Stands for what there is not."""

MINUS = "\N{MINUS SIGN}"

_SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PERIODS = ((86_400, "d"), (3_600, "h"), (60, "min"))

CELL_CHARACTERS_MAX = 80
"""Of a value in a grid; its title has :data:`TITLE_CHARACTERS_MAX`."""

TITLE_CHARACTERS_MAX = 1_000


def count(number: int | None) -> str:
    """Return a whole number with all digits and separators: what numbers say as titles, and versions always."""
    return NONE if number is None else f"{number:,}"


def number(given: float | None) -> str:
    """Return an amount as every page shows it: all digits below a million (``336,776``), three above (``12.3M``)."""
    if given is None:
        return NONE
    for unit, letter in _SHORT:
        if abs(given) >= unit:
            return f"{given / unit:.3g}{letter}" if abs(given) < 999.5 * unit else f"{given / unit:,.0f}{letter}"
    return f"{given:,.0f}"


def mean(given: float | None) -> str:
    """Return an average, such as files a partition: ``1.3``."""
    return NONE if given is None else f"{given:,.1f}"


def size(size_bytes: float | None) -> str:
    """Return bytes in the unit that suits."""
    if size_bytes is None:
        return NONE
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def period(seconds: float) -> str:
    """Return a length of time: 40 µs, 8.5 ms, 850 ms, 12 s, 5 min, 3 h, 2 d."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    for unit, name in _PERIODS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def ago(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return how long ago a moment was."""
    if moment is None:
        return NONE
    seconds = (now - moment).total_seconds()
    return "now" if seconds < 1 else f"{period(seconds)} ago"


def moment(since_us: float) -> dt.datetime | None:
    """Return a time in microseconds since 1970; None for 0."""
    return dt.datetime.fromtimestamp(since_us / 1e6, dt.UTC) if since_us else None


def change(added: int, removed: int | None) -> str:
    """Return what came and what went: ``+12 −3``; a question mark stands for a number that is not known."""
    parts = [f"+{number(added)}"] if added else []
    if removed != 0:
        parts.append(f"{MINUS}{'?' if removed is None else number(removed)}")
    return " ".join(parts)


def rows_changed(row: HistoryRow) -> str:
    """Return the rows that came and went; those of a compaction, which were there before, are ``36,000 rewritten``."""
    return f"{number(row.rows_added)} rewritten" if row.rewrites else change(row.rows_added, row.rows_removed)


def bytes_changed(row: HistoryRow) -> str:
    """Return the bytes of the new files."""
    return f"{'' if row.rewrites else '+'}{size(row.bytes_added)}" if row.bytes_added else ""


def value(given: Any) -> str:
    """Return one value in a line: bytes as hex digits, times in ISO 8601, null as ``null``."""
    match given:
        case None:
            return "null"
        case bool():
            return "true" if given else "false"
        case str():
            return printable(given)
        case bytes():
            return given.hex()
        case dt.datetime() | dt.date() | dt.time():
            return given.isoformat().replace("+00:00", "Z")
        case Mapping():
            return "{" + ", ".join(f"{name}: {value(one)}" for name, one in given.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value, given)) + "]"
        case _:
            return printable(str(given))


def shorten(text: str, characters: int = CELL_CHARACTERS_MAX) -> str:
    """Return the beginning of a long text, with an ellipsis."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def key(values: Mapping[str, Any]) -> str:
    """Return the values of a key, or those of a bound: ``N14228, 2013-01-01``; an empty text is ``''``."""
    parts = [value(one) for one in values.values() if one is not None]
    return ", ".join(part or "''" for part in parts)


Item = TypeVar("Item")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_KEPT_FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}

_READS = ("GET", "HEAD")

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_TITLES = {
    400: "Not understood",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed",
    409: "Refused",
    410: "Not kept",
    422: "Not valid",
    503: "Not available now",
    504: "Outcome unknown",
}

LINKS = ("/", "/jobs", "/query", "/log")
"""The pages of the navigation."""

_ASSETS = ("style.css", "pages.js", "icon.svg")


@cache
def _assets() -> dict[str, tuple[str, bytes]]:
    """(name with a digest, content) of each asset, by its name."""
    found = {}
    for name in _ASSETS:
        data = files("lakebed.server.web.pages").joinpath("static", name).read_bytes()
        stem, ending = name.split(".")
        found[name] = f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{ending}", data
    return found


def _asset_path(name: str) -> str:
    return f"/static/{_assets()[name][0]}"


@get("/static/{name:str}", sync_to_thread=False, include_in_schema=False)
def asset(name: FromPath[str]) -> Response[bytes]:
    """A file that pages refer to."""
    for path, data in _assets().values():
        if path == name:
            return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers=_KEPT_FOR_GOOD)
    raise NotFoundException("no such file")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lakebed.server.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=count, number=number, mean=mean, size=size, period=period, value=value)
    environment.filters.update(shorten=shorten, change=change, rows_changed=rows_changed, bytes_changed=bytes_changed)
    environment.globals.update(asset=_asset_path, version=VERSION, title_max=TITLE_CHARACTERS_MAX)
    environment.globals.update(table_link=table_link, links=LINKS, moment=moment, rows_link=rows_link)
    environment.globals.update(parsed=dt.datetime.fromisoformat)
    return environment


def table_link(name: str, part: str = "", **query: Any) -> str:
    """Return the address of a page of a table."""
    return _link({}, f"/tables/{quote(name, safe='')}{part}", **query)


def rows_link(name: str, **query: Any) -> str:
    """Return the address of the page that reads rows of a table."""
    return _link({}, "/query", table=name, **query)


def _link(given: Mapping[str, Any], path: str, **changes: Any) -> str:
    """Return the path with the query that was given and some values changed; None takes one away.

    A list is a parameter that stands several times.
    """
    query = {name: value for name, value in {**given, **changes}.items() if value is not None}
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def html(template: str, page: Any, principal: Principal | None, **more: Any) -> str:
    """Return the page as text. ``principal`` is None if the request is not authenticated."""
    now = clock.now()
    context = {"page": page, "now": now, "ago": partial(ago, now=now), "principal": principal}
    context |= {"path": "", "here": partial(_link, {}), "has_session": False}
    return _environment().get_template(template).render(context | more)


def answer(
    request: Request[Any, Any, Any],
    template: str,
    page: Any,
    principal: Principal,
    *,
    status: int = 200,
    **more: Any,
) -> Response[bytes]:
    """Return the page, or its twin. ``more`` is for the template alone."""
    if request.url.path.endswith(".json"):
        document = msgspec.json.encode(page, enc_hook=value)
        return Response(document, status_code=status, media_type=MediaType.JSON, headers=HEADERS)
    here = partial(_link, request.query_params.dict())
    has_session = COOKIE in request.cookies
    text = html(template, page, principal, path=request.url.path, here=here, has_session=has_session, **more)
    return Response(text.encode(), status_code=status, media_type="text/html; charset=utf-8", headers=HEADERS)


def see(path: str) -> Response[bytes]:
    """Return the response to a submitted form: the browser shows the page at the path."""
    return Response(b"", status_code=303, headers={**HEADERS, "Location": path})


def part_of(items: Sequence[Item], number: int, size: int) -> tuple[Sequence[Item], int, int]:
    """Return the items of the page of that number, or of the nearest; its number, and that of the last page."""
    last = max(1, -(-len(items) // size))
    number = min(max(1, number), last)
    return items[(number - 1) * size : number * size], number, last


def wants_page(request: Request[Any, Any, Any]) -> bool:
    """Return whether the request is of a browser for a page, and not for the API or for a twin in JSON."""
    path = request.url.path
    is_for_programs = path in HEALTH or path.startswith(("/v1/", "/iceberg/", "/metrics")) or path.endswith(".json")
    return not is_for_programs and "text/html" in request.headers.get("accept", "")


def login(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the response to a browser without a principal: it signs in, and comes back to where it was."""
    back = _link(request.query_params.dict(), request.url.path) if request.method in _READS else _sent_from(request)
    return see(_link({}, "/login", next=back))


def _sent_from(request: Request[Any, Any, Any]) -> str:
    """Return the page of this service that has the form that was sent: it is to be filled in again."""
    page = urlsplit(request.headers.get("referer", ""))
    is_here = page.netloc == request.headers.get("host", "") and page.path.startswith("/")
    return urlunsplit(("", "", page.path, page.query, "")) if is_here else "/"


def error_page(
    request: Request[Any, Any, Any], status: int, error: Mapping[str, Any], headers: Mapping[str, str], seen: str | None
) -> Response[bytes]:
    """Return the page for a request that failed; it names no principal, since the request may have none.

    ``seen`` is a table of which the principal sees a part: its rows are on the page for queries.
    """
    page = {"status": status, "title": _TITLES.get(status, "Failed"), "error": error}
    text = html("error.html", page, None, seen=seen, has_session=COOKIE in request.cookies)
    return Response(
        text.encode(), status_code=status, media_type="text/html; charset=utf-8", headers={**HEADERS, **headers}
    )


def page(path: str) -> Callable[[Callable[..., Any]], tuple[HTTPRouteHandler, ...]]:
    """Make a function the handlers of a page and of its twin; one that is no coroutine runs in threads."""

    def routes(function: Callable[..., Any]) -> tuple[HTTPRouteHandler, ...]:
        in_thread = function if iscoroutinefunction(function) else threaded(function)
        paths = [path]
        if not path.endswith("}"):
            # A last part that is a parameter takes the ending as well; the function takes it off.
            paths.append("/index.json" if path == "/" else f"{path}.json")
        return tuple(get(one, include_in_schema=False)(in_thread) for one in paths)

    return routes
