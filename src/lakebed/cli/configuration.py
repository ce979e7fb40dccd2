"""The configuration file of the command line: instances and profiles by a short name.

A TOML file: ``--config``, else ``LAKEBED_CONFIG``, else ``lakebed/config.toml`` below ``XDG_CONFIG_HOME`` (by default
``~/.config``). docs/configuration.md specifies it, and the precedence of values. A profile is a set of values for the
options of every command (:data:`PROFILE_KEYS`).

Secrets stay out of the file: a value may be ``{ env = "NAME" }`` or ``{ file = "PATH" }``, and a token must be.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lakebed.cli.render import FORMATS
from lakebed.errors import Code
from lakebed.model.wording import did_you_mean
from lakebed.storage.local import user_path

CONFIG_VARIABLE = "LAKEBED_CONFIG"

_TOP = {"default", "instances", "profiles"}
_OF_INSTANCE = {"url", "log_url", "commit_via", "token", "options"}
_FLAGS = ("json", "quiet", "no_pager")
_TEXTS = ("instance", "log_url", "commit_via")
_CHOICES = {"format": FORMATS, "log_format": ("text", "json"), "verbose": (0, 1, 2)}
PROFILE_KEYS = (*_TEXTS, *_CHOICES, *_FLAGS, "options")
"""The options of every command that a profile may set, under their names; ``options`` are those of ``--option``."""


class NamedInstance(Struct, frozen=True):
    """An instance as the file describes it; variables and files are read by :func:`read_value`."""

    name: str
    where: Path
    url: str
    log_url: str | None = None
    commit_via: str | None = None
    secret_token: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def token(self) -> str | None:
        """Return the token for ``commit_via``. Raises as :func:`read_value`."""
        where = f"{self.where}: instances.{self.name}.token"
        return None if self.secret_token is None else read_value(where, self.secret_token)


class Profile(Struct, frozen=True):
    """Values for options of every command, by :data:`PROFILE_KEYS`; ``options`` is apart from the other values."""

    name: str
    where: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class Configuration(Struct, frozen=True):
    """The contents of a file; ``default`` is the name or URL of the instance if none is given."""

    path: Path
    default: str | None = None
    instances: Mapping[str, NamedInstance] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def profile(self, name: str, named_by: str) -> Profile:
        """Return the profile of that name, which ``named_by`` asks for. Raises NotFoundError."""
        found = self.profiles.get(name)
        if found is None:
            known = f"profiles: {', '.join(sorted(self.profiles))}" if self.profiles else "it has no profiles"
            known = known if self.path.exists() else "there is no such file"
            meant = did_you_mean(name, self.profiles)
            raise Code.SOURCE_NOT_FOUND(f"{named_by}: no profile {name!r} in {self.path}; {known}{meant}")
        return found


def configuration_path(given: str | None) -> Path:
    """Return the file: the given one, else that of the environment, else the user's."""
    named = given or os.environ.get(CONFIG_VARIABLE)
    if named:
        return user_path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "lakebed" / "config.toml"


def read_configuration(given: str | None) -> Configuration:
    """Return the configuration; an empty one if the user's file is not there.

    Raises NotFoundError if a file that is named is not there, UsageError if it is not as docs/configuration.md says.
    """
    path = configuration_path(given)
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if given or os.environ.get(CONFIG_VARIABLE):
            raise Code.SOURCE_NOT_FOUND(f"no configuration file {path}") from None
        return Configuration(path)
    except (OSError, UnicodeDecodeError) as error:
        raise Code.ARGUMENT_INVALID(f"{path}: cannot be read: {error}") from error
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Code.ARGUMENT_INVALID(f"{path}: not TOML: {error}") from error
    _check_keys(path, "", found, _TOP)
    return Configuration(
        path,
        _checked_text(path, "default", found.get("default")),
        {name: _instance(path, name, value) for name, value in _tables(path, "instances", found).items()},
        {name: _profile(path, name, value) for name, value in _tables(path, "profiles", found).items()},
    )


