"""``lakebed.connect``: opens an instance through a service. Imports the packages of an extra when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed.table.client.remote_instance import RemoteInstance

TIMEOUT_S = 90.0


def connect(
    url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S, ca_file: str | Path | None = None
) -> RemoteInstance:
    """Return the instance of the service at a URL, such as ``http://host:8017``. Needs the extra ``client``.

    ``timeout_s`` is the longest wait for the next bytes of a response. ``ca_file`` has the CA certificates (PEM) of a
    service with TLS, if the system does not trust them. The proxy is taken from the environment (``HTTPS_PROXY``,
    ``NO_PROXY``). No request is made before the first method is called.

    Raises UsageError for an invalid URL or file, or if the extra is not installed.
    """
    with optional_imports():
        from lakebed.table.client.connection import Connection
        from lakebed.table.client.remote_instance import RemoteInstance
    return RemoteInstance(Connection(url, token, timeout_s, ca_file))
