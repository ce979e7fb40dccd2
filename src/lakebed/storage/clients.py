"""Open the clients of an object store, from a URL and storage options. Opening sends no request.

Options are the client's settings as strings (``aws_access_key_id``, ``endpoint_url``, ``account_name``, ``timeout`` …),
in upper or lower case; an unknown one is refused by name. Other settings come from the usual chain: environment, web
identity, container or instance metadata, and, for S3 if boto3 is installed, the profiles of ``~/.aws`` (SSO too) with
their region and endpoint. Values of options never appear in an error or a repr.

Each root has two clients: one that retries, and one that does not, for conditional puts. A client that repeats a put
after its answer was lost would report the caller's own object as another writer's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.wording import did_you_mean
from lakebed.storage.client_errors import explain, explained, half_of_keys, scrubbed
from lakebed.storage.processes import STORE_CLIENT, Runtime

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

PROFILE_OPTION = "aws_profile"

# obstore takes these in a separate argument, apart from the store's settings.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_SERVICES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}

_STORE_OPTIONS = {
    "s3": (
        "access_key_id", "secret_access_key", "session_token", "region", "endpoint", PROFILE_OPTION,
        "virtual_hosted_style_request", "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled",
        "web_identity_token_file", "role_arn", "role_session_name", "request_payer", "skip_signature",
        "unsigned_payload",
    ),
    "gs": ("service_account", "application_credentials", "service_account_key", "skip_signature"),
    "az": (
        "account_name", "account_key", "sas_key", "client_id", "client_secret", "tenant_id", "federated_token_file",
        "use_azure_cli", "use_emulator",
    ),
}  # fmt: skip
"""The options listed in docs/storage.md, for suggestions; the stores support more."""

# Ten attempts with a backoff of up to 15 s take about a minute; then the call fails.
_RETRYING: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
_LIST_CHUNK = 1000  # one page of S3
_ONCE: dict[str, Any] = {"max_retries": 0, "retry_timeout": timedelta(seconds=0)}


@dataclass(slots=True)
class Clients:
    """The two clients of one bucket or container, and the options that opened them (secrets: not in reprs).

    The client that does not retry is opened at its first use: 5 ms that a process which only reads need not spend.
    """

    _retrying: ObjectStore = field(repr=False)
    _open_once: Callable[[], ObjectStore] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    runtime: Runtime | None = field(default=STORE_CLIENT, repr=False)
    """The threads that serve requests; None for a store in memory, which needs none."""
    _once: ObjectStore | None = field(default=None, init=False, repr=False)

    @property
    def retrying(self) -> ObjectStore:
        """The client that retries. Raises UsageError in a forked child."""
        self._enter()
        return self._retrying

    @property
    def once(self) -> ObjectStore:
        """The client that does not retry. Raises UsageError in a forked child."""
        self._enter()
        if self._once is None:
            self._once = self._open_once()
        return self._once

    def _enter(self) -> None:
        if self.runtime is not None:
            self.runtime.enter()


def open_clients(scheme: str, bucket: str, options: Mapping[str, object]) -> Clients:
    """Open the clients for ``s3``, ``gs`` or ``az``.

    Raises:
        UsageError: an option is unknown to this kind of store, or its value cannot be parsed.
        StorageError: a required setting is missing (an Azure account), or a named file cannot be read.
    """
    from obstore import store as obstore_stores
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError

    config, client_options, profile = _sort_options(options)
    credentials = _profile_credentials(config, profile) if scheme == "s3" else None
    allow_http(scheme, config, client_options)
    arguments: dict[str, Any] = {"config": config, "client_options": client_options}
    if credentials is not None:
        arguments["credential_provider"] = credentials
    service = getattr(obstore_stores, _SERVICES[scheme])
    try:
        return Clients(
            service(bucket, retry_config=_RETRYING, **arguments),
            partial(service, bucket, retry_config=_ONCE, **arguments),
            {name: str(value) for name, value in options.items()},
        )
    except UnknownConfigurationKeyError as error:
        named = next((key for key in config if f"'{key}'" in str(error)), "")
        known = {*_STORE_OPTIONS[scheme], *_CLIENT_OPTIONS}
        raise Code.OPTION_UNKNOWN(
            f"storage option {named!r} is not supported for {scheme}:// URLs{did_you_mean(named, known)} "
            "(`lakebed docs storage`)",
            option=named,
        ) from error
    except (BaseError, ValueError) as error:
        if half_of_keys(error):
            raise explain(error, "open", f"{scheme}://{bucket}") from error
        said = scrubbed(str(error).partition("\n\nDebug source")[0])
        failure = Code.STORE_REFUSED(f"cannot open {scheme}://{bucket}: {said}", transient=False)
        raise failure from (error if said in str(error) else None)


def listed_objects(clients: Clients, prefix: str, url: str, offset: str | None = None) -> Iterator[ObjectMeta]:
    """List the objects below a prefix ("": all), above a key, in pages of a thousand that are fetched as they are read.

    Raises StorageError, which names the ``url``.
    """
    import obstore

    # One request for each page, which is counted once: only the last page is short.
    with explained("list", url):
        pages = iter(obstore.list(clients.retrying, prefix or None, offset=offset, chunk_size=_LIST_CHUNK))
        page = next(pages, ())
    yield from page
    while len(page) == _LIST_CHUNK:
        with explained("list", url):
            page = next(pages, ())
        yield from page


def _sort_options(options: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str], str | None]:
    """Return (settings of the store, settings of its HTTP client, profile), with names in lower case."""
    config: dict[str, str] = {}
    client_options: dict[str, str] = {}
    for given, value in options.items():
        if not isinstance(value, str | bool):
            raise Code.ARGUMENT_INVALID(
                f"storage option {given!r} must be a string, not {type(value).__name__}", option=given
            )
        key = given.lower()
        text = value if isinstance(value, str) else str(value).lower()
        bare = key.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if bare in _CLIENT_OPTIONS:
            client_options[bare] = text
        else:
            config[key] = text
    profile = config.pop(PROFILE_OPTION, None)
    return config, client_options, profile


def allow_http(scheme: str, config: Mapping[str, str], client_options: dict[str, str]) -> None:
    """Allow plain HTTP by default if ``AWS_ALLOW_HTTP`` for S3 is true or the endpoint begins with http://."""
    endpoints = [value for key, value in config.items() if "endpoint" in key]
    if scheme == "s3":
        if "AWS_ALLOW_HTTP" in os.environ:
            # The client ignores the variable if it is given options.
            client_options.setdefault("allow_http", os.environ["AWS_ALLOW_HTTP"].lower())
        endpoints += [os.environ.get(name, "") for name in _ENDPOINTS] if not endpoints else []
    if any(endpoint.startswith("http://") for endpoint in endpoints):
        client_options.setdefault("allow_http", "true")


