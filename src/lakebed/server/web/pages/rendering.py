"""Renders a page: one value, as HTML by a template, or as JSON if the path ends in ``.json``.

Templates escape every value (autoescape). The policy of a page forbids inline scripts and styles, and anything of
another origin. The style sheet, the script and the icon are served under names with their digests, which browsers may
keep for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from lakebed import clock
from lakebed.model.version import VERSION
from lakebed.server.security.principal import Principal
from lakebed.server.web.pages import texts
from lakebed.server.web.request_authentication import COOKIE
from lakebed.server.web.threads import threaded

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

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_TITLES = {
    400: "Not understood",
    401: "Sign in",
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
    environment.filters.update(
        count=texts.count, short=texts.short, size=texts.size, period=texts.period, value=texts.value, cut=texts.cut
    )
    environment.globals.update(asset=_asset_path, version=VERSION, title_max=texts.TITLE_CHARACTERS_MAX)
    environment.globals.update(table_link=table_link, links=LINKS, moment=texts.moment, draw_change=texts.change)
    return environment


def table_link(name: str, part: str = "", **query: Any) -> str:
    """Return the address of a page of a table."""
    return _link({}, f"/tables/{quote(name, safe='')}{part}", **query)


def _link(given: Mapping[str, Any], path: str, **changes: Any) -> str:
    """Return the path with the query that was given and some values changed; None takes one away."""
    query = {name: value for name, value in {**given, **changes}.items() if value is not None}
    return f"{path}?{urlencode(query)}" if query else path


def html(template: str, page: Any, principal: Principal | None, **more: Any) -> str:
    """Return the page as text. ``principal`` is None if the request is not authenticated."""
    now = clock.now()
    context = {"page": page, "now": now, "ago": partial(texts.ago, now=now), "principal": principal}
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
        document = msgspec.json.encode(page, enc_hook=texts.value)
        return Response(document, status_code=status, media_type=MediaType.JSON, headers=HEADERS)
    here = partial(_link, dict(request.query_params))
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
    is_for_programs = path.startswith(("/v1/", "/health/", "/metrics")) or path.endswith(".json")
    return not is_for_programs and "text/html" in request.headers.get("accept", "")


def error_page(
    request: Request[Any, Any, Any], status: int, error: Mapping[str, Any], headers: Mapping[str, str]
) -> Response[bytes]:
    """Return the page for a request that failed; it names no principal, since the request may have none."""
    page = {"status": status, "title": _TITLES.get(status, "Failed"), "error": error}
    back = _link(dict(request.query_params), request.url.path) if request.method == "GET" else "/"
    text = html("error.html", page, None, sign_in=_link({}, "/login", next=back))
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
