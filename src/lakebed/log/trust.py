"""Which log URLs a user has agreed to connect to.

``instance.json`` may name another place for the log, and whoever can write that object chooses it. Opening an instance
would then connect to a host that the user never chose, with the credentials in the user's environment. So the first
contact needs the user's word; it is remembered in ``lakebed/log_urls.json`` of the user's configuration folder
(``XDG_CONFIG_HOME``, by default ``~/.config``), a JSON object from the instance's root URL to its log URL.

A log in the same bucket as the data, or both on local disk, needs no agreement: no other host is asked.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.model.documents import load


def check_trusted(root_url: str, log_url: str | None, given: str | None, *, trusted: bool) -> None:
    """Raise UsageError unless the user has agreed to the log URL of the instance at ``root_url``.

    ``given`` is the log URL that the caller expects; ``trusted`` accepts whichever the instance names.
    """
    if given is not None and given != log_url:
        location = "beside its data" if log_url is None else f"at {log_url}"
        raise Code.LOG_URL_MISMATCH(
            f"log_url = {given!r}: the instance at {root_url} keeps its log {location}; correct log_url, or leave it "
            "out",
            log_url=log_url,
        )
    if log_url is None or _is_same_store(root_url, log_url):
        return
    if _remembered().get(root_url) == log_url:
        return
    if given is None and not trusted:
        raise Code.LOG_URL_UNTRUSTED(
            f"the instance at {root_url} keeps its log at {log_url}, and to open it is to connect there with your "
            f"credentials. If that is right, open it once with log_url={log_url!r} (or trust_log_url=True; in a shell "
            f"--log-url {log_url}); it is remembered in {_path()}",
            log_url=log_url,
        )
    remember(root_url, log_url)


def remember(root_url: str, log_url: str) -> None:
    """Note that the user has chosen this log URL. Without a writable home, the next open asks."""
    known = _remembered()
    if known.get(root_url) == log_url:
        return
    path = _path()
    temporary = path.with_name(f".{path.name}-{random_token()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps(known | {root_url: log_url}, indent=1, sort_keys=True) + "\n", "utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _is_same_store(root_url: str, log_url: str) -> bool:
    return _store(root_url) == _store(log_url)


def _store(url: str) -> tuple[str, str]:
    if "://" not in url:
        return ("sqlite", url) if url.startswith("sqlite:") else ("file", "")
    parts = urlsplit(url)
    return (parts.scheme, "" if parts.scheme == "file" else parts.netloc)


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path("~/.config").expanduser()) / "lakebed" / "log_urls.json"


def _remembered() -> dict[str, str]:
    try:
        known = load(_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in known.items() if isinstance(v, str)} if isinstance(known, dict) else {}