def _profile_credentials(config: dict[str, str], profile: str | None) -> Callable[[], Any] | None:
    """Return credentials from ``~/.aws`` by boto3, if no option or variable sets any and such files or a profile exist.

    Sets region and endpoint of the profile in ``config``, unless it or the environment has them. boto3 is called only
    if needed, because it waits for instance metadata on machines that have none.
    """
    variable = next((name for name in (_PROFILE_VARIABLE, "AWS_DEFAULT_PROFILE") if os.environ.get(name)), None)
    wanted = profile is not None or variable is not None
    if not wanted and not _has_profiles():
        return None
    given = any(key.endswith(("access_key_id", "skip_signature")) for key in config)
    nearer = not wanted and any(name in os.environ for name in _NEARER)
    if find_spec("boto3") is None:
        if not wanted or given:
            return None
        named = f"storage option {PROFILE_OPTION!r}" if profile is not None else f"the variable {variable}"
        raise Code.PACKAGE_MISSING(
            f"{named} names a profile of ~/.aws, and reading profiles needs boto3: pip install boto3",
            option=PROFILE_OPTION,
        )
    if given and not wanted:
        return None
    import boto3
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session = boto3.Session(profile_name=profile)
        _take_settings(config, session)
        if given or nearer or session.get_credentials() is None:
            return None
        return _with_remedy(Boto3CredentialProvider(session))
    except BotoCoreError as error:
        raise Code.CREDENTIALS_UNREADABLE(f"cannot read AWS credentials: {error}") from error


_PROFILE_VARIABLE = "AWS_PROFILE"
_NEARER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _take_settings(config: dict[str, str], session: Any) -> None:
    """Set region and endpoint of a profile, unless an option or variable sets them."""
    if session.region_name and not _is_set(config, "region", _REGIONS):
        config["aws_region"] = session.region_name
    scoped = session._session.get_scoped_config()  # noqa: SLF001 - boto3 has no public way to a profile's own settings
    services = session._session.full_config.get("services", {}).get(scoped.get("services"), {})  # noqa: SLF001 - as above
    endpoint = services.get("s3", {}).get("endpoint_url") or scoped.get("endpoint_url")
    if endpoint and not _is_set(config, "endpoint", _ENDPOINTS):
        config["aws_endpoint"] = endpoint


def _is_set(config: Mapping[str, str], what: str, variables: Sequence[str]) -> bool:
    return any(what in key for key in config) or any(name in os.environ for name in variables)


def _with_remedy(provider: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap the provider so that its errors (such as an expired SSO login) are translated."""
    from botocore.exceptions import BotoCoreError

    def credentials() -> Any:
        try:
            return provider()
        except BotoCoreError as error:
            raise Code.STORE_CREDENTIALS(
                f"cannot get AWS credentials of the profile: {error}", transient=False
            ) from error

    return credentials


def _has_profiles() -> bool:
    files = (os.environ.get("AWS_SHARED_CREDENTIALS_FILE"), os.environ.get("AWS_CONFIG_FILE"))
    return any(files) or any((Path.home() / ".aws" / name).exists() for name in ("credentials", "config"))
