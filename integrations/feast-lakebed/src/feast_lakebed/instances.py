"""Where the tables are: an instance of Lakebed, opened here or through a service.

Core types: :class:`LakebedConfig`, what both stores have in ``feature_store.yaml``; :func:`instance_of`. An instance is
opened once in a process. A process that was forked opens its own.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from feast.repo_config import FeastConfigBaseModel
from pydantic import Field, StrictStr

import lakebed


class LakebedConfig(FeastConfigBaseModel):
    """The instance of a store."""

    url: StrictStr
    """A path (relative to the feature repository), ``s3://…``, ``gs://…``, ``az://…``, or the ``http://…`` of a
    service."""

    token: StrictStr | None = None
    """The token for a service. ``${LAKEBED_TOKEN}`` in the file takes it from the environment."""

    storage_options: dict[str, str] = Field(default_factory=dict)
    """Credentials and the like of an object store; without them its usual chain is used."""


@cache
def _opened(url: str, token: str | None, options: tuple[tuple[str, str], ...], create: bool, _process: int) -> Any:
    if url.startswith(("http://", "https://")):
        return lakebed.connect(url, token=token)
    if create:
        return lakebed.create(url, storage_options=dict(options) or None, exist_ok=True)
    return lakebed.open(url, storage_options=dict(options) or None)


def instance_of(store: LakebedConfig, repo_path: Path | None, *, create: bool = False) -> Any:
    """Return the instance of a store; ``create`` makes it if there is none. Raises NotFoundError if there is none."""
    url = store.url
    if "://" not in url and not Path(url).is_absolute() and repo_path is not None:
        url = str(Path(repo_path) / url)
    return _opened(url, store.token, tuple(sorted(store.storage_options.items())), create, os.getpid())
