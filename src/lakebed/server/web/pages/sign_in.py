"""The page on which a browser signs in with a token, and out again.

The token is exchanged for a session in a cookie that scripts cannot read and other sites cannot send. After that the
browser goes to the page that was asked for, if it is one of this service. The form says why
a token is refused.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency

from lakebed.errors import Code, Error
from lakebed.server.security.sessions import SESSION_S
from lakebed.server.web.access import FormBody
from lakebed.server.web.error_answers import status_of
from lakebed.server.web.pages import rendering
from lakebed.server.web.request_authentication import COOKIE, RequestAuthenticator

TheRequestAuthenticator = NamedDependency[RequestAuthenticator]


@get("/login", sync_to_thread=True, include_in_schema=False)
def show(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The form."""
    return _page(request.query_params.get("next", "/"), None, 200)


@post("/login", sync_to_thread=True, include_in_schema=False)
def sign_in(
    request: Request[Any, Any, Any], request_authenticator: TheRequestAuthenticator, data: FormBody
) -> Response[bytes]:
    """Begin a session for the holder of the token, and show the page that was asked for."""
    following = data.get("next", "/")
    try:
        session = request_authenticator.sign_in(data.get("token", "").strip(), request)
    except Error as error:
        if error.code not in (Code.NOT_AUTHENTICATED, Code.ATTEMPTS_EXCEEDED, Code.ARGUMENT_INVALID):
            raise
        return _page(following, error.message, status_of(error))
    answer = rendering.see(_local(following))
    answer.set_cookie(_cookie(request, session, SESSION_S))
    return answer


@post("/logout", sync_to_thread=True, include_in_schema=False)
def sign_out(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Let the browser forget its session."""
    answer = rendering.see("/login")
    answer.set_cookie(_cookie(request, "", 0))
    return answer


def _page(following: str, error: str | None, status: int) -> Response[bytes]:
    text = rendering.html("login.html", {"next": _local(following), "error": error}, None)
    return Response(text.encode(), status_code=status, media_type="text/html; charset=utf-8", headers=rendering.HEADERS)


def _local(path: str) -> str:
    """Return the path if it is one of this service, and not another site's address."""
    parts = urlsplit(path)
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if is_local else "/"


def _cookie(request: Request[Any, Any, Any], session: str, seconds: int) -> Cookie:
    secure = request.url.scheme == "https"
    return Cookie(key=COOKIE, value=session, max_age=seconds, httponly=True, samesite="strict", secure=secure)
