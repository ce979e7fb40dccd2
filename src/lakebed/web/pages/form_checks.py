"""Forms come from pages of this service, or from no browser at all.

A browser says with each request where the page is that makes it (``Sec-Fetch-Site``, ``Origin``), and no page can
change that. A form that another site makes a browser send is refused; so is one from a browser too old to say it.
Programs authenticate with a header, which no other site can make a browser add.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from litestar import Request

from lakebed.errors import Code


def check_form(request: Request[Any, Any, Any]) -> None:
    """Raise AccessError for a form that is not from a page of this service."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin"
    else:
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        allowed = "authorization" in request.headers if origin is None else urlsplit(origin).netloc == host
    if not allowed:
        raise Code.PERMISSION_MISSING(
            "this form was not sent by a page of this service; open the page here and send it again"
        )
