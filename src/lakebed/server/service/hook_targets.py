"""Delivers the body of one request to a hook: to a URL by HTTP, or to a command on its standard input.

Errors. An :class:`~lakebed.errors.Error` with the code ``hook_failed``, for every failure; the events are then
delivered again later.
"""

from __future__ import annotations

import hmac
import os
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    import urllib3

    from lakebed.read.inspect.hooks import Hook

REQUEST_S = 10.0
"""For the connection, and again for the answer."""

COMMAND_S = 60.0
"""After this time a command is killed, with all that it started."""

SAID_BYTES_MAX = 500
"""Of the last words of a command that failed."""

SIGNATURE = "Lakebed-Signature"


def signature_of(body: bytes, secret: str) -> str:
    """Return the value of the header by which a receiver verifies that a request is genuine."""
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


class HookTargets:
    """Connections to all URLs. Safe to use from many threads."""

    def __init__(self, *, commands: bool) -> None:
        self._commands = commands

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        """Made for the first webhook: maintenance without one needs no client of HTTP."""
        with optional_imports():
            import urllib3

        timeout = urllib3.Timeout(connect=REQUEST_S, read=REQUEST_S)
        return urllib3.PoolManager(timeout=timeout, retries=False, maxsize=4)

    def deliver(self, hook: Hook, body: bytes) -> None:
        """Deliver; returns when the receiver has accepted it. Raises Error."""
        if hook.url is not None:
            self._post(hook, hook.url, body)
        elif self._commands:
            _run_program(hook, body)
        else:
            raise Code.HOOK_FAILED("this service runs no commands; start it with --hook-commands", name=hook.id)

    def _post(self, hook: Hook, url: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "lakebed", "Lakebed-Hook": hook.id}
        if hook.secret is not None:
            headers[SIGNATURE] = signature_of(body, hook.secret)
        pool = self._pool
        from urllib3.exceptions import HTTPError

        try:
            # The body of the response is not read, because it may be endless.
            answer = pool.request("POST", url, body=body, headers=headers, redirect=False, preload_content=False)
        except (HTTPError, ValueError, OSError) as error:
            raise Code.HOOK_FAILED(f"{url} does not answer: {type(error).__name__}", name=hook.id, url=url) from error
        answer.close()
        if not 200 <= answer.status < 300:
            raise Code.HOOK_FAILED(f"{url} answers {answer.status}", name=hook.id, url=url, status=answer.status)


def _run_program(hook: Hook, body: bytes) -> None:
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
        given.write(body)
        given.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - allowed by the option --hook-commands of the service
                shlex.split(hook.command or ""),
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=os.environ | {"LAKEBED_HOOK": hook.id},
                start_new_session=True,
            )
        except OSError as error:
            raise Code.HOOK_FAILED(f"cannot run {hook.command}: {error}", name=hook.id) from error
        try:
            code = process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            raise Code.HOOK_FAILED(f"{hook.command} took longer than {COMMAND_S:.0f} s", name=hook.id) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES_MAX))
            text = said.read().decode("utf-8", "replace").strip()
            raise Code.HOOK_FAILED(f"{hook.command} ended with {code}: {text}", name=hook.id, exit_code=code)