def _tables(path: Path, key: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = found.get(key, {})
    if not isinstance(tables, dict):
        raise Code.ARGUMENT_INVALID(f"{path}: {key} must be tables such as [{key}.prod]")
    return tables


def _instance(path: Path, name: str, given: Any) -> NamedInstance:
    where = f"instances.{name}"
    if not isinstance(given, dict) or "url" not in given:
        raise Code.ARGUMENT_INVALID(f'{path}: {where} needs a url, such as url = "s3://bucket/lake"')
    _check_keys(path, f"{where}: ", given, _OF_INSTANCE)
    options = _storage_options_of(path, where, given)
    token = given.get("token")
    if isinstance(token, str):
        # Without the value.
        raise Code.ARGUMENT_INVALID(
            f'{path}: {where}.token stands in the file; keep it elsewhere: token = {{ env = "NAME" }} or '
            '{ file = "PATH" }'
        )
    if token is not None:
        _check_source(path, f"{where}.token", token)
    texts = {key: _checked_text(path, f"{where}.{key}", given.get(key)) for key in ("url", "log_url", "commit_via")}
    return NamedInstance(
        name, path, texts["url"] or "", texts["log_url"], texts["commit_via"], secret_token=token, options=options
    )


def _profile(path: Path, name: str, given: Any) -> Profile:
    where = f"profiles.{name}"
    if not isinstance(given, dict):
        raise Code.ARGUMENT_INVALID(f"{path}: {where} must be a table such as [profiles.prod]")
    _check_keys(path, f"{where}: ", given, PROFILE_KEYS)
    for key, value in given.items():
        if key in _TEXTS:
            _checked_text(path, f"{where}.{key}", value)
        elif key in _FLAGS and not isinstance(value, bool):
            raise Code.ARGUMENT_INVALID(f"{path}: {where}.{key} = {value!r}: must be true or false")
        elif key in _CHOICES and (isinstance(value, bool) or value not in _CHOICES[key]):
            allowed = ", ".join(map(str, _CHOICES[key]))
            raise Code.ARGUMENT_INVALID(f"{path}: {where}.{key} = {value!r}: must be one of {allowed}")
    if given.get("json") and "format" in given:
        raise Code.ARGUMENT_INVALID(f"{path}: {where}: json and format exclude each other; keep one")
    values = {key: value for key, value in given.items() if key != "options"}
    return Profile(name, path, values, _storage_options_of(path, where, given))


def _storage_options_of(path: Path, where: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    options = given.get("options", {})
    if not isinstance(options, dict):
        raise Code.ARGUMENT_INVALID(f"{path}: {where}.options must be a table of storage options")
    for key, value in options.items():
        _check_source(path, f"{where}.options.{key}", value)
    return options


def read_value(where: str, value: Any) -> str:
    """Return a text, or the contents of the variable or file that ``value`` names.

    Raises UsageError if it does not exist.
    """
    if isinstance(value, str):
        return value
    ((source, name),) = value.items()
    if source == "env":
        found = os.environ.get(name)
        if not found:
            raise Code.ARGUMENT_INVALID(f"{where} is in the environment variable {name}, which is not set")
        return found
    try:
        return user_path(name).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Code.ARGUMENT_INVALID(f"{where} is in the file {name}, which cannot be read: {error}") from error


def _checked_text(path: Path, key: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise Code.ARGUMENT_INVALID(f"{path}: {key} = {value!r}: must be a text")
    return value


def _check_source(path: Path, key: str, value: Any) -> None:
    is_source = isinstance(value, dict) and len(value) == 1 and {*value} <= {"env", "file"}
    if not (isinstance(value, str) or (is_source and isinstance(next(iter(value.values())), str))):
        raise Code.ARGUMENT_INVALID(f'{path}: {key} must be a text, {{ env = "NAME" }} or {{ file = "PATH" }}')


def _check_keys(path: Path, where: str, found: Mapping[str, Any], known: Collection[str]) -> None:
    for name in found:
        if name not in known:
            raise Code.ARGUMENT_INVALID(
                f"{path}: {where}unknown key {name!r}; keys: {', '.join(sorted(known))}{did_you_mean(name, known)}"
            )
