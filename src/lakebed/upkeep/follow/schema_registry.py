"""A schema registry with the HTTP interface of Confluent: schemas of Avro by their ids.

Core types: :class:`SchemaRegistry`. Errors: StorageError (``source_unreadable``) for a registry that does not answer or
refuses access; :class:`UnknownSchemaError` for an id that it does not have.

Source: Confluent, "Schema Registry API Reference".
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3

from lakebed.errors import Code
from lakebed.upkeep.follow.debezium_messages import ForeignMessageError

ANSWER_S = 10.0

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchemaError(ForeignMessageError):
    """The registry has no schema with the id of a message."""


class _RegistryAnswer(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - a field of the protocol
    references: list[Any] = []


class SchemaRegistry:
    """The registry at a URL; ``user_info`` is ``USER:PASSWORD``, or None. An id that is missing is asked for once."""

    def __init__(self, url: str, user_info: str | None) -> None:
        if urlsplit(url).scheme not in ("http", "https") or "@" in urlsplit(url).netloc:
            raise Code.ARGUMENT_INVALID(
                f"--registry {url.rpartition('@')[2]}: must be http:// or https://, without a password, which belongs "
                "to --source-config, as schema.registry.basic.auth.user.info"
            )
        self.url = url.rstrip("/")
        headers = {"Accept": _ACCEPT}
        if user_info is not None:
            headers |= urllib3.make_headers(basic_auth=user_info)
        self._pool = urllib3.PoolManager(headers=headers, timeout=ANSWER_S, retries=False)
        self._missing: dict[int, str] = {}

    def schema(self, number: int) -> Any:
        """Return the schema with an id, as JSON. Raises ForeignMessageError if it is none of Avro."""
        if number in self._missing:
            raise UnknownSchemaError(self._missing[number])
        url = f"{self.url}/schemas/ids/{number}"
        try:
            answer = self._pool.request("GET", url)
        except urllib3.exceptions.HTTPError as error:
            raise Code.SOURCE_UNREADABLE(
                f"the schema registry {self.url} does not answer: {type(error).__name__}", url=self.url, transient=True
            ) from error
        if answer.status == 404:
            self._missing[number] = f"the schema registry {self.url} has no schema {number}"
            raise UnknownSchemaError(self._missing[number])
        if answer.status in (401, 403):
            raise Code.SOURCE_UNREADABLE(
                f"the schema registry {self.url} answers {answer.status}: put schema.registry.basic.auth.user.info="
                "USER:PASSWORD into the file of --source-config",
                url=self.url,
                transient=False,
            )
        try:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            found = msgspec.json.decode(answer.data, type=_RegistryAnswer)
            if found.schemaType == "AVRO" and not found.references:
                return msgspec.json.decode(found.schema)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Code.SOURCE_UNREADABLE(
                f"the schema registry {self.url} answers what is no schema: {error}", url=self.url, transient=True
            ) from error
        form = f"of the type {found.schemaType}" if found.schemaType != "AVRO" else "with references to others"
        self._missing[number] = f"schema {number} of the registry is {form}, and only Avro without references is read"
        raise ForeignMessageError(self._missing[number])

    def close(self) -> None:
        """End the connections, and forget which schemas are missing."""
        self._missing.clear()
        self._pool.clear()
